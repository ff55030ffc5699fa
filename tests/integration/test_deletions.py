"""However many rows are deleted, lists and searches of the others cost the same."""

import json
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from penstock.adapters.postgres.connection_pool import CLIENT_SESSION
from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlstore.stores import build_api_stores
from tests.contracts.deletions import DeletionsContract, Observed
from tests.support.builders import sqlite_stores
from tests.support.postgres import explained, nodes, opened, own_schema
from tests.support.workshop import wait_until


class TestSqliteDeletions(DeletionsContract):
    @pytest.fixture(scope="class")
    @classmethod
    def observed(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
        database = SqliteDatabase(tmp_path_factory.mktemp("deletions") / "penstock.db")
        stores = sqlite_stores(database)
        stores.schema.migrate()

        def work(of: Callable[[], object]) -> int:
            """Count the steps that SQLite takes."""
            steps = 0

            def count() -> int:
                nonlocal steps
                steps += 1
                return 0

            database.read(lambda read: read.connection.set_progress_handler(count, 10))
            of()
            database.read(lambda read: read.connection.set_progress_handler(None, 0))
            return steps

        yield Observed(stores, stores.records, build_api_stores(database), work)
        database.close()


class TestPostgresDeletions(DeletionsContract):
    @pytest.fixture(scope="class")
    @classmethod
    def observed(cls, postgres_url: str) -> Iterator[Observed]:
        with (
            own_schema(postgres_url) as place,
            opened(place) as (stores, _),
            # as clients ask, by whatever plan the server thinks best
            opened(place, manner=CLIENT_SESSION, most_connections=1) as (
                same,
                database,
            ),
        ):
            stores.schema.migrate()
            result = explained(database)

            def work(of: Callable[[], object]) -> int:
                """Count the rows that were read of datasets."""
                result.clear()
                of()
                plans = [text.partition("plan:")[2] for text in result]
                return sum(map(touched, filter(None, plans)))

            def settle() -> None:
                """Wait for transactions of other tests that are older than an index.

                Rows that were updated before it was built may be missing in it for
                them, so the server plans without it while any of them runs.
                """
                with database.connections.one() as connection:
                    number = connection.execute(
                        "select pg_current_xact_id()::text as number"
                    ).fetchone()
                    wait_until(
                        lambda: (
                            connection.execute(
                                "select pg_snapshot_xmin(pg_current_snapshot()) "
                                "> %(number)s::xid8 as is_oldest",
                                number,
                            ).fetchone()
                            == {"is_oldest": True}
                        )
                    )

            served = build_api_stores(database)
            yield Observed(stores, same.records, served, work, settle)


class TestPostgresPartitionDeletions(TestPostgresDeletions):
    declared: ClassVar[dict[str, Any]] = {"partition": "points"}


def touched(plan: str) -> int:
    read = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    return sum(
        node.get("Actual Loops", 0) * sum(node.get(each, 0) for each in read)
        for node in nodes(json.loads(plan)["Plan"])
        if node.get("Relation Name", "").startswith(("few", "deep"))
    )
