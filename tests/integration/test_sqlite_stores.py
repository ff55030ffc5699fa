"""SQLite keeps every promise of the stores, and a few that only it can make."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlite.table_sql import LIVE_INDEX_THRESHOLD
from penstock.adapters.sqlstore.stores import build_api_stores
from penstock.domain.dataset import FieldType, Missing, WhenMissing
from penstock.domain.hooks import Subscribers
from penstock.domain.jobs import Mode
from penstock.errors import LeaseLost, Misconfigured, StoreRefused, StoreUnavailable
from penstock.ports import Stores
from penstock.ports.record_access import ApiStores
from tests.contracts.actions import ActionsContract
from tests.contracts.archive import ArchiveContract
from tests.contracts.budgets import BudgetsContract
from tests.contracts.claims import ClaimsContract
from tests.contracts.coverage import CoverageContract
from tests.contracts.datasets import DatasetsContract
from tests.contracts.file_rejections import FileRejectionsContract
from tests.contracts.hooks import SUBSCRIBERS, HooksContract, Open
from tests.contracts.idempotency import RequestsContract
from tests.contracts.imports import ImportsContract
from tests.contracts.jobs import JobsContract
from tests.contracts.ledger import LedgerContract
from tests.contracts.maintenance import MaintenanceContract
from tests.contracts.outbox import OutboxContract
from tests.contracts.plans import PlansContract
from tests.contracts.record_access import ServingContract
from tests.contracts.records import RecordsContract
from tests.contracts.refused_rows import RefusedRowsContract
from tests.contracts.retention import RetentionContract
from tests.contracts.rollups import RollupsContract
from tests.contracts.schedules import SchedulesContract
from tests.contracts.schema import Ask, SchemaContract
from tests.contracts.search import SearchContract
from tests.contracts.workers import WorkersContract
from tests.support.builders import (
    A_MOMENT,
    BEN,
    LEASE,
    SECOND,
    Clock,
    batch,
    budget,
    claim,
    claim_any,
    dataset,
    last,
    open_sqlite,
    per_second,
    plan,
    record,
    rejection,
    run,
    sqlite_stores,
    typed_field,
)

POI = dataset()
MARKED = dataset(missing=Missing(do=WhenMissing.MARK, max_drop=1))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pass_time(clock: Clock) -> Callable[[timedelta], None]:
    return clock.pass_time


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


@pytest.fixture
def bare_stores(path: Path, clock: Clock) -> Iterator[Stores]:
    database = SqliteDatabase(path, clock=clock)
    yield sqlite_stores(database)
    database.close()


@pytest.fixture
def ask(path: Path) -> Ask:
    def run_statement(statement: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()

    return run_statement


@pytest.fixture
def stores(bare_stores: Stores) -> Stores:
    bare_stores.schema.migrate()
    return bare_stores


class TestSqliteSchema(SchemaContract):
    pass


class TestSqliteImports(ImportsContract):
    pass


class TestSqliteLedger(LedgerContract):
    pass


class TestSqliteJobs(JobsContract):
    pass


class TestSqliteWorkers(WorkersContract): ...


class TestSqliteMaintenance(MaintenanceContract): ...


class TestSqliteClaims(ClaimsContract): ...


class TestSqliteRollups(RollupsContract): ...


class TestSqliteOutbox(OutboxContract): ...


class TestSqlitePlans(PlansContract): ...


class TestSqliteActions(ActionsContract): ...


class TestSqliteHooks(HooksContract):
    @pytest.fixture
    def open_stores(self, path: Path, clock: Clock) -> Open:
        @contextmanager
        def open_with(subscribers: Subscribers) -> Iterator[Stores]:
            with closing(SqliteDatabase(path, clock=clock)) as database:
                yield sqlite_stores(database, subscribers=subscribers)

        return open_with

    @pytest.fixture
    def stores(self, open_stores: Open) -> Iterator[Stores]:
        with open_stores(SUBSCRIBERS) as stores:
            stores.schema.migrate()
            yield stores


class TestSqliteSchedules(SchedulesContract): ...


class TestSqliteRetention(RetentionContract): ...


class TestSqliteArchive(ArchiveContract): ...


class TestSqliteCoverage(CoverageContract): ...


class TestSqliteBudgets(BudgetsContract):
    pass


class TestSqliteRecords(RecordsContract):
    pass


class TestSqliteRequests(RequestsContract):
    pass


@pytest.fixture
def served(path: Path, clock: Clock) -> Iterator[ApiStores]:
    database = SqliteDatabase(path, clock=clock)
    yield build_api_stores(database)
    database.close()


class TestSqliteServing(ServingContract):
    remove_changes = "delete from penstock_change where seq <= {}"


class TestSqliteSearch(SearchContract):
    pass


class TestSqliteFileRejections(FileRejectionsContract):
    pass


def changes(path: Path, name: str = "poi") -> list[tuple[int, str, object]]:
    """Read the change events, which no port shows yet."""
    connection = sqlite3.connect(path)
    found = connection.execute(
        "select seq, kind, key from penstock_change where dataset = ? order by seq",
        (name,),
    ).fetchall()
    connection.close()
    return [(seq, kind, json.loads(key)) for seq, kind, key in found]


class TestChangeEvents:
    def test_each_change_is_an_event_in_the_order_of_commits(
        self, stores: Stores, path
    ):
        run(
            stores,
            POI,
            batch(record(2), record(1)),
            last(record(2, "changed"), record(3), record(1)),
        )

        assert [change[1:] for change in changes(path)] == [
            ("created", [2]),
            ("created", [1]),
            ("created", [3]),
            ("updated", [2]),
        ]

    def test_the_sequence_has_no_gaps(self, stores: Stores, path, pass_time):
        plan(stores, POI, "a", "b")
        stale = claim(stores, POI)
        lease = claim(stores, POI, BEN)
        stores.ledger.commit_page(POI, lease, batch(record(1)))
        pass_time(LEASE + A_MOMENT)
        claim(stores, POI)
        with pytest.raises(LeaseLost):
            stores.ledger.commit_page(POI, stale, batch(record(2)))
        again = [rejection(0), rejection(0)]
        lease = claim(stores, POI)
        with pytest.raises(StoreRefused):
            stores.ledger.commit_page(POI, lease, batch(record(3), rejections=again))
        stores.ledger.commit_page(POI, lease, batch(record(4), record(5)))

        assert changes(path) == [
            (1, "created", [1]),
            (2, "created", [4]),
            (3, "created", [5]),
        ]

    def test_deletion_and_return_are_events(self, stores: Stores, path):
        run(stores, MARKED, last(record(1), record(2)))
        run(stores, MARKED, last(record(1)))
        run(stores, MARKED, last(record(1), record(2)))

        assert [change[1:] for change in changes(path)][2:] == [
            ("deleted", [2]),
            ("created", [2]),
        ]

    def test_an_unchanged_page_is_no_event(self, stores: Stores, path):
        run(stores, POI, last(record(1)))
        run(stores, POI, last(record(1)))

        assert len(changes(path)) == 1

    def test_a_replayed_row_is_an_event(self, stores: Stores, path):
        run(stores, POI, last(rejections=[rejection(key=[1])]))
        (bad,) = stores.records.quarantine(POI, after=0, limit=9)

        stores.records.replay(POI, [(bad, record(1))])

        assert changes(path) == [(1, "created", [1])]

    def test_each_dataset_has_its_own_sequence(self, stores: Stores, path):
        shops = dataset("shops")
        run(stores, POI, last(record(1)))
        run(stores, shops, last(record(7)))

        assert changes(path) == [(1, "created", [1])]
        assert changes(path, "shops") == [(1, "created", [7])]


class TestTheFile:
    @pytest.mark.parametrize("key", ["id", "price"])
    def test_other_programs_read_decimals_as_text(
        self, stores: Stores, ask: Ask, key: str
    ):
        of = dataset(
            "prices",
            fields=(
                typed_field("id", FieldType.INT),
                typed_field("price", FieldType.DECIMAL),
            ),
            key=(key,),
            filter=("price",),
        )
        numbers = [*map(Decimal, ("10", "9.50"))]
        run(
            stores,
            of,
            last(*(record(n, each, of=of) for n, each in enumerate(numbers))),
        )
        view = "select price from prices_live"

        assert ask(f"{view} where price = '9.50'") == [("9.50",)]
        assert ask(f"{view} order by cast(price as real)") == [("9.50",), ("10",)]

    def test_a_newer_schema_is_refused(self, stores: Stores, path):
        connection = sqlite3.connect(path)
        connection.execute("pragma user_version = 99")
        connection.close()

        with pytest.raises(Misconfigured, match="has version 99"):
            stores.schema.migrate()

    def test_a_folder_that_does_not_exist_is_reported(self, tmp_path):
        nowhere = open_sqlite(tmp_path / "no" / "penstock.db")

        with pytest.raises(Misconfigured, match="folder"):
            nowhere.schema.migrate()

    def test_a_file_that_is_no_database_is_reported(self, tmp_path):
        path = tmp_path / "penstock.db"
        path.write_text("id,title\n" * 1000)

        with pytest.raises(Misconfigured, match="another file"):
            open_sqlite(path).schema.migrate()

    def test_a_file_that_others_hold_is_unavailable(self, stores: Stores, path, clock):
        hurried = sqlite_stores(
            SqliteDatabase(path, busy=timedelta(milliseconds=20), clock=clock)
        )
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("begin immediate")

        with pytest.raises(StoreUnavailable, match="locked"):
            hurried.budgets.take(budget(per_second(1)), longest=SECOND)

        holder.execute("rollback")
        holder.close()
        assert hurried.budgets.take(budget(per_second(1)), longest=SECOND).slot

    def test_readers_do_not_wait_for_a_writer(self, stores: Stores, path):
        run(stores, POI, last(record(1)))
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("begin immediate")

        assert stores.records.count(POI) == 1
        assert claim_any(stores, {"poi": "d1"}) is None

        holder.execute("rollback")
        holder.close()

    def test_everything_is_there_after_reopening(self, stores: Stores, path, clock):
        plan(stores, POI, mode=Mode.DELTA)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), batch(record(1), cursor="c1")
        )

        again = sqlite_stores(SqliteDatabase(path, clock=clock))

        assert list(again.records.rows(POI)) == [(1, "title 1")]
        assert again.jobs.get(lease.job).cursor == "c1"
        again.ledger.commit_page(POI, lease, last(record(2)))

    def test_its_own_clock_is_that_of_the_world(self, tmp_path, clock):
        real = open_sqlite(tmp_path / "penstock.db")
        real.schema.migrate()
        import_id = plan(real, POI)

        begun, _ = real.imports.get(import_id)

        assert begun.created_at > clock.now.replace(year=2025)
        assert replace(begun).until == begun.created_at


class TestSqliteRefusedRows(RefusedRowsContract):
    pass


class TestIndexes:
    def test_those_of_all_rows_are_replaced_by_those_of_live_ones(
        self, stores: Stores, path
    ):
        """As a table has them that an earlier version has filled."""
        of = dataset(filter=("title",))
        run(stores, of, last(record(1)))
        with sqlite3.connect(path) as behind:
            behind.execute('drop index "penstock:poi:title"')
            behind.execute('drop index "penstock:poi::deleted"')
            behind.execute('create index "penstock:poi:title" on poi ("title")')
        behind.close()

        assert list(stores.schema.ensure_table(of)) == [
            "build index penstock:poi::deleted",
            "build index penstock:poi:title",
        ]
        assert list(stores.schema.pending_table_changes(of)) == []

    @pytest.mark.parametrize(
        "deleted", [LIVE_INDEX_THRESHOLD - 1, LIVE_INDEX_THRESHOLD]
    )
    def test_where_many_rows_are_deleted_the_others_get_one(
        self, stores: Stores, deleted
    ):
        run(
            stores,
            MARKED,
            last(*(record(number) for number in range(LIVE_INDEX_THRESHOLD + 10))),
        )
        rest = range(deleted, LIVE_INDEX_THRESHOLD + 10)
        run(stores, MARKED, last(*(record(number) for number in rest)))

        built = list(stores.schema.maintain(MARKED))

        live = ["build index penstock:poi::live"]
        assert built == (live if deleted == LIVE_INDEX_THRESHOLD else [])
        assert list(stores.schema.maintain(MARKED)) == []


class TestSqliteDatasets(DatasetsContract):
    pass
