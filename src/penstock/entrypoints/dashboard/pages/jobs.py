"""A job: its shard, its lease, its errors, and everyone who has worked on it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.jobs import (
    Claim,
    ClaimOutcome,
    Fence,
    ImportStatus,
    Job,
    JobErrorEntry,
    JobId,
    JobStatus,
)
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.resources.jobs import parse_job_id
from penstock.entrypoints.dashboard.rendering import View, send_page

MAX_CLAIMS = 100
STATES: Mapping[JobStatus, str] = {
    JobStatus.PENDING: "waiting",
    JobStatus.LEASED: "running",
    JobStatus.DONE: "done",
    JobStatus.FAILED: "failed",
    JobStatus.SPLIT: "split",
    JobStatus.CANCELLED: "idle",
}
# the state and the words for how a claim ended; None: it has not
OUTCOMES: Mapping[ClaimOutcome | None, tuple[str, str]] = {
    None: ("running", "running"),
    ClaimOutcome.DONE: ("done", "done"),
    ClaimOutcome.FAILED: ("failed", "failed"),
    ClaimOutcome.SPLIT: ("split", "split into smaller shards"),
    ClaimOutcome.CANCELLED: ("idle", "cancelled"),
    ClaimOutcome.RELEASED: ("released", "given back"),
    ClaimOutcome.WAITING: ("waiting", "given back to wait"),
    ClaimOutcome.ERROR: ("error", "stopped by an error"),
    ClaimOutcome.LOST: ("lost", "lost: its lease expired"),
}
# what a job did after a claim, until the next one
PAUSES: Mapping[ClaimOutcome | None, str] = {
    ClaimOutcome.FAILED: "until it was retried",
    ClaimOutcome.WAITING: "waited",
    ClaimOutcome.ERROR: "waited to try again",
}


class Step(NamedTuple):
    """A claim of a job's history, and the pause before it."""

    claim: Claim
    state: str
    text: str
    # of the claim, so far if it has not ended
    took: timedelta
    # None: unknown, as the claim before is not in the log
    pause: timedelta | None
    pause_text: str
    error: JobErrorEntry | None


async def show_job(api: AppContext, request: Request, job: JobId) -> Response:
    return await send_page(api, request, partial(build_job, api, job))


def build_job(api: AppContext, job_id: JobId) -> View:
    stores = api.penstock.stores
    job = hide_secrets(api, stores.jobs.get(job_id))
    import_ = stores.imports.peek(job.import_id)
    now = stores.jobs.now()
    claims = stores.claims.of_job(job_id, limit=MAX_CLAIMS)
    steps = [*tell_history(job, claims, now)]
    values = {
        "now": now,
        "job": job,
        "import": import_,
        "state": STATES[job.status],
        "steps": steps,
        "unlogged": max(job.fence - len(claims), 0),
        "worked": sum((step.took for step in steps), timedelta()),
        "can_retry": job.status is JobStatus.FAILED
        and import_.status in {ImportStatus.RUNNING, ImportStatus.FAILED},
    }
    return View("job.html", f"Job {job_id}", "imports", values)


def hide_secrets(api: AppContext, job: Job) -> Job:
    redact = api.penstock.settings.redact

    def clean(text: str | None) -> str | None:
        return None if text is None else redact(text)

    errors = tuple(
        replace(entry, message=redact(entry.message), cursor=clean(entry.cursor))
        for entry in job.errors
    )
    return replace(job, cursor=clean(job.cursor), errors=errors)


def tell_history(job: Job, claims: Sequence[Claim], now: datetime) -> Iterator[Step]:
    """Yield the claims of a job in their order, with their errors and pauses."""
    errors: Mapping[Fence, JobErrorEntry] = {
        Fence(entry.fence): entry for entry in job.errors
    }
    before: Claim | None = None
    for claim in claims:
        state, text = OUTCOMES[claim.outcome]
        yield Step(
            claim=claim,
            state=state,
            text=text,
            took=max((claim.ended_at or now) - claim.claimed_at, timedelta()),
            pause=pause_before(job, before, claim),
            pause_text=PAUSES.get(before.outcome, "open") if before else "open",
            error=errors.get(claim.fence),
        )
        before = claim


def pause_before(job: Job, before: Claim | None, claim: Claim) -> timedelta | None:
    if claim.fence == 1:
        began_at: datetime | None = job.created_at
    elif before is not None and before.fence + 1 == claim.fence:
        began_at = before.ended_at
    else:
        began_at = None
    if began_at is None:
        return None
    return max(claim.claimed_at - began_at, timedelta())


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/jobs/{job}",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="The dashboard's page of a job",
            parse=parse_job_id,
            handle=show_job,
            operation="showJob",
        )
    ]
