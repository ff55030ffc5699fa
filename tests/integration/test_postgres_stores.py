"""PostgreSQL keeps every promise of the stores, and those that only it can make."""

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest

from penstock.adapters.postgres.bell import ListeningBell
from penstock.adapters.postgres.database import Database
from penstock.adapters.postgres.schema import PostgresSchema
from penstock.adapters.sql.stores import stores_of
from penstock.ports import Stores
from tests.builders import LEASE, NOON
from tests.contracts.budgets import BudgetsContract
from tests.contracts.imports import ImportsContract
from tests.contracts.jobs import JobsContract
from tests.contracts.ledger import LedgerContract
from tests.contracts.records import RecordsContract
from tests.contracts.schema import SchemaContract


@pytest.fixture
def schema(postgres_url: str) -> Iterator[str]:
    """Name a schema of this test alone, with a clock beside it that stands still."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"create table public.clock_{name} (at timestamptz)")
        server.execute(f"insert into public.clock_{name} values (%s)", (NOON,))
        yield name
        server.execute(f"drop table public.clock_{name}")
        server.execute(f"drop schema if exists {name} cascade")


@pytest.fixture
def pass_time(postgres_url: str, schema: str) -> Callable[[timedelta], None]:
    def go_on(span: timedelta) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as server:
            server.execute(f"update public.clock_{schema} set at = at + %s", (span,))

    return go_on


@pytest.fixture
def database(postgres_url: str, schema: str) -> Iterator[Database]:
    opened = Database(
        postgres_url,
        place="the test server",
        schema=schema,
        clock=f"(select at from public.clock_{schema})",
    )
    yield opened
    opened.close()


@pytest.fixture
def bare_stores(database: Database, schema: str) -> Iterator[Stores]:
    bell = ListeningBell(database.connections.open_one, schema=schema)
    yield stores_of(
        database, schema=PostgresSchema(database), lease=LEASE, bell=bell
    )
    bell.close()


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


class TestPostgresBudgets(BudgetsContract):
    pass


class TestPostgresRecords(RecordsContract):
    pass
