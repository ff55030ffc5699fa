"""An audit reads each job and each page once, by any plan."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.adapters.postgres.database import PostgresDatabase
from penstock.ports import Stores
from tests.support.builders import dataset, plan
from tests.support.postgres import Place, opened

POI = dataset()
IMPORTS, JOBS, AT_ONCE = 3, 2_000, 1_000


@pytest.fixture
def ledger(postgres_database: str) -> Iterator[tuple[Stores, PostgresDatabase]]:
    """Fill a ledger that the planner has never looked at."""
    place = Place(postgres_database, "penstock")
    with opened(place, most_connections=1) as (stores, database):
        stores.schema.migrate()
        for table in ("penstock_job", "penstock_page"):
            place.ask(f"alter table {table} set (autovacuum_enabled = off)")
        for number in range(IMPORTS):
            plan(stores, dataset(f"poi_{number}"), "first")
        place.ask(
            "insert into penstock_job (import_id, dataset, shard_key, status, fence, "
            "page_seq, run_at, created_at) select import, 'poi', 'shard ' || n, "
            "'done', 1, 1, now(), now() "
            f"from generate_series(1, {JOBS}) as n, "
            f"generate_series(1, {IMPORTS}) as import"
        )
        place.ask(
            "insert into penstock_page (job_id, page_seq, fence, seen, committed_at) "
            "select id, 1, 1, 0, now() from penstock_job where page_seq = 1"
        )
        yield stores, database


def handled_rows(plan: dict[str, Any]) -> int:
    """Add up the rows that every step of a plan has handled, also those it dropped."""
    dropped = plan.get("Rows Removed by Filter", 0)
    dropped += plan.get("Rows Removed by Join Filter", 0)
    own = (plan["Actual Rows"] + dropped) * plan["Actual Loops"]
    return int(own) + sum(map(handled_rows, plan.get("Plans", ())))


def explained(
    database: PostgresDatabase, name: str, jobs: str, *, limit: int = 10_000
) -> dict[str, Any]:
    """Run a statement by the plan that a server makes for any values at all.

    So it does once a statement was asked a few times.
    """
    numbered = {"jobs": "$1", "job": "$2", "page": "$3", "limit": "$4"}
    statement = database._statements[name] % numbered
    with database.connections.one() as connection:
        connection.execute("set plan_cache_mode = force_generic_plan")
        types = "(text, bigint, bigint, bigint)"
        connection.execute(f"prepare audit {types} as {statement}".encode())
        row = connection.execute(
            f"explain (analyze, format json) execute audit ('{jobs}', 0, 0, {limit})"
        ).fetchone()
    assert row is not None
    found: dict[str, Any] = row["QUERY PLAN"][0]["Plan"]
    return found


@pytest.mark.parametrize("name", ["job_pages", "get_jobs"])
def test_many_jobs_and_their_pages_are_read_once_each(
    ledger: tuple[Stores, PostgresDatabase], name: str
):
    stores, database = ledger
    newest = stores.imports.recent(limit=1)[0][0]
    jobs = next(stores.jobs.of_import(newest.id))

    ids = json.dumps([job.id for job in jobs])
    found = explained(database, name, ids)

    assert len(jobs) == AT_ONCE
    assert found["Actual Rows"] >= AT_ONCE - 1
    assert handled_rows(found) < 10 * AT_ONCE


def test_reading_ends_with_the_last_page_that_is_wanted(
    ledger: tuple[Stores, PostgresDatabase], postgres_database: str
):
    stores, database = ledger
    newest = stores.imports.recent(limit=1)[0][0]
    jobs = [job.id for job in next(stores.jobs.of_import(newest.id))[1:51]]
    Place(postgres_database, "penstock").ask(
        "insert into penstock_page (job_id, page_seq, fence, seen, committed_at) "
        "select id, n, 1, 0, now() from penstock_job, generate_series(2, 400) as n "
        "where id = any (%s)",
        jobs,
    )

    found = explained(database, "job_pages", json.dumps(jobs), limit=500)

    assert found["Actual Rows"] == 500
    assert handled_rows(found) < 10 * 500
