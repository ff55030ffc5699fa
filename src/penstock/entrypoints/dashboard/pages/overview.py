"""The first page: what runs, what waits, and what needs attention."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset, DatasetName
from penstock.domain.jobs import Import, ImportStatus
from penstock.domain.scheduling.schedule import import_interval
from penstock.domain.waiting import WaitReason
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import (
    AnyEndpoint,
    Endpoint,
    Lane,
    ignore_params,
)
from penstock.entrypoints.api.resources.budgets import describe_budgets
from penstock.entrypoints.dashboard.rendering import View, send_page
from penstock.errors import StoreUnavailable
from penstock.ports.schedules import (
    ScheduleFilter,
    ScheduleOrder,
    ScheduleStatus,
    StoredSchedule,
)

MAX_RUNNING = 20
MAX_SCHEDULES = 100
SHOWN_SCHEDULES = 6
# a dataset counts as late when it has missed so many of its intervals
LATE_INTERVALS = 2
STOPPED = (ScheduleStatus.BROKEN, ScheduleStatus.PAUSED)


class Alert(NamedTuple):
    """What needs attention: `failed` is red, `waiting` is amber."""

    state: str
    text: str


async def show(api: AppContext, request: Request, query: None) -> Response:
    del query
    return await send_page(api, request, partial(build_overview, api))


def build_overview(api: AppContext) -> View:
    stores = api.penstock.stores
    now = stores.jobs.now()
    running = describe_running(api)
    schedules = stores.schedules.find(
        ScheduleFilter(), order=ScheduleOrder.NEXT_RUN, limit=MAX_SCHEDULES
    )
    budgets = find_budgets(api)
    workers = stores.workers.live()
    problems = {found.dataset: found for found in stores.jobs.problems()}
    datasets = [
        describe_dataset(api, dataset, schedules, now)
        for _, dataset in sorted(api.penstock.settings.datasets.items())
    ]
    for row in datasets:
        row["problems"] = problems.get(row["name"])
    values = {
        "now": now,
        "datasets": datasets,
        "running": running,
        "budgets": budgets,
        "workers": workers,
        "demand": find_demand(api),
        "schedules": [each for each in schedules if each.next_run_at][:SHOWN_SCHEDULES],
        "alerts": [*find_alerts(datasets, running, budgets, schedules)],
    }
    return View("overview.html", "Overview", "overview", values)


def describe_running(api: AppContext) -> list[dict[str, Any]]:
    """Return the unfinished imports with their progress, and what they wait for."""
    penstock = api.penstock
    recent = penstock.stores.imports.recent
    rows = []
    for status in (ImportStatus.RUNNING, ImportStatus.PLANNING):
        for import_, shards in recent(status=status, limit=MAX_RUNNING):
            document = api.progress_tracker.document_with_progress(import_.id)
            rows.append(
                {
                    "import": import_,
                    "shards": shards,
                    "progress": document["progress"],
                    "waiting": penstock.explain_waiting(import_),
                }
            )
    return rows


def describe_dataset(
    api: AppContext,
    dataset: Dataset,
    schedules: Sequence[StoredSchedule],
    now: datetime,
) -> dict[str, Any]:
    stores = api.penstock.stores
    version = api.served.reads.dataset_versions().get(dataset.name)
    newest = stores.imports.newest(dataset.name)
    proven_at = stores.fires.newest_proven([DatasetName(dataset.name)]).get(
        DatasetName(dataset.name)
    )
    mine = [each for each in schedules if each.declaration.dataset == dataset.name]
    parsed = (api.penstock.parse_schedule(each.declaration)[0] for each in mine)
    interval = import_interval([each for each in parsed if each is not None], now)
    age = None if proven_at is None else now - proven_at
    return {
        "name": dataset.name,
        "rows": None if version is None else api.row_counts.of(dataset, version),
        "newest": newest,
        "proven_at": proven_at,
        "freshness": judge_freshness(age, interval, newest),
        "next_run_at": min(
            (each.next_run_at for each in mine if each.next_run_at), default=None
        ),
    }


def judge_freshness(
    age: timedelta | None, interval: timedelta | None, newest: Import | None
) -> str:
    """Return the state of a dataset: done, waiting (late), failed or idle."""
    if newest is not None and newest.status is ImportStatus.FAILED:
        return "failed"
    if age is None:
        return "idle"
    if interval is not None and age > LATE_INTERVALS * interval:
        return "waiting"
    return "done"


def find_budgets(api: AppContext) -> Sequence[Mapping[str, Any]] | None:
    """Return the budgets; None if their store does not respond."""
    try:
        return describe_budgets(api)
    except StoreUnavailable:
        return None


def find_demand(api: AppContext) -> Sequence[Any]:
    try:
        return api.penstock.demand()
    except StoreUnavailable:
        return ()


def find_alerts(
    datasets: Sequence[Mapping[str, Any]],
    running: Sequence[Mapping[str, Any]],
    budgets: Sequence[Mapping[str, Any]] | None,
    schedules: Sequence[StoredSchedule],
) -> Iterator[Alert]:
    """Yield what an operator should look at, the worst first."""
    yield from dataset_alerts(datasets)
    yield from budget_alerts(budgets)
    for row in running:
        waiting = row["waiting"]
        if waiting is not None and waiting.reason is WaitReason.NO_WORKER:
            yield Alert("failed", f"import {row['import'].id}: {waiting.detail}")
    for schedule in schedules:
        if schedule.status in STOPPED:
            reason = schedule.note or "by an operator"
            text = f"schedule {schedule.name} is {schedule.status}: {reason}"
            yield Alert("waiting", text)
    for row in datasets:
        if row["freshness"] == "waiting":
            yield Alert("waiting", f"{row['name']} is older than its schedule allows")


def dataset_alerts(datasets: Sequence[Mapping[str, Any]]) -> Iterator[Alert]:
    for row in datasets:
        found, newest = row["problems"], row["newest"]
        if row["freshness"] == "failed":
            text = f"import {newest.id} of {row['name']} failed: {newest.note}"
            yield Alert("failed", text)
        if found is not None and found.failed_jobs:
            yield Alert("failed", f"{found.failed_jobs} jobs of {row['name']} failed")


def budget_alerts(budgets: Sequence[Mapping[str, Any]] | None) -> Iterator[Alert]:
    if budgets is None:
        yield Alert("failed", "the store of the budgets does not respond")
    for budget in budgets or ():
        if budget["state"] != "open":
            state = "failed" if budget["state"] == "stopped" else "waiting"
            text = f"budget {budget['name']} is {budget['state']}: {budget['reason']}"
            yield Alert(state, text)


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="The dashboard",
            parse=ignore_params,
            handle=show,
        )
    ]
