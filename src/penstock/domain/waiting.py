"""Decide what an import waits for, if it does not go on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from penstock.domain.budget import BudgetState
from penstock.domain.job import Import, ImportStatus, Job, WorkerId

# a token that comes sooner is not worth a word
SHORTEST_WAIT = timedelta(seconds=5)


class WaitReason(StrEnum):
    """What an import can wait for; the set is closed."""

    # its shards are being planned and stored
    PLANNING = "planning"
    # the provider has refused requests until a time
    BUDGET_CLOSED = "budget_closed"
    # the provider has refused access: an operator has to open the budget
    BUDGET_STOPPED = "budget_stopped"
    # the allowance of a period is used up
    BUDGET_USED_UP = "budget_used_up"
    # the store of the budgets does not respond
    STORE_AWAY = "store_away"
    # no worker of this dataset is there
    NO_WORKER = "no_worker"
    # there are workers, but none in its region
    NO_WORKER_IN_REGION = "no_worker_in_region"
    # there are workers, but all of them run another declaration of the dataset
    OTHER_DECLARATION = "other_declaration"
    # every open shard has met an error, and is tried again later
    RETRYING = "retrying"
    # the rows are stored; the indexes that make them fast are being built
    BUILDING_INDEXES = "building_indexes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What an import waits for, and between which times as far as they are known."""

    reason: WaitReason
    detail: str
    # the budget, region or import that the reason is about
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """A worker process that is there."""

    id: WorkerId
    region: str | None
    # dataset -> digest of the declaration that it works
    declarations: Mapping[str, str]
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The open jobs of an import at one moment of the database's clock."""

    now: datetime
    # when the last lease ends
    leased_until: datetime | None
    # the pending job whose time comes first
    next_job: Job | None

    @property
    def is_worked(self) -> bool:
        return self.leased_until is not None and self.leased_until > self.now


def explain(
    known: Import,
    outlook: Outlook,
    *,
    budget: BudgetState | None,
    workers: Sequence[LiveWorker],
    region: str | None,
    attempts: int,
) -> Waiting | None:
    """Say what an import waits for; None if it goes on, or has ended."""
    if known.status is ImportStatus.PLANNING:
        return Waiting(
            reason=WaitReason.PLANNING,
            detail="its shards are being planned",
            since=known.created_at,
        )
    if known.status is not ImportStatus.RUNNING:
        return None
    by_budget = None if budget is None else explain_budget(budget, outlook.now)
    if by_budget is not None or outlook.is_worked or outlook.next_job is None:
        return by_budget
    return explain_workers(known, workers, region) or explain_retries(
        outlook.next_job, outlook.now, attempts
    )


def explain_budget(state: BudgetState, now: datetime) -> Waiting | None:
    name = f"budget {state.budget.name!r}"
    if state.stopped is not None:
        return Waiting(
            reason=WaitReason.BUDGET_STOPPED,
            detail=f"{name} is stopped until an operator opens it: {state.stopped}",
            subject=state.budget.name,
        )
    if state.closed_for is not None:
        return Waiting(
            reason=WaitReason.BUDGET_CLOSED,
            detail=f"{name} is closed: {state.closed_reason}",
            until=in_whole_seconds(now + state.closed_for),
        )
    scarce = max(state.limits, key=lambda each: each.wait, default=None)
    if scarce is None or scarce.wait < SHORTEST_WAIT:
        return None
    return Waiting(
        reason=WaitReason.BUDGET_USED_UP,
        detail=f"{name} has used up its {scarce.limit}",
        until=in_whole_seconds(now + scarce.wait),
    )


def in_whole_seconds(instant: datetime) -> datetime:
    """Round up: each look computes the same end a few milliseconds apart."""
    return instant.replace(microsecond=0) + timedelta(seconds=1)


def explain_workers(
    known: Import, workers: Sequence[LiveWorker], region: str | None
) -> Waiting | None:
    """Say why nobody would claim a job of an import that is due."""
    of_dataset = [each for each in workers if known.dataset in each.declarations]
    if not of_dataset:
        return Waiting(
            reason=WaitReason.NO_WORKER,
            detail=f"no worker of dataset {known.dataset!r} is running",
        )
    alike = [
        each
        for each in of_dataset
        if each.declarations[known.dataset] == known.declaration
    ]
    if not alike:
        return Waiting(
            reason=WaitReason.OTHER_DECLARATION,
            detail=f"import {known.id} was planned under another declaration of "
            f"{known.dataset!r} than the running workers have",
            subject=str(known.id),
        )
    if region is not None and all(each.region not in {None, region} for each in alike):
        return Waiting(
            reason=WaitReason.NO_WORKER_IN_REGION,
            detail=f"no worker of region {region!r} is running",
            subject=region,
        )
    return None


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
