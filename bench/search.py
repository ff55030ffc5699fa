"""How long searches take on PostgreSQL, kind by kind, where rows are many.

`ROWS=10_000_000 python -m bench search` takes half an hour, most of it to fill the
table and to build its indexes. What is measured is the port, from a query as the API
reads it to rows as JSON; the server and its client share the machine.
"""

import itertools
import os
import random
import time
from datetime import UTC, datetime, timedelta

import psycopg
from tests.builders import dataset, int_field, text_field, typed_field

from bench.server import server
from bench.stage import verdict
from penstock.adapters.postgres.bell import ListeningBell
from penstock.adapters.postgres.database import Database
from penstock.adapters.postgres.schema import PostgresSchema
from penstock.adapters.sql.stores import served_by, stores_of
from penstock.domain.dataset import FieldType
from penstock.domain.queries.search_parameters import (
    read_facets,
    read_search,
    read_suggest,
)

ROWS = int(os.environ.get("ROWS", "1_000_000"))
TRIES = int(os.environ.get("TRIES", "40"))
# what no kind may take longer than, in milliseconds
MOST = 50
AT_ONCE = 20_000
TOWNS = 3_000
POI = dataset(
    fields=(
        int_field("id", required=True),
        text_field("title"),
        text_field("town"),
        text_field("address"),
        int_field("country_id"),
        int_field("points"),
        typed_field("lat", FieldType.FLOAT),
        typed_field("lon", FieldType.FLOAT),
        typed_field("updated_at", FieldType.TIMESTAMP),
    ),
    search=("title", "town", "address"),
    filter=("country_id", "town", "points"),
    geo=("lat", "lon"),
)
SYLLABLES = [
    *("ba", "co", "da", "fe", "gi", "ho", "ka", "li", "mo", "nu", "pa", "re", "sa"),
    *("te", "vi", "zu", "ber", "lin", "ste", "mar", "nor", "dor", "hau", "kir", "wald"),
    *("berg", "burg", "stadt", "feld", "bach", "grün", "süd", "nord", "ost", "ing"),
]


class Words:
    """Words of which few are everywhere and most are rare, as in life."""

    def __init__(self, dice, count):
        self.all = [*dict.fromkeys(self._word(dice) for _ in range(count))]
        self._shares = [
            *itertools.accumulate(1 / (n + 3) for n in range(len(self.all)))
        ]
        self._dice = dice

    def some(self, count):
        return self._dice.choices(self.all, cum_weights=self._shares, k=count)

    def _word(self, dice):
        return "".join(dice.choices(SYLLABLES, k=dice.choice((2, 2, 3, 3, 4)))).title()


