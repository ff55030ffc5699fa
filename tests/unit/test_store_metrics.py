"""What the gauges of the stores say about maintenance."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.telemetry.store_metrics import StoreFacts, StoreMetrics
from penstock.domain.jobs import WorkerId
from penstock.ports import Stores
from penstock.ports.maintenance import TaskName
from tests.support.builders import HOUR, MINUTE, NOON, Clock, sqlite_stores

OWNER = WorkerId("host:1")
OVERDUE = "penstock_maintenance_overdue_seconds"
FAILING = "penstock_maintenance_failing_tasks"


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
def stores(tmp_path: Path, clock: Clock) -> Iterator[Stores]:
    database = SqliteDatabase(tmp_path / "penstock.db", clock=clock)
    found = sqlite_stores(database)
    found.schema.migrate()
    yield found
    database.close()


def run_task(
    stores: Stores, name: str, *, due_in: timedelta = MINUTE, error: str | None = None
) -> None:
    stores.maintenance.waits([TaskName(name)])
    claim = stores.maintenance.claim(TaskName(name), owner=OWNER, lasting=HOUR)
    assert claim is not None
    assert stores.maintenance.finish(claim, due_in=due_in, error=error)


def gauges(stores: Stores, tmp_path: Path) -> dict[tuple[str, ...], float]:
    facts = StoreFacts(
        stores=stores,
        budgets={},
        demand=list,
        explain_waiting=lambda _: None,
        parse_schedule=lambda _: None,
        # it does not exist yet
        places={"spool": tmp_path / "spool" / "files"},
    )
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in StoreMetrics(facts).collect()
        for sample in family.samples
    }


def test_the_tasks_of_a_host_that_is_gone_are_not_overdue(
    stores: Stores, clock: Clock, tmp_path: Path
):
    run_task(stores, "spool:gone:/spool", error="disk full")
    clock.pass_time(HOUR)
    run_task(stores, "spool:here:/spool")

    found = gauges(stores, tmp_path)

    assert (found[OVERDUE, "spool"], found[FAILING, "spool"]) == (0, 0)
    assert found[("penstock_store_reads_failed",)] == 0
    assert found["penstock_disk_free_bytes", "spool"] > 0

    clock.pass_time(HOUR)

    assert gauges(stores, tmp_path)[OVERDUE, "spool"] == (HOUR - MINUTE).total_seconds()


def test_a_task_that_runs_is_not_overdue(stores: Stores, clock: Clock, tmp_path: Path):
    name = TaskName("indexes:poi:3f2a")
    stores.maintenance.waits([name])
    stores.maintenance.claim(name, owner=OWNER, lasting=2 * HOUR)
    clock.pass_time(HOUR)

    assert gauges(stores, tmp_path)[OVERDUE, "indexes"] == 0


def test_a_task_fails_until_a_run_succeeds(
    stores: Stores, clock: Clock, tmp_path: Path
):
    run_task(stores, "indexes:poi:3f2a", error="disk full")
    run_task(stores, "indexes:shop:3f2a")
    assert gauges(stores, tmp_path)[FAILING, "indexes"] == 1

    clock.pass_time(MINUTE)
    run_task(stores, "indexes:poi:3f2a")

    assert gauges(stores, tmp_path)[FAILING, "indexes"] == 0
