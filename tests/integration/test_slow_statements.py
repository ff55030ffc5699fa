"""A statement that takes long is reported by its name, never with its values."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from penstock.adapters.postgres.database import PostgresDatabase
from penstock.adapters.postgres.schema import PostgresSchema
from penstock.adapters.sqlite.database import SqliteDatabase
from tests.support.postgres import Place, own_schema

# a second is slow
NAP = 1.05
Reported = list[tuple[str, timedelta]]


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
