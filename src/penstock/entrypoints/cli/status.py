"""Show in one screen what runs, what waits and what needs attention: `status`."""

from collections.abc import Mapping
from typing import Any

from penstock.domain.jobs import ImportStatus
from penstock.domain.waiting import LiveWorker, Waiting
from penstock.entrypoints.cli.budgets import describe_budget
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    open_readonly,
    print_json,
    show_table,
)
from penstock.entrypoints.cli.schedules import (
    NO_SCHEDULES,
    list_important,
    schedule_row,
)
from penstock.entrypoints.import_report import report
from penstock.entrypoints.waiting_text import describe_waiting
from penstock.entrypoints.worker_documents import scaling_document, worker_document
from penstock.errors import StoreUnavailable
from penstock.ports.hooks import HOOK
from penstock.ports.maintenance import TaskState
from penstock.ports.outbox import DestinationState
from penstock.wiring import Container

# unfinished imports that are shown of each status
MAX_IMPORTS = 50
# schedules, those that need attention first
MAX_SCHEDULES = 50

Row = Mapping[str, object]
# the columns of a budget whose store does not respond
UNKNOWN_BUDGET: Row = {
    "name": None,
    "state": "unknown",
    "rate": None,
    "remaining": None,
    "taken": None,
    "closed_seconds": None,
    "reason": None,
}


def status(config: Config = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Show imports and what they wait for, workers, budgets, schedules and upkeep."""
    with open_readonly(config, is_prepared=False) as penstock:
        imports, import_rows = describe_imports(penstock)
        workers = penstock.stores.workers.live()
        budgets = describe_budgets(penstock)
        tasks = penstock.stores.maintenance.tasks()
        schedules = list_important(penstock, limit=MAX_SCHEDULES)
        demand = describe_demand(penstock)
        hooks = describe_hooks(penstock)
        problems = [found._asdict() for found in penstock.stores.jobs.problems()]
    if as_json:
        print_json(
            {
                "imports": imports,
                "workers": [*map(worker_document, workers)],
                "scaling": demand,
                "budgets": budgets,
                "schedules": schedules,
                "maintenance": [*map(describe_task, tasks)],
                "hooks": hooks,
                "problems": problems,
            }
        )
        return
    show_table("imports", import_rows, empty="No import is running.")
    show_table(
        "workers",
        [*map(worker_row, workers)],
        empty="No worker is running. Start one with: penstock worker",
    )
    show_table("demand", demand_rows(demand), empty="No job waits for a worker.")
    show_table("budgets", budgets, empty="No budget is declared.")
    show_table(
        "schedules",
        [*map(schedule_row, schedules)],
        empty=NO_SCHEDULES,
    )
    show_table(
        "maintenance",
        [*map(task_row, tasks)],
        empty="No maintenance has run yet; worker, run and serve carry it.",
    )
    if hooks:
        show_table("hooks", hooks, empty="")
    show_table("problems", problems, empty="There are no failed jobs and no bad rows.")


def describe_imports(penstock: Container) -> tuple[list[Row], list[Row]]:
    """Return the unfinished imports as documents, and as rows of a table."""
    documents: list[Row] = []
    rows: list[Row] = []
    for state in (ImportStatus.RUNNING, ImportStatus.PLANNING):
        recent = penstock.stores.imports.recent
        for import_, shards in recent(status=state, limit=MAX_IMPORTS):
            waiting = penstock.explain_waiting(import_)
            documents.append(report(import_, shards, waiting))
            rows.append(
                {
                    "id": import_.id,
                    "dataset": import_.dataset,
                    "mode": import_.mode.value,
                    "status": import_.status.value,
                    "shards": f"{shards.done + shards.split}/{shards.total}",
                    "pages": import_.counts.pages,
                    "created": import_.created_at,
                    "waits for": waiting_text(waiting),
                }
            )
    return documents, rows


def waiting_text(waiting: Waiting | None) -> str | None:
    return None if waiting is None else describe_waiting(waiting)


def worker_row(worker: LiveWorker) -> Row:
    jobs = f"{worker.jobs}/{worker.threads or '?'}"
    return {
        "id": worker.id,
        "region": worker.region,
        "jobs": jobs,
        "started": worker.started_at,
        "last_claim": worker.last_claim_at,
        "datasets": ", ".join(worker.declarations),
    }


def describe_demand(penstock: Container) -> dict[str, Any] | None:
    """Return what workers are needed for; None if the budgets' store is away."""
    try:
        return scaling_document(penstock.demand())
    except StoreUnavailable:
        return None


def demand_rows(demand: dict[str, Any] | None) -> list[Row]:
    """Return a row a region; more workers than are useful would wait for a budget."""
    return [] if demand is None else demand["regions"]


def describe_budgets(penstock: Container) -> list[Row]:
    """Return the budgets, as unknown those whose store does not respond."""
    rows: list[Row] = []
    for budget in penstock.budgets.values():
        try:
            rows.append(describe_budget(penstock.stores.budgets.state(budget)))
        except StoreUnavailable as error:
            rows.append({**UNKNOWN_BUDGET, "name": budget.name, "reason": str(error)})
    return rows


def describe_hooks(penstock: Container) -> list[Row]:
    """Return what each hook has not confirmed; given up: in the last day."""
    states = {
        state.destination: state for state in penstock.stores.outbox.destinations(HOOK)
    }
    rows: list[Row] = []
    for name in sorted({*states, *penstock.settings.hooks}):
        state = states.get(name) or DestinationState(destination=name)
        rows.append(
            {
                "name": name,
                "waiting": state.waiting,
                "given_up": state.given_up,
                "error": state.error,
            }
        )
    return rows


def describe_task(task: TaskState) -> Row:
    return {
        "name": task.name,
        "kind": task.kind,
        "owner": task.owner,
        "last_run_at": task.last_run_at,
        "seconds": seconds_of(task),
        "due_at": task.due_at,
        "error": task.error,
        "failed_at": task.failed_at,
        "progress": dict(task.progress.counts),
    }


def task_row(task: TaskState) -> Row:
    if task.owner is not None:
        state = "running"
    elif task.due_at is None:
        state = "done"
    else:
        state = "waits"
    return {
        "name": task.name,
        "state": state,
        "last_run": task.last_run_at,
        "seconds": seconds_of(task),
        "progress": dict(task.progress.counts) or None,
        "last_failure": task.failed_at,
        "last_error": task.error,
    }


def seconds_of(task: TaskState) -> float | None:
    return None if task.took is None else round(task.took.total_seconds(), 3)
