"""Jobs: look at them, and give failed ones another chance."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.domain.job import FaultEntry, ImportId, Job, JobId, JobStatus
from penstock.domain.text import format_instant
from penstock.entrypoints.api.bodies import read_json, refuse_body
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.job_shapes import (
    ALL_RETRIED,
    DEFAULT_JOBS,
    JOB,
    JOBS,
    LISTED,
    MOST_JOBS,
    OF_IMPORT,
    RETRIED,
    THE_JOB,
)
from penstock.entrypoints.api.parameters import (
    LARGEST_ID,
    Parameters,
    id_in_path,
)
from penstock.entrypoints.api.responses import NEVER, json_response, page_of
from penstock.entrypoints.api.service import Api
from penstock.entrypoints.reports import records_of
from penstock.errors import BadRequest, Conflict, Flaw
from penstock.flow.start_import import as_conflict
from penstock.ports import JobFilter

# bytes of what says which jobs are meant
LARGEST_ASK = 1024
# jobs that one request gives another chance
MOST_RETRIED = 1_000


async def list_jobs(api: Api, request: Request) -> Response:
    asked = Parameters(request, "status", "dataset", "import", "after", "limit")
    import_id = asked.id("import")
    after = asked.number("after", least=0, most=LARGEST_ID)
    limit = asked.number("limit", least=1, most=MOST_JOBS) or DEFAULT_JOBS
    wanted = JobFilter(
        status=asked.choice("status", JobStatus),
        import_id=None if import_id is None else ImportId(import_id),
        dataset=asked.text("dataset"),
    )
    asked.finish()
    find = partial(
        api.penstock.stores.jobs.find,
        wanted,
        after=None if after is None else JobId(after),
        limit=limit + 1,
    )
    found = await api.in_thread(find)
    shown = found[:limit]
    last = shown[-1].id if len(found) > limit else None
    items = [briefly(api, job) for job in shown]
    return page_of(request, items, following=("after", last), limit=limit)


async def get_job(api: Api, request: Request) -> Response:
    Parameters(request).finish()
    find = partial(api.penstock.stores.jobs.get, job_in(request))
    return json_response(told(api, await api.in_thread(find)), headers=NEVER)


def job_in(request: Request) -> JobId:
    return JobId(id_in_path(request, "job"))


def briefly(api: Api, job: Job) -> dict[str, Any]:
    """Tell of a job what a list shows."""
    lease_until, finished_at = job.lease_until, job.finished_at
    return {
        "job_id": job.id,
        "import_id": job.import_id,
        "dataset": job.dataset,
        "shard_key": job.shard_key,
        "status": job.status,
        "pages": job.page_seq,
        "requests": job.counts.requests,
        "records": records_of(job.counts),
        "fence": job.fence,
        "attempts": job.attempts,
        "rescues": job.rescues,
        "snoozes": job.snoozes,
        "proof": job.proof,
        "run_at": format_instant(job.run_at),
        "lease_owner": job.lease_owner,
        "lease_until": None if lease_until is None else format_instant(lease_until),
        "created_at": format_instant(job.created_at),
        "finished_at": None if finished_at is None else format_instant(finished_at),
        "last_error": fault(api, job.errors[-1]) if job.errors else None,
    }


def told(api: Api, job: Job) -> Mapping[str, Any]:
    """Tell all of a job."""
    redact = api.penstock.settings.redact
    return {
        **briefly(api, job),
        "parent": job.parent,
        "region": job.region,
        "cursor": None if job.cursor is None else redact(job.cursor),
        "errors": [fault(api, each) for each in job.errors],
    }


def fault(api: Api, entry: FaultEntry) -> Mapping[str, Any]:
    redact = api.penstock.settings.redact
    return {
        "at": format_instant(entry.at),
        "owner": entry.owner,
        "fence": entry.fence,
        "code": entry.code,
        "message": redact(entry.message),
        "cursor": None if entry.cursor is None else redact(entry.cursor),
    }


async def retry_job(api: Api, request: Request) -> Response:
    Parameters(request).finish()
    await refuse_body(request)
    job = job_in(request)
    await api.in_thread(partial(retried, api, job))
    find = partial(api.penstock.stores.jobs.get, job)
    return json_response(told(api, await api.in_thread(find)), headers=NEVER)


def retried(api: Api, job: JobId) -> None:
    with as_conflict(api.penstock.settings.redact):
        if not api.penstock.retry(job):
            known = api.penstock.stores.jobs.get(job)
            raise Conflict(f"job {job} is {known.status}; only a failed one is retried")


async def retry_jobs(api: Api, request: Request) -> Response:
    """Retry the failed jobs of an import."""
    Parameters(request).finish()
    import_id = read_import(await read_json(request, largest=LARGEST_ASK))
    done = await api.errands.run(partial(all_retried, api, import_id))
    return json_response(done, headers=NEVER)


def read_import(document: object) -> ImportId:
    if not isinstance(document, dict) or "import_id" not in document:
        told = "names the import whose failed jobs are retried"
        raise BadRequest(Flaw(pointer="/import_id", code="missing", detail=told))
    flaws = [
        Flaw(pointer=f"/{name}", code="unknown", detail="use import_id")
        for name in document.keys() - {"import_id"}
    ]
    number = whole_number(document["import_id"])
    if number is None or not 1 <= number <= LARGEST_ID:
        told = "must be the number of an import"
        flaws.append(Flaw(pointer="/import_id", code="type", detail=told))
    if flaws or number is None:
        raise BadRequest(*flaws)
    return ImportId(number)


def whole_number(value: object) -> int | None:
    """Read what JSON takes for one: 7.0 is, and true is not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def all_retried(api: Api, import_id: ImportId) -> Mapping[str, Any]:
    """Retry so many; those who come after them need another request."""
    # whether it is there
    api.penstock.stores.imports.peek(import_id)
    with as_conflict(api.penstock.settings.redact):
        done = api.penstock.retry.all_of(import_id, most=MOST_RETRIED)
    return {
        "import_id": import_id,
        "retried": len(done.jobs),
        "has_more": done.has_more,
    }


def endpoints() -> Sequence[Endpoint]:
    jobs = "/api/v1/jobs"
    return [
        Endpoint(
            method="GET",
            path=jobs,
            scope=Scope.READ,
            lane=Lane.READS,
            summary="List jobs in the order of their ids",
            handle=list_jobs,
            parameters=LISTED,
            answers=JOBS,
        ),
        # before the address of one job, of which it would be a name
        Endpoint(
            method="POST",
            path=f"{jobs}/retry",
            scope=Scope.OPERATE,
            lane=Lane.WRITES,
            summary="Retry the failed jobs of an import, up to 1,000 at a time",
            handle=retry_jobs,
            body=OF_IMPORT,
            answers=ALL_RETRIED,
        ),
        Endpoint(
            method="GET",
            path=jobs + "/{job}",
            scope=Scope.READ,
            lane=Lane.READS,
            summary="Get a job with its errors, cursor and lease",
            handle=get_job,
            parameters=[THE_JOB],
            answers=JOB,
        ),
        Endpoint(
            method="POST",
            path=jobs + "/{job}/retry",
            scope=Scope.OPERATE,
            lane=Lane.WRITES,
            summary="Retry a failed job from its cursor",
            handle=retry_job,
            parameters=[THE_JOB],
            answers=RETRIED,
        ),
    ]
