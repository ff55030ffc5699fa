"""PostgreSQL stores in a schema of their own, by a real clock or by a still one."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql

from penstock.adapters.postgres.database import PostgresDatabase
from penstock.adapters.postgres.ledger import PostgresLedger
from penstock.adapters.postgres.notifications import ListenNotifier
from penstock.adapters.postgres.schema import PostgresSchema
from penstock.adapters.sqlstore.stores import build_stores
from penstock.domain.hooks import Subscribers
from penstock.ports import Stores
from tests.support.builders import LEASE, NOON


@dataclass(frozen=True)
class Place:
    """A schema on a server; plain, so that other processes can be told of it."""

    url: str
    schema: str

    @property
    def clock(self) -> str:
        """The expression for a time that stands still."""
        return f"(select at from public.clock_{self.schema})"

    def stop_clock(self) -> None:
        self.ask(f"create table public.clock_{self.schema} (at timestamptz)")
        self.ask(f"insert into public.clock_{self.schema} values (%s)", NOON)

    def set_clock(self, at: datetime) -> None:
        self.ask(f"update public.clock_{self.schema} set at = %s", at)

    def pass_time(self, span: timedelta) -> None:
        self.ask(f"update public.clock_{self.schema} set at = at + %s", span)

    def ask(self, statement: str, *given: object) -> list[tuple[Any, ...]]:
        """Run a statement of the test's own, behind the back of the stores."""
        with psycopg.connect(self.url, autocommit=True) as server:
            server.execute(
                sql.SQL("set search_path = {}, public").format(
                    sql.Identifier(self.schema)
                )
            )
            answer = server.execute(statement.encode(), given or None)
            return answer.fetchall() if answer.description else []


@contextmanager
def own_schema(url: str) -> Iterator[Place]:
    """Name a schema for one test, and drop all that it held."""
    place = Place(url, f"t_{uuid.uuid4().hex[:12]}")
    yield place
    place.ask(f"drop table if exists public.clock_{place.schema}")
    place.ask(f"drop schema if exists {place.schema} cascade")


@contextmanager
def opened(
    place: Place,
    *,
    lease: timedelta = LEASE,
    subscribers: Subscribers | None = None,
    **how: Any,
) -> Iterator[tuple[Stores, PostgresDatabase]]:
    """Open stores as a process would, and close them."""
    database = PostgresDatabase(
        place.url, place="the test server", schema=place.schema, **how
    )
    notifier = ListenNotifier(database.connections.open_connection, schema=place.schema)
    try:
        yield (
            build_stores(
                database,
                schema=PostgresSchema(database),
                ledger=PostgresLedger(database, lease=lease, subscribers=subscribers),
                lease=lease,
                notifier=notifier,
                subscribers=subscribers,
            ),
            database,
        )
    finally:
        notifier.close()
        database.close()


def deadlocks(place: Place) -> int:
    """Count those of a database; what a session met is told when it has ended."""
    response = place.ask(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    return int(response[0][0])


def explained(database: PostgresDatabase) -> list[str]:
    """Let the server tell the plan of each statement of the connection in use."""
    results: list[str] = []
    with database.connections.one() as connection:
        connection.execute("load 'auto_explain'")
        connection.execute("set auto_explain.log_min_duration = 0")
        connection.execute("set auto_explain.log_analyze = on")
        connection.execute("set auto_explain.log_timing = off")
        connection.execute("set auto_explain.log_buffers = on")
        connection.execute("set auto_explain.log_format = json")
        connection.execute("set client_min_messages = log")
        # it may plan a statement for good whenever it likes
        connection.execute("set plan_cache_mode = force_generic_plan")
        connection.add_notice_handler(
            lambda notice: results.append(notice.message_primary or "")
        )
    return results


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)