def rows(dice, words):
    towns = words.all[1000 : 1000 + TOWNS]
    start = datetime(2020, 1, 1, tzinfo=UTC)
    for first in range(0, ROWS, AT_ONCE):
        drawn = words.some(4 * AT_ONCE)
        for at in range(min(AT_ONCE, ROWS - first)):
            title = " ".join(drawn[4 * at : 4 * at + 3])
            # two words that a tenth of the rows have
            title += " Station" * (dice.random() < 0.1) + " Park" * (
                dice.random() < 0.1
            )
            yield (
                first + at,
                title,
                towns[int(dice.random() ** 3 * len(towns))],
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


def fill(url, dice, words):
    names = [*(field.name for field in POI.fields)]
    names += ["_digest", "_import", "_created_at", "_updated_at"]
    columns = ", ".join(names)
    with psycopg.connect(url, options="-c search_path=penstock") as connection:
        with (
            connection.cursor() as cursor,
            cursor.copy(f"copy poi ({columns}) from stdin") as copy,
        ):
            for row in rows(dice, words):
                copy.write_row(row)
        connection.commit()
        connection.autocommit = True
        connection.execute("vacuum analyze poi")


def mistyped(dice, word):
    at = dice.randrange(1, len(word) - 1)
    return word[:at] + dice.choice("aeioqxyz") + word[at + 1 :]


def kinds(dice, words):
    """Yield what is asked, by name, each as a way to make up another one."""
    rare = words.all[20_000:]
    common = words.all[5:200]
    towns = words.all[1000 : 1000 + TOWNS]

    def spot():
        return f"{dice.uniform(47, 55)},{dice.uniform(6, 15)}"

    def search(**parameters):
        return read_search(POI, parameters.items())[0]

    yield "a rare word", lambda: search(q=dice.choice(rare))
    yield "a frequent word", lambda: search(q=dice.choice(common))
    yield "a word of 10 % of the rows", lambda: search(q="station")
    yield "two such words", lambda: search(q="station park")
    yield "rare and frequent", lambda: search(q=f"{dice.choice(rare)} station")
    yield (
        "no such row",
        lambda: search(q=f"{dice.choice(rare)} {dice.choice(rare)} park"),
    )
    yield "a beginning of two letters", lambda: search(q=dice.choice(SYLLABLES)[:2])
    yield "a beginning of four letters", lambda: search(q=dice.choice(rare)[:4])
    yield "a typo", lambda: search(q=mistyped(dice, dice.choice(rare)))
    yield (
        "a typo beside a frequent word",
        lambda: search(q=f"{mistyped(dice, dice.choice(rare))} station"),
    )
    yield (
        "10 % and a rare value",
        lambda: search(q="station", town=f"eq.{dice.choice(towns[1000:])}"),
    )
    yield (
        "10 % and a frequent value",
        lambda: search(q="station", points=f"eq.{dice.randint(0, 60)}"),
    )
    yield (
        "a rare word and most rows",
        lambda: search(q=dice.choice(rare), points="gte.1"),
    )
    yield "near", lambda: search(near=spot())
    yield "near, within 5 km", lambda: search(near=spot(), within="5")
    yield "near, within 500 km", lambda: search(near=spot(), within="500")
    yield "10 % near", lambda: search(near=spot(), q="station")
    yield "a frequent word near", lambda: search(near=spot(), q=dice.choice(common))
    yield "a rare word near", lambda: search(near=spot(), q=dice.choice(rare))
    yield "near, with a value", lambda: search(near=spot(), points="eq.7")
    yield "suggest by two letters", lambda: (dice.choice(SYLLABLES)[:2],)
    yield "suggest by four letters", lambda: (dice.choice(rare)[:4],)
    yield (
        "suggest beside a frequent word",
        lambda: ("station " + dice.choice(rare)[:3],),
    )
    yield "facets of all rows", lambda: read_facets(POI, [])
    yield "facets of a value", lambda: read_facets(POI, [("country_id", "eq.3")])
    yield "facets of a rare value", lambda: read_facets(POI, [("town", "eq.Berlin")])
    yield "facets of 10 %", lambda: read_facets(POI, [("q", "station")])
    yield "facets of a rare word", lambda: read_facets(POI, [("q", dice.choice(rare))])


def ask(search, question):
    if isinstance(question, tuple):
        words, limit = read_suggest(POI, [("q", question[0])])
        return search.suggest(POI, words, limit=limit)
    if hasattr(question, "by"):
        return search.facets(question)
    return search.search(question)


def took(search, make):
    found = []
    for _ in range(TRIES):
        question = make()
        began = time.perf_counter()
        ask(search, question)
        found.append((time.perf_counter() - began) * 1000)
    return sorted(found)


def timed(told, work):
    began = time.perf_counter()
    work()
    print(f"     {told}: {time.perf_counter() - began:.0f} s", flush=True)


def sizes(url):
    with psycopg.connect(url, options="-c search_path=penstock,public") as connection:
        told = connection.execute(
            "select relname, pg_size_pretty(pg_relation_size(oid)) from pg_class "
            "where relname ~ '^(poi$|penstock:poi|penstock_word)' order by relname"
        ).fetchall()
        (words,) = connection.execute("select count(*) from penstock_word").fetchone()
    print("     " + ", ".join(f"{name} {size}" for name, size in told))
    print(f"     {words} words")


def measure():
    dice = random.Random(11)
    words = Words(dice, 400_000)
    with server(maintenance_work_mem="512MB") as postgres, postgres.database() as url:
        database = Database(
            url, place="bench", schema="penstock", limit=timedelta(hours=1)
        )
        schema = PostgresSchema(database)
        bell = ListeningBell(database.connections.open_one, schema="penstock")
        stores = stores_of(database, schema=schema, lease=timedelta(60), bell=bell)
        print(f"search in {ROWS:,} rows:")
        stores.schema.migrate()
        stores.schema.prepare(POI)
        timed("fill the table", lambda: fill(url, dice, words))
        timed("build indexes and count words", lambda: stores.schema.tend(POI))
        sizes(url)
        search = served_by(database).search
        held = []
        for name, make in kinds(dice, words):
            # the first one finds nothing in memory
            ask(search, make())
            times = took(search, make)
            half, most = times[len(times) // 2], times[-len(times) // 20]
            told = f"p50 {half:.1f} ms, p95 {most:.1f} ms"
            held.append(verdict(name, holds=most <= MOST, told=told))
        bell.close()
        database.close()
    return all(held)
