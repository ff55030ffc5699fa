"""A table of charging points that never were, in a PostgreSQL of its own.

`ROWS=10_000_000` takes half an hour, most of it to fill the table and to build its
indexes. The benchmarks of the API ask what is in it.
"""

import contextlib
import itertools
import os
import random
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from bench.server import server
from bench.stage import PENSTOCK, verdict

AT_ONCE = 20_000
TOWNS = 3_000
# words from here on are rare
RARE = 20_000


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many rows the table has, of how many words, and how it is asked."""

    rows: int
    words: int
    # seconds that one figure is measured for
    seconds: int
    # pages asked for at the beginning and at the end, by turns
    turns: int


FULL = Sizes(
    rows=int(os.environ.get("ROWS", "1_000_000")),
    words=400_000,
    seconds=8,
    turns=300,
)
# as many words of which some are rare, since many are drawn twice
SMALL = Sizes(rows=5_000, words=3 * RARE, seconds=1, turns=10)
CONFIG = """\
[penstock]
database = "{database}"

[api]
rate = "1000000/s"

[auth]
issuer = "bench"
audience = "penstock"
secret = "${{BENCH_SECRET}}"

[datasets.poi]
key = "id"
cache = "{cache}"
search = ["title", "town", "address"]
filter = ["country_id", "town", "points"]
geo = ["lat", "lon"]

[datasets.poi.fields]
id = {{ path = "ID", type = "int", required = true }}
title = {{ path = "Title" }}
town = {{ path = "Town" }}
address = {{ path = "Address" }}
country_id = {{ path = "Country", type = "int" }}
points = {{ path = "Points", type = "int" }}
lat = {{ path = "Lat", type = "float" }}
lon = {{ path = "Lon", type = "float" }}
updated_at = {{ path = "Updated", type = "timestamp" }}

[datasets.poi.source]
type = "http"
url = "http://127.0.0.1:1/"
"""
# the same dataset, served without keeping answers
FORGETFUL = "forgetful.toml"
COPY = """\
copy poi (id, title, town, address, country_id, points, lat, lon, updated_at,
    _digest, _import, _created_at, _updated_at) from stdin
"""
ENVIRON = {**os.environ, "BENCH_SECRET": "a secret of more than thirty-two bytes"}
SYLLABLES = [
    *("ba", "co", "da", "fe", "gi", "ho", "ka", "li", "mo", "nu", "pa", "re", "sa"),
    *("te", "vi", "zu", "ber", "lin", "ste", "mar", "nor", "dor", "hau", "kir", "wald"),
    *("berg", "burg", "stadt", "feld", "bach", "grün", "süd", "nord", "ost", "ing"),
]


class Words:
    """Words of which few are everywhere and most are rare, as in life."""

    def __init__(self, dice, count):
        self.all = [*dict.fromkeys(self._word(dice) for _ in range(count))]
        self.towns = self.all[1000 : 1000 + TOWNS]
        self._shares = [
            *itertools.accumulate(1 / (n + 3) for n in range(len(self.all)))
        ]
        self._dice = dice

    def some(self, count):
        return self._dice.choices(self.all, cum_weights=self._shares, k=count)

    def _word(self, dice):
        return "".join(dice.choices(SYLLABLES, k=dice.choice((2, 2, 3, 3, 4)))).title()


@dataclass(frozen=True)
class Points:
    """A filled table, and the folder of the project that serves it."""

    sizes: Sizes
    folder: Path
    database: str
    dice: random.Random
    words: Words
    token: str


@contextlib.contextmanager
def points(sizes):
    dice = random.Random(11)
    words = Words(dice, sizes.words)
    with (
        # a quarter of a machine's memory, as its manual says
        server(
            small=sizes is SMALL, shared_buffers="6GB", maintenance_work_mem="512MB"
        ) as postgres,
        postgres.database() as database,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as name,
    ):
        folder = Path(name)
        for file, cache in (("penstock.toml", "60s"), (FORGETFUL, "0s")):
            config = CONFIG.format(database=database, cache=cache)
            (folder / file).write_text(config)
        penstock(folder, "migrate")
        print(f"{sizes.rows:,} rows:")
        with timed("fill the table"):
            fill(database, rows(sizes.rows, dice, words))
        with timed("build indexes and count words"):
            penstock(folder, "migrate")
        warm(database)
        tell_sizes(database)
        token = "Bearer " + penstock(folder, "token", "--scope", "read")
        yield Points(sizes, folder, database, dice, words, token)


def penstock(folder, *arguments):
    done = subprocess.run(
        [*PENSTOCK, *arguments],
        cwd=folder,
        env=ENVIRON,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def fill(url, made):
    with psycopg.connect(url, options="-c search_path=penstock") as connection:
        with connection.cursor() as cursor, cursor.copy(COPY) as copy:
            for row in made:
                copy.write_row(row)
        connection.commit()
        connection.autocommit = True
        connection.execute("vacuum analyze poi")


def rows(count, dice, words):
    start = datetime(2020, 1, 1, tzinfo=UTC)
    for first in range(0, count, AT_ONCE):
        drawn = words.some(4 * AT_ONCE)
        for at in range(min(AT_ONCE, count - first)):
            title = " ".join(drawn[4 * at : 4 * at + 3])
            # two words that a tenth of the rows have
            title += " Station" * (dice.random() < 0.1)
            title += " Park" * (dice.random() < 0.1)
            yield (
                first + at,
                title,
                words.towns[int(dice.random() ** 3 * TOWNS)],
                f"{drawn[4 * at + 3]}straße {dice.randint(1, 200)}",
                int(dice.random() ** 2 * 80),
                dice.randint(0, 60),
                dice.uniform(47, 55),
                dice.uniform(6, 15),
                start + timedelta(minutes=dice.randint(0, 3_000_000)),
                b"",
                0,
                start,
                start,
            )


def warm(url):
    """Read all into memory: what is measured is not the disk."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create extension pg_prewarm")
        connection.execute(
            "select pg_prewarm(pg_class.oid) from pg_class join pg_namespace "
            "on pg_namespace.oid = relnamespace "
            "where nspname = 'penstock' and relkind in ('r', 'i')"
        )


@contextlib.contextmanager
def timed(result):
    began = time.perf_counter()
    yield
    print(f"     {result}: {time.perf_counter() - began:.0f} s", flush=True)


def tell_sizes(url):
    with psycopg.connect(url, options="-c search_path=penstock,public") as connection:
        result = connection.execute(
            "select relname, pg_size_pretty(pg_relation_size(oid)) from pg_class "
            "where relname ~ '^(poi$|penstock:poi|penstock_word)' order by relname"
        ).fetchall()
        words = connection.execute("select count(*) from penstock_word").fetchall()
    print("     " + ", ".join(f"{name} {size}" for name, size in result))
    print(f"     {words[0][0]:,} words", flush=True)


def measure(*, small=False):
    """Fill the table and build its indexes, which prints how long each takes."""
    began = time.perf_counter()
    with points(SMALL if small else FULL) as filled:
        return verdict(
            "a table of points",
            holds=True,
            message=f"{filled.sizes.rows:,} rows ready after "
            f"{time.perf_counter() - began:.0f} s",
        )
