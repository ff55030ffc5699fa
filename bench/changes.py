"""How long an import takes that changes rows, beside the first one of the same rows.

One dataset, from an API and from a file, into PostgreSQL and SQLite, with and without
indexes: its first import, the same again, and then a tenth, most and all of its rows
changed. Everything counts from starting `penstock run` until it has ended.
"""

import contextlib
import csv
import itertools
import json
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.imports import shard_step
from bench.pages import PAGE, record
from bench.server import server
from bench.stage import PENSTOCK, served, verdict

MOST_CHANGED = 2.5
MOST_UNCHANGED = 0.25
KINDS = ("PostgreSQL", "SQLite")
INDEXES = {
    "no indexes": "",
    "filter": 'filter = ["country", "points"]',
    "filter and search": 'filter = ["country", "points"]\nsearch = ["name", "town"]',
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many rows are imported, how often, and with which indexes."""

    rows: int
    # of a hundred rows, how many are changed by each import after the second
    shares: tuple[int, ...]
    indexes: tuple[str, ...]
    # the imports of each source go into these
    databases: dict[str, tuple[str, ...]]
    # a server that was just made gets its memory and its files for the first time
    warm_ups: int


# so many that starting the command is little of the shortest import
FULL = Sizes(
    rows=400_000,
    shares=(10, 80, 100),
    indexes=tuple(INDEXES),
    databases=dict.fromkeys(("API", "file"), KINDS),
    warm_ups=1,
)
SMALL = Sizes(
    rows=2 * PAGE,
    shares=(10,),
    indexes=("filter and search",),
    databases={"API": ("PostgreSQL",), "file": ("SQLite",)},
    warm_ups=0,
)

CONFIG = """\
[penstock]
database = "{database}"

[datasets.points]
key = "id"
{indexes}

[datasets.points.fields]
id = {{ type = "int" }}
name = {{ required = true, max_length = 200 }}
town = {{}}
country = {{}}
lat = {{ type = "float", min = -90, max = 90 }}
lon = {{ type = "float", min = -180, max = 180 }}
points = {{ type = "int" }}
updated_at = {{ type = "timestamp" }}

[datasets.points.source]
{source}
"""
HTTP = """\
type = "http"
url = "{url}"

[datasets.points.source.pages]
by = "keyset"
send = "after"
field = "id"
size = {{ send = "limit", value = {page} }}

[datasets.points.shards]
ids = {{ kind = "range", from = 0, until = {rows}, step = {step} }}
"""
CSV = """\
type = "csv"
files = "{file}"
delimiter = ","
encoding = "utf-8"
"""


def run(folder, text, *, create):
    """Import what a configuration declares; return the seconds, and the counts."""
    Path(folder, "penstock.toml").write_text(text, encoding="utf-8")
    if create:
        subprocess.run([*PENSTOCK, "migrate"], cwd=folder, check=True)
    began = time.monotonic()
    done = subprocess.run(
        [*PENSTOCK, "run", "points", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - began
    document = json.loads(done.stdout)
    assert document["proven"], document
    return seconds, document["records"]


def measure_shares(sizes, database, source_of, indexes):
    """Return the seconds of the first import, of the same again, and of changes."""
    found: list[float] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        for share in (0, 0, *sizes.shares):
            text = CONFIG.format(
                database=database, indexes=indexes, source=source_of(share)
            )
            seconds, records = run(folder, text, create=not found)
            expected = share * sizes.rows // 100 if found else sizes.rows
            changed = records["updated" if found else "inserted"]
            assert changed == expected, (share, records)
            found.append(seconds)
    return found


def compare(sizes, name, *imported):
    first, again, *changed = measure_shares(sizes, *imported)
    shares = ", ".join(
        f"{share} % changed {seconds / first:.2f}"
        for share, seconds in zip(sizes.shares, changed, strict=True)
    )
    return verdict(
        name,
        holds=max(changed) <= MOST_CHANGED * first and again <= MOST_UNCHANGED * first,
        message=f"first {sizes.rows / first:,.0f} rows/s; of its time, "
        f"unchanged {again / first:.2f}, {shares}",
    )


def write_file(path, rows, share):
    with path.open("w", encoding="utf-8", newline="") as file:
        written = csv.writer(file)
        written.writerow(record(0))
        written.writerows(record(at, share).values() for at in range(rows))


@contextlib.contextmanager
def sources(sizes):
    """Yield how each source is declared whose rows are changed by a share."""
    shares = map(str, sizes.shares)
    with (
        served("bench.pages", str(sizes.rows), *shares) as url,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
    ):
        for share in (0, *sizes.shares):
            write_file(Path(folder, f"{share}.csv"), sizes.rows, share)

        def of_api(share):
            return HTTP.format(
                url=f"{url}/{share}",
                page=PAGE,
                rows=sizes.rows,
                step=shard_step(sizes.rows),
            )

        def of_file(share):
            return CSV.format(file=Path(folder, f"{share}.csv"))

        yield {"API": of_api, "file": of_file}


@contextlib.contextmanager
def empty_database(postgres, kind):
    if kind == "SQLite":
        yield "sqlite:///bench.db"
        return
    with postgres.database() as database:
        yield database


def measure(*, small=False):
    sizes = SMALL if small else FULL
    with server(small=small) as postgres, sources(sizes) as known:
        for _ in range(sizes.warm_ups):
            with postgres.database() as database:
                measure_shares(sizes, database, known["API"], "")
        held = []
        for source, named, kind in itertools.product(known, sizes.indexes, KINDS):
            if kind not in sizes.databases[source]:
                continue
            with empty_database(postgres, kind) as database:
                name = f"changed rows, {source} into {kind}, {named}"
                imported = (database, known[source], INDEXES[named])
                held.append(compare(sizes, name, *imported))
    return all(held)
