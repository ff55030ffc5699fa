"""PostgreSQL keeps every promise of the stores, and those that only it can make."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from penstock.adapters.sqlstore.stores import build_api_stores
from penstock.domain.hooks import Subscribers
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
from tests.support.postgres import Place, opened, own_schema


@pytest.fixture
def place(postgres_url: str) -> Iterator[Place]:
    with own_schema(postgres_url) as place:
        place.stop_clock()
        yield place


@pytest.fixture
def pass_time(place: Place) -> Callable[[timedelta], None]:
    return place.pass_time


@pytest.fixture
def bare_stores(place: Place) -> Iterator[Stores]:
    with opened(place, clock=place.clock) as (stores, _):
        yield stores


@pytest.fixture
def ask(place: Place) -> Ask:
    return place.ask


@pytest.fixture
def stores(bare_stores: Stores) -> Stores:
    bare_stores.schema.migrate()
    return bare_stores


class TestPostgresSchema(SchemaContract):
    pass


class TestPostgresImports(ImportsContract):
    pass


class TestPostgresLedger(LedgerContract):
    pass


class TestPostgresJobs(JobsContract):
    pass


class TestPostgresWorkers(WorkersContract): ...


class TestPostgresMaintenance(MaintenanceContract): ...


class TestPostgresClaims(ClaimsContract): ...


class TestPostgresRollups(RollupsContract): ...


class TestPostgresOutbox(OutboxContract): ...


class TestPostgresPlans(PlansContract): ...


class TestPostgresActions(ActionsContract): ...


class TestPostgresHooks(HooksContract):
    @pytest.fixture
    def open_stores(self, place: Place) -> Open:
        @contextmanager
        def open_with(subscribers: Subscribers) -> Iterator[Stores]:
            with opened(place, clock=place.clock, subscribers=subscribers) as (
                stores,
                _,
            ):
                yield stores

        return open_with

    @pytest.fixture
    def stores(self, open_stores: Open) -> Iterator[Stores]:
        with open_stores(SUBSCRIBERS) as stores:
            stores.schema.migrate()
            yield stores


class TestPostgresSchedules(SchedulesContract): ...


class TestPostgresRetention(RetentionContract): ...


class TestPostgresArchive(ArchiveContract): ...


class TestPostgresCoverage(CoverageContract): ...


class TestPostgresBudgets(BudgetsContract):
    pass


class TestPostgresRecords(RecordsContract):
    pass


class TestPostgresRequests(RequestsContract):
    pass


@pytest.fixture
def served(place: Place) -> Iterator[ApiStores]:
    with opened(place, clock=place.clock) as (_, database):
        yield build_api_stores(database)


class TestPostgresServing(ServingContract):
    remove_changes = "delete from penstock_change_page where last_seq <= {}"


class TestPostgresSearch(SearchContract):
    pass


class TestPostgresFileRejections(FileRejectionsContract):
    pass


class TestPostgresRefusedRows(RefusedRowsContract):
    pass


class TestPostgresDatasets(DatasetsContract):
    pass
