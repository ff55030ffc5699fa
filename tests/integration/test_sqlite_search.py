"""The index of words follows the rows in pieces, and never tells what is not there."""

import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlite.fts_index import INDEX_BATCH
from penstock.adapters.sqlstore.stores import build_api_stores
from penstock.domain.jobs import Mode
from penstock.errors import StoreTimeout
from penstock.ports import Stores
from penstock.ports.record_access import ApiStores, Removal, Write
from tests.contracts.search import (
    PLACES,
    change,
    facets,
    find,
    ids,
    place,
    search,
    store,
    suggest,
)
from tests.support.builders import batch, claim, last, plan, run, sqlite_stores


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    database = SqliteDatabase(path)
    yield database
    database.close()


@pytest.fixture
def stores(database: SqliteDatabase) -> Stores:
    stores = sqlite_stores(database)
    stores.schema.migrate()
    return stores


@pytest.fixture
def served(database: SqliteDatabase) -> ApiStores:
    return build_api_stores(database)


def select(path: Path, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def test_a_search_takes_in_what_has_changed_since(stores: Stores, served: ApiStores):
    run(stores, PLACES, last(place(1, "Berlin")))

    assert find(served, q="berlin") == [1]
    assert find(served, q="berlni") == [1]
    run(stores, PLACES, last(place(1, "Bern"), place(2, "Berlin")), mode=Mode.DELTA)
    assert find(served, q="berlin") == [2]


@pytest.mark.parametrize("query", [{"q": "berlin"}, {"near": "0,0"}])
def test_a_search_is_of_one_moment(
    stores: Stores, served: ApiStores, database: SqliteDatabase, query: dict[str, str]
):
    """Whichever two of its statements somebody writes between."""
    rows = [place(n, "Berlin", at=(0.0, n / 100)) for n in (1, 2, 3)]
    moved = place(1, "Berlin", at=(0.0, 0.01), points=2)
    run(stores, PLACES, last(*rows))
    connection = database.read(lambda read: read.connection)
    other = SqliteDatabase(database.path)
    statements = 0

    def move_before(number: int) -> Callable[[str], None]:
        def count(_: str) -> None:
            nonlocal statements
            statements += 1
            if statements == number:
                change(build_api_stores(other), Write(moved))

        return count

    for number in itertools.count(1):
        stores.schema.maintain(PLACES)
        statements = 0
        connection.set_trace_callback(move_before(number))
        found = search(served, PLACES, limit="2", points="eq.1", **query)
        connection.set_trace_callback(None)

        assert (ids(found), found.has_more) in [([1, 2], True), ([2, 3], False)]
        assert all(json.loads(row.body)["points"] == 1 for row in found.rows)
        if statements < number:
            break
        change(served, Write(rows[0]))
    assert number > 4
    other.close()


def test_many_rows_are_not_searched_before_all_were_seen(
    stores: Stores, served: ApiStores
):
    rows = [place(n, f"Station {n}") for n in range(1, 2 * INDEX_BATCH + 2)]
    run(stores, PLACES, last(*rows))

    with pytest.raises(StoreTimeout, match="cannot be searched yet"):
        search(served, q="station")
    assert ids(search(served, near="0,0")) == []

    stores.schema.maintain(PLACES)
    assert find(served, q=f"station {2 * INDEX_BATCH + 1}") == [2 * INDEX_BATCH + 1]


def test_an_index_that_is_behind_tells_nothing_that_is_not_so(
    stores: Stores, served: ApiStores
):
    count = 2 * INDEX_BATCH + 50
    store(stores, [place(n, "Berlin") for n in range(1, count)])
    # more than one search takes in
    run(stores, PLACES, last(*(place(n, "Hamburg") for n in range(1, count))))

    assert find(served, q="berlin") == []
    assert find(served, q="hamburg", id="eq.1") == [1]


def test_whoever_imports_does_not_wait_long(stores: Stores, path):
    plan(stores, PLACES)
    rows = [place(n, "Berlin") for n in range(1, 2 * INDEX_BATCH + 2)]
    stores.ledger.commit_page(PLACES, claim(stores, PLACES), batch(*rows))

    stores.schema.maintain(PLACES)

    assert select(path, 'select count(*) from "penstock:poi:entries"') == [
        (INDEX_BATCH,)
    ]


def test_rows_that_have_a_word_are_counted_to_the_last(
    stores: Stores, served: ApiStores, path
):
    store(stores, [place(n, "Berlin Berlin Park") for n in range(1, 6)])
    change(served, Removal((1,)), Write(place(2, "Bern")), Write(place(9, "Park 7")))

    assert [(each.text, each.rows) for each in suggest(served, "par")] == [("Park", 4)]
    words = select(path, "select word, rows from penstock_word order by word")
    assert words == [("berlin", 3), ("bern", 1), ("park", 4)]


def test_what_was_changed_back_and_forth_is_found_once(
    stores: Stores, served: ApiStores
):
    store(stores, [place(1, "Berlin")])
    for title in ("Bern", "Berlin", "Bern Berlin"):
        change(served, Write(place(1, title)))

    assert find(served, q="berlin") == [1]
    assert facets(served, q="bern").rows == 1


def test_other_fields_are_indexed_anew(stores: Stores, served: ApiStores):
    store(stores, [place(1, "Berlin", "Ulm")])
    other = replace(PLACES, search=("town",))

    assert find(served, other, q="berlin") == []
    assert find(served, other, q="ulm") == [1]
    assert find(served, q="berlin") == [1]


def test_two_who_search_at_once_take_in_each_change_once(
    stores: Stores, served: ApiStores, path
):
    store(stores, [place(1, "Berlin")])
    another = build_api_stores(SqliteDatabase(path))
    change(served, Write(place(2, "Berlin")))

    assert find(another, q="berlin") == [1, 2]
    assert find(served, q="berlin") == [1, 2]
    assert select(path, "select rows from penstock_word") == [(2,)]
