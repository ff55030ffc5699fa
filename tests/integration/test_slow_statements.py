"""Statements are timed by their names, never with their values; slow ones reported."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from penstock.adapters.postgres.connection_pool import ConnectionPool
from penstock.adapters.postgres.database import PostgresDatabase
from penstock.adapters.postgres.schema import PostgresSchema
from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlite.schema import SqliteSchema
from penstock.ports.database_watch import PoolUse
from tests.support.postgres import Place, own_schema
from tests.support.workshop import wait_until

# a second is slow
NAP = 1.05
Reported = list[tuple[str, timedelta]]
Observed = list[tuple[str, float]]


@pytest.fixture
def place(postgres_url: str) -> Iterator[Place]:
    with own_schema(postgres_url) as place:
        yield place


def on_postgres(
    place: Place, report: Callable[[str, timedelta], None]
) -> PostgresDatabase:
    return PostgresDatabase(
        place.url, place="the test", schema=place.schema, on_slow=report
    )


def test_a_statement_of_a_dataset_is_named_by_its_verb(place: Place):
    reported: Reported = []
    database = on_postgres(place, lambda *found: reported.append(found))

    database.read(
        lambda transaction: transaction.connection.execute(
            "select pg_sleep(%s), 'secret'", (NAP,)
        )
    )
    database.read(lambda transaction: transaction.connection.execute("select 1"))
    database.close()

    assert [name for name, _ in reported] == ["records:select"]
    assert reported[0][1] >= timedelta(seconds=1)


def test_a_named_statement_that_waits_for_a_lock_is_reported(place: Place):
    reported: Reported = []
    database = on_postgres(place, lambda *found: reported.append(found))

    PostgresSchema(database).migrate()
    with psycopg.connect(place.url) as other:
        other.execute(f"lock table {place.schema}.penstock_worker")
        threading.Timer(NAP, other.rollback).start()
        database.read(lambda transaction: transaction.all("live_workers"))
    database.close()

    assert "live_workers" in [name for name, _ in reported]


def test_a_slow_statement_of_sqlite_is_reported(tmp_path: Path):
    reported: Reported = []
    database = SqliteDatabase(
        tmp_path / "p.db", on_slow=lambda *found: reported.append(found)
    )

    def read(transaction):
        transaction.connection.create_function("nap", 1, time.sleep)
        transaction.connection.execute("select nap(?)", (NAP,))
        transaction.connection.execute("select 1")

    database.read(read)
    database.close()

    assert [name for name, _ in reported] == ["records:select"]


def test_every_statement_is_observed_by_its_name(place: Place):
    observed: Observed = []
    database = PostgresDatabase(
        place.url,
        place="the test",
        schema=place.schema,
        observe=lambda *found: observed.append(found),
    )

    PostgresSchema(database).migrate()
    observed.clear()
    database.read(lambda transaction: transaction.all("live_workers"))
    database.read(
        lambda transaction: transaction.connection.execute("select 'secret', 1")
    )
    database.read(
        lambda transaction: transaction.execute_all(
            ["live_workers", "departed_workers"]
        )
    )
    database.close()

    assert [name for name, _ in observed] == [
        "live_workers",
        "records:select",
        "live_workers+departed_workers",
    ]
    assert all(0 < seconds < NAP for _, seconds in observed)


def test_statements_of_sqlite_are_observed_by_their_names(tmp_path: Path):
    observed: Observed = []
    database = SqliteDatabase(
        tmp_path / "p.db", observe=lambda *found: observed.append(found)
    )

    SqliteSchema(database).migrate()
    observed.clear()
    database.read(lambda transaction: transaction.all("live_workers"))
    database.read(
        lambda transaction: transaction.connection.execute("select 'secret', 1")
    )
    database.close()

    assert [name for name, _ in observed] == [
        "now",
        "live_workers",
        "now",
        "records:select",
    ]


def test_a_pool_says_who_uses_it_and_who_waits(place: Place):
    database = PostgresDatabase(
        place.url, place="the test", schema=place.schema, most_connections=1
    )
    pool = database.connections

    assert pool.use() == PoolUse(size=1, in_use=0, idle=0, waiting=0, waits=0, waited=0)
    with pool.one():
        held = threading.Thread(target=borrow, args=[pool])
        held.start()
        wait_until(lambda: pool.use().waiting)
        busy = pool.use()
    held.join()
    free = pool.use()
    database.close()

    assert (busy.in_use, busy.idle, busy.waits) == (1, 0, 1)
    assert (free.in_use, free.idle, free.waiting, free.waits) == (0, 1, 0, 1)
    assert free.waited > 0


def borrow(pool: ConnectionPool) -> None:
    with pool.one():
        pass
