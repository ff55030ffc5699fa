"""A page costs what its own rows cost, whatever the planner believes of a table."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from penstock.adapters.postgres.connection_pool import CLIENT_SESSION
from penstock.adapters.postgres.database import PostgresDatabase
from penstock.adapters.postgres.partitions import ensure_partitions, stored_partitions
from penstock.adapters.sqlstore.stores import build_api_stores
from penstock.domain.dataset import Dataset, Missing, WhenMissing
from penstock.domain.mapping.columnar import ColumnarRecords
from penstock.domain.pages import Batch, Key, Record, Rejection
from penstock.domain.pages import RowLocation as FilePosition
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.source import CsvSource
from penstock.ports import Stores
from penstock.ports.record_access import LockedRow, Removal, Write
from tests.support.builders import (
    batch,
    claim,
    dataset,
    int_field,
    known_page,
    plan,
    record,
    rejection,
    repeated,
    text_field,
)
from tests.support.postgres import Place, explained, nodes, opened

ROWS, PAGE = 6_000, 200
STEP = ROWS // PAGE
TOWNS = ("isny", "lindau", "wangen")
OF_FILES: dict[str, Any] = {
    "source": CsvSource(files=("shops.csv",)),
    "axes": (FileAxis(),),
}
KINDS: dict[str, dict[str, Any]] = {
    "records": {},
    "tracked": {"missing": Missing(do=WhenMissing.MARK)},
    "files": OF_FILES,
    "versions": {**OF_FILES, "version": "edition"},
    "parts of records": {"partition": "town"},
    "partitions": {**OF_FILES, "partition": "town"},
    "two fields": {**OF_FILES, "key": ("town", "id")},
}


def when_empty(place: Place, of: Dataset) -> None:
    place.ask(f"analyze {of.name}")
    fill(place, of)


def with_other_imports(place: Place, of: Dataset) -> None:
    """Let the server believe that no row is of the import that is to come."""
    fill(place, of)
    place.ask(f"update {of.name} set _import = 1000000")
    place.ask(f"analyze {of.name}")
    place.ask(f"update {of.name} set _import = 1")


def when_emptied(place: Place, of: Dataset) -> None:
    """Let the server believe that a large table and its indexes hold nothing."""
    fill(place, of)
    place.ask(f"delete from {of.name}")
    place.ask(f"vacuum (analyze, truncate off) {of.name}")
    fill(place, of)


STATISTICS = (when_empty, with_other_imports, when_emptied)


def fill(place: Place, of: Dataset) -> None:
    place.ask(
        f"insert into {of.name} (id, town, edition, _digest, _import, _created_at, "
        "_updated_at) select n, (%s::text[])[1 + n %% 3], 1, '\\x00', 1, now(), now() "
        "from generate_series(1, %s::int) as n",
        [*TOWNS],
        ROWS,
    )


@pytest.fixture(scope="module")
def place(postgres_url: str) -> Iterator[Place]:
    """Create a database of its own, whose statistics nobody else makes."""
    name = f"penstock_test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"create database {name} template template0".encode())
        yield Place(urlsplit(postgres_url)._replace(path=f"/{name}").geturl(), "stale")
        server.execute(f"drop database {name} with (force)".encode())


@pytest.fixture(scope="module")
def opened_here(place: Place) -> Iterator[tuple[Stores, PostgresDatabase]]:
    with opened(place, most_connections=1) as both:
        both[0].schema.migrate()
        yield both


@pytest.fixture
def stores(opened_here: tuple[Stores, PostgresDatabase]) -> Stores:
    return opened_here[0]


@pytest.fixture
def database(opened_here: tuple[Stores, PostgresDatabase]) -> PostgresDatabase:
    return opened_here[1]


@pytest.fixture(params=KINDS)
def of(request: pytest.FixtureRequest, stores: Stores, database, place) -> Dataset:
    """Create an empty table with its indexes, which nobody analyses but the test."""
    found = dataset(
        f"shops_{uuid.uuid4().hex[:8]}",
        fields=(
            int_field("id", required=True),
            text_field("town", required=True),
            int_field("edition"),
            text_field("note", local=True),
        ),
        filter=("edition", "town"),
        **KINDS[request.param],
    )
    stores.schema.ensure_table(found)
    tables: set[str] = {found.name}
    if found.partition is not None:
        with database.connections.one() as connection:
            first = [record(n, town, 1, of=found) for n, town in enumerate(TOWNS)]
            ensure_partitions(connection, found, ColumnarRecords.of(first))
            tables = stored_partitions(connection, found.name)
    for name, index in database.table(found).indexes.items():
        place.ask(f'create index if not exists "{name}" on {index}')
    for table in tables:
        place.ask(f'alter table "{table}" set (autovacuum_enabled = off)')
    return found


def shops(of: Dataset, edition: int, *, new: int = 10) -> list[Record]:
    """Return rows from all over the table, and some that it does not have."""
    numbers = range(STEP // 2, ROWS + new * STEP, STEP)
    return [record(n, TOWNS[n % 3], edition + n % 2, of=of) for n in numbers]


def key_of(of: Dataset, number: int) -> Key:
    values = {"id": number, "town": TOWNS[number % 3]}
    return tuple(values[name] for name in of.key)


def bad_rows(of: Dataset, numbers: range) -> list[Rejection]:
    return [
        replace(
            rejection(at, key=key_of(of, number)),
            place=FilePosition(line=at, offset=at),
        )
        for at, number in enumerate(numbers)
    ]


def page(of: Dataset, rank: int, records: Sequence[Record], **result: Any) -> Batch:
    return replace(batch(*records, **result), rank=rank if of.is_ranked else 0)


def set_plan_mode(database: PostgresDatabase, mode: str) -> None:
    with database.connections.one() as connection:
        connection.execute(f"set plan_cache_mode = {mode}".encode())


def list_all(
    changes: Sequence[Write | Removal], _: Mapping[Key, LockedRow]
) -> Sequence[Write | Removal]:
    return changes


def check_work(messages: list[str]) -> None:
    """Check how many rows each step of each statement handled, and what it read."""
    explained = [each.partition("plan:")[2] for each in messages]
    plans = [json.loads(each) for each in explained if each]
    assert plans
    for each in plans:
        whole = each["Plan"]
        for node in nodes(whole):
            handled = node["Actual Rows"] + sum(
                count for name, count in node.items() if name.startswith("Rows Removed")
            )
            assert handled * node["Actual Loops"] <= 8 * PAGE, each
        assert whole["Shared Hit Blocks"] + whole["Shared Read Blocks"] < 100 * PAGE


@pytest.mark.parametrize("analyse", STATISTICS)
def test_a_page_handles_its_own_rows_only(
    stores: Stores,
    database: PostgresDatabase,
    place: Place,
    of: Dataset,
    analyse: Callable[[Place, Dataset], None],
):
    analyse(place, of)
    import_id = plan(stores, of)
    # most rows are of this import already, as they are in its second half
    ranked = ", _rank = 1" if of.is_ranked else ""
    place.ask(f"update {of.name} set _import = {import_id}{ranked} where id % 9 > 0")
    messages = explained(database)
    lease = claim(stores, of)

    bad = bad_rows(of, range(1, PAGE))
    # for just these values, as most pages are, and for any
    for rank, mode in ((2, "force_custom_plan"), (6, "force_generic_plan")):
        set_plan_mode(database, mode)
        changed, more = shops(of, rank), shops(of, rank + 2)
        for each in (
            page(of, rank, changed),
            page(of, rank + 1, changed),
            page(of, rank + 2, more),
            page(of, rank + 3, more, rejections=bad),
        ):
            lease, _ = stores.ledger.commit_page(of, lease, each)

    counts = stores.imports.get(import_id)[0].counts
    assert counts.inserted == 10
    assert counts.quarantined == 2 * (PAGE - 1)
    check_work(messages)


@pytest.mark.parametrize("of", ["records", "parts of records"], indirect=True)
def test_a_known_page_handles_its_own_rows_only(
    stores: Stores,
    database: PostgresDatabase,
    place: Place,
    of: Dataset,
):
    when_emptied(place, of)
    plan(stores, of)
    found = [record(n, TOWNS[n % 3], 5, of=of) for n in range(1_000, 1_000 + PAGE)]
    lease, _ = stores.ledger.commit_page(of, claim(stores, of), known_page(*found))
    messages = explained(database)

    assert repeated(stores, lease, of=of) is not None

    check_work(messages)


@pytest.mark.parametrize("of", ["files", "partitions", "two fields"], indirect=True)
def test_a_change_by_a_client_handles_its_own_rows_only(place: Place, of: Dataset):
    when_emptied(place, of)
    with opened(place, most_connections=1, manner=CLIENT_SESSION) as (_, database):
        messages = explained(database)
        edits = build_api_stores(database).edits
        keys = [each.key for each in shops(of, 1)]
        for edition, mode in ((2, "force_custom_plan"), (3, "force_generic_plan")):
            set_plan_mode(database, mode)
            writes = [Write(each, {"note": "ours"}) for each in shops(of, edition)]
            edits.change(of, keys, partial(list_all, writes))
        removed = edits.change(of, keys, partial(list_all, [*map(Removal, keys)]))

    assert removed.deleted == PAGE + 10
    check_work(messages)


@pytest.mark.parametrize("of", ["files", "partitions", "two fields"], indirect=True)
def test_bad_rows_are_settled_by_their_own_rows_only(
    database: PostgresDatabase,
    stores: Stores,
    place: Place,
    of: Dataset,
):
    when_emptied(place, of)
    place.ask("truncate penstock_quarantine")
    plan(stores, of)
    lease = claim(stores, of)
    bad = bad_rows(of, range(1, PAGE + 1))
    stores.ledger.commit_page(of, lease, page(of, 1, [], rejections=bad))
    place.ask(
        f"update {of.name} set _import = {lease.import_id}, _rank = 1000 "
        "where id % 2 = 0"
    )
    messages = explained(database)

    database.write(
        lambda each: each.table(of).supersede_rejections(job=lease.job, start=1),
        slow=True,
    )

    settled = place.ask(
        "select count(*) from penstock_quarantine "
        f"where job_id = {lease.job} and resolved = 'superseded'"
    )
    assert settled == [(PAGE // 2,)]
    check_work(messages)
