"""Decide what an import is waiting for, if it makes no progress."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from penstock.domain.budget import BudgetState
from penstock.domain.jobs import Import, ImportStatus, Job, WorkerId

# shorter waits for a token are not reported
MIN_REPORTED_WAIT = timedelta(seconds=5)


class WaitReason(StrEnum):
    """What an import can wait for."""

    # its shards are being planned and stored
    PLANNING = "planning"
    # the provider throttles requests until a time
    BUDGET_CLOSED = "budget_closed"
    # the provider has denied access: an operator has to open the budget
    BUDGET_STOPPED = "budget_stopped"
    # the allowance of a period is used up
    BUDGET_USED_UP = "budget_used_up"
    # the store of the budgets does not respond
    STORE_AWAY = "store_away"
    # no worker of this dataset is running
    NO_WORKER = "no_worker"
    # a worker holds its shards, and has stopped reporting
    WORKER_LOST = "worker_lost"
    # workers are running, but none in its region
    NO_WORKER_IN_REGION = "no_worker_in_region"
    # workers are running, but all of them have another declaration of the dataset
    OTHER_DECLARATION = "other_declaration"
    # every open shard had an error, and is retried later
    RETRYING = "retrying"
    # the rows are stored; indexes are being built
    BUILDING_INDEXES = "building_indexes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What an import waits for, and since and until when, as far as known."""

    reason: WaitReason
    detail: str
    # the budget, region or import that the reason is about
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """A running worker process."""

    id: WorkerId
    region: str | None
    # dataset -> digest of its declaration in this worker
    declarations: Mapping[str, str]
    # where it runs; none: it is of an earlier version
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    threads: int | None = None
    # leases that it has now
    jobs: int = 0
    started_at: datetime
    seen_at: datetime | None = None
    last_claim_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartedWorker:
    """A worker process that has ended, or has not reported for too long."""

    id: WorkerId
    region: str | None
    declarations: Mapping[str, str]
    seen_at: datetime | None
    departed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFacts:
    """The open jobs of an import at one time of the database's clock."""

    now: datetime
    # each worker that holds leases -> when the last of them expires
    holders: Mapping[WorkerId, datetime]
    # the pending job that is due first
    next_job: Job | None

    def is_worked(self, workers: Sequence[LiveWorker]) -> bool:
        """Return whether a worker that still reports holds a lease."""
        return any(
            self.holders.get(worker.id, self.now) > self.now for worker in workers
        )

    def next_expiry(self) -> datetime | None:
        """Return when the first lease expires that has not yet expired."""
        ends = [until for until in self.holders.values() if until > self.now]
        return min(ends, default=None)


def explain_waiting(
    current: Import,
    facts: WaitingFacts,
    *,
    budget: BudgetState | None,
    workers: Sequence[LiveWorker],
    departed: Callable[[], Sequence[DepartedWorker]],
    region: str | None,
    attempts: int,
) -> Waiting | None:
    """Return what an import waits for; None if it makes progress or has ended."""
    if current.status is ImportStatus.PLANNING:
        return explain_planning(current, facts)
    if current.status is not ImportStatus.RUNNING:
        return None
    by_budget = None if budget is None else explain_budget(budget, facts.now)
    is_open = facts.holders or facts.next_job is not None
    if by_budget is not None or facts.is_worked(workers) or not is_open:
        return by_budget
    by_workers = explain_workers(current, workers, region)
    if by_workers is not None:
        since = last_departure(current, by_workers.reason, departed(), region)
        by_workers = replace(by_workers, since=since)
    lost_until = facts.next_expiry()
    if lost_until is not None:
        lost = explain_lost_worker(by_workers, lost_until)
        return replace(lost, since=lost.since or last_report(facts, departed()))
    if by_workers is not None or facts.next_job is None:
        return by_workers
    return explain_retries(facts.next_job, facts.now, attempts)


def explain_planning(current: Import, facts: WaitingFacts) -> Waiting:
    planning = Waiting(
        reason=WaitReason.PLANNING,
        detail="its shards are being planned",
        since=current.created_at,
    )
    if facts.holders:
        return planning
    plan = facts.next_job
    if plan is not None and plan.errors and plan.run_at > facts.now:
        detail = f"its shards could not be planned yet: {plan.errors[-1].message}"
        return replace(planning, detail=detail, until=plan.run_at)
    return replace(planning, detail="its shards wait for a process that plans them")


def explain_budget(state: BudgetState, now: datetime) -> Waiting | None:
    name = f"budget {state.budget.name!r}"
    if state.stopped is not None:
        return Waiting(
            reason=WaitReason.BUDGET_STOPPED,
            detail=f"{name} is stopped until an operator opens it: {state.stopped}",
            subject=state.budget.name,
            since=state.paused_at,
        )
    if state.closed_for is not None:
        return Waiting(
            reason=WaitReason.BUDGET_CLOSED,
            detail=f"{name} is closed: {state.closed_reason}",
            since=state.paused_at,
            until=next_whole_second(now + state.closed_for),
        )
    scarce = max(state.limits, key=lambda limit: limit.wait, default=None)
    if scarce is None or scarce.wait < MIN_REPORTED_WAIT:
        return None
    return Waiting(
        reason=WaitReason.BUDGET_USED_UP,
        detail=f"{name} has used up its {scarce.limit}",
        since=(now - scarce.waited).replace(microsecond=0),
        until=next_whole_second(now + scarce.wait),
    )


def next_whole_second(instant: datetime) -> datetime:
    """Round up: polls compute the same end a few milliseconds apart."""
    return instant.replace(microsecond=0) + timedelta(seconds=1)


def explain_workers(
    current: Import, workers: Sequence[LiveWorker], region: str | None
) -> Waiting | None:
    """Return why no worker would claim a due job of an import, or None."""
    of_dataset = [
        worker for worker in workers if current.dataset in worker.declarations
    ]
    if not of_dataset:
        return Waiting(
            reason=WaitReason.NO_WORKER,
            detail=f"no worker of dataset {current.dataset!r} is running",
        )
    matching = [
        worker
        for worker in of_dataset
        if worker.declarations[current.dataset] == current.declaration
    ]
    if not matching:
        return Waiting(
            reason=WaitReason.OTHER_DECLARATION,
            detail=f"import {current.id} was planned under another declaration of "
            f"{current.dataset!r} than the running workers have",
            subject=str(current.id),
        )
    if region is not None and all(
        worker.region not in {None, region} for worker in matching
    ):
        return Waiting(
            reason=WaitReason.NO_WORKER_IN_REGION,
            detail=f"no worker of region {region!r} is running",
            subject=region,
        )
    return None


def explain_lost_worker(by_workers: Waiting | None, until: datetime) -> Waiting:
    """Return that leases have to expire; and, if so, that nobody would go on then."""
    detail = "held by a worker that stopped reporting"
    if by_workers is None:
        return Waiting(reason=WaitReason.WORKER_LOST, detail=detail, until=until)
    both = f"{by_workers.detail}, and its shards are {detail}"
    return replace(by_workers, detail=both, until=until)


def last_departure(
    current: Import,
    reason: WaitReason,
    departed: Sequence[DepartedWorker],
    region: str | None,
) -> datetime:
    """Return since when no worker would claim a job of an import."""
    of_dataset = [
        worker for worker in departed if current.dataset in worker.declarations
    ]
    if reason is not WaitReason.NO_WORKER:
        of_dataset = [
            worker
            for worker in of_dataset
            if worker.declarations[current.dataset] == current.declaration
        ]
    if reason is WaitReason.NO_WORKER_IN_REGION:
        of_dataset = [
            worker for worker in of_dataset if worker.region in {None, region}
        ]
    ends = [worker.departed_at for worker in of_dataset]
    return max([current.created_at, *ends])


def last_report(
    facts: WaitingFacts, departed: Sequence[DepartedWorker]
) -> datetime | None:
    """Return when a worker that still holds leases last reported."""
    reports = [
        worker.seen_at
        for worker in departed
        if facts.holders.get(worker.id, facts.now) > facts.now
        and worker.seen_at is not None
    ]
    return max(reports, default=None)


def explain_retries(job: Job, now: datetime, attempts: int) -> Waiting | None:
    if job.run_at <= now or not job.errors:
        return None
    last = job.errors[-1]
    return Waiting(
        reason=WaitReason.RETRYING,
        detail=f"{last.message} (attempt {job.attempts} of {attempts})",
        since=last.at,
        until=job.run_at,
    )
