"""Jobs: list and get them, and retry failed ones."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.formats import format_instant
from penstock.domain.jobs import ImportId, Job, JobErrorEntry, JobId, JobKind, JobStatus
from penstock.domain.pages import Proof
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.schemas import NamedSchema, Schema
from penstock.entrypoints.api.openapi.shapes import object_schema, response_object
from penstock.entrypoints.api.openapi.work_shapes import (
    COUNT,
    DATASET,
    ID,
    INSTANT,
    INSTANT_OR_NONE,
    RECORDS,
    TEXT_OR_NONE,
    error_response,
    id_parameter,
    list_schema,
    query_parameter,
)
from penstock.entrypoints.api.params.query_params import MAX_ID, QueryParams, id_in_path
from penstock.entrypoints.api.params.request_body import read_json, refuse_body
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.responses import NO_STORE, json_response, page_response
from penstock.entrypoints.import_report import records_of
from penstock.errors import BadRequest, Conflict, FieldError
from penstock.flow.start_import import as_conflict
from penstock.ports import JobFilter

DEFAULT_JOBS = 50
MAX_JOBS = 200

ERROR_SCHEMA: Schema = NamedSchema(
    "JobError",
    object_schema(
        {
            "at": INSTANT,
            "owner": TEXT_OR_NONE,
            "fence": COUNT,
            "code": {"type": "string"},
            "message": {"type": "string"},
            "cursor": TEXT_OR_NONE,
        }
    ),
)
SUMMARY_PROPERTIES: Mapping[str, Schema] = {
    "job_id": ID,
    "import_id": ID,
    "dataset": {"type": "string"},
    "kind": {"enum": [*JobKind]},
    "shard_key": {"type": "string"},
    "status": {"enum": [*JobStatus]},
    "pages": COUNT,
    "requests": COUNT,
    "records": RECORDS,
    "fence": COUNT,
    "attempts": COUNT,
    "rescues": COUNT,
    "snoozes": COUNT,
    "proof": {"enum": [*Proof, None]},
    "run_at": INSTANT,
    "lease_owner": TEXT_OR_NONE,
    "lease_until": INSTANT_OR_NONE,
    "created_at": INSTANT,
    "finished_at": INSTANT_OR_NONE,
    "last_error": {"anyOf": [ERROR_SCHEMA, {"type": "null"}]},
}
LIST_PARAMETERS: Sequence[Schema] = [
    query_parameter(
        "status",
        "Only jobs with this status.",
        {"type": "string", "enum": [*JobStatus]},
    ),
    DATASET,
    query_parameter(
        "kind",
        "Only jobs of shards, or only plans.",
        {"type": "string", "enum": [*JobKind]},
    ),
    query_parameter("import", "Only jobs of this import.", ID),
    query_parameter(
        "after", "Only jobs after this one: `page.next`.", {**ID, "minimum": 0}
    ),
    query_parameter(
        "limit",
        "The maximum number of jobs on a page.",
        {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_JOBS,
            "default": DEFAULT_JOBS,
        },
    ),
]
LIST_RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "A page of jobs.",
        list_schema(
            "JobList",
            NamedSchema("Job", object_schema(SUMMARY_PROPERTIES)),
            max_items=MAX_JOBS,
        ),
    )
}
JOB_ID: Schema = id_parameter("job")
GET_RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "The job.",
        NamedSchema(
            "JobDetails",
            object_schema(
                {
                    **SUMMARY_PROPERTIES,
                    "parent": {"type": ["integer", "null"]},
                    "region": TEXT_OR_NONE,
                    "cursor": TEXT_OR_NONE,
                    "errors": {"type": "array", "items": ERROR_SCHEMA},
                }
            ),
        ),
    )
}
RETRY_RESPONSES: Mapping[int, Schema] = {
    **GET_RESPONSES,
    409: error_response("The job has not failed."),
}
RETRY_ALL_REQUEST: Schema = object_schema({"import_id": ID})
RETRY_ALL_RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "How many jobs are pending again.",
        NamedSchema(
            "RetriedJobs",
            object_schema(
                {"import_id": ID, "retried": COUNT, "has_more": {"type": "boolean"}}
            ),
        ),
    ),
    404: error_response("There is no such import."),
    409: error_response("No worker can run them, or a newer import is running."),
}


# bytes of the body that names the import
MAX_RETRY_BODY = 1024
# jobs that one request retries
MAX_RETRIES = 1_000


class JobListRequest(NamedTuple):
    filter: JobFilter
    after: JobId | None
    limit: int


def parse_list(api: AppContext, head: RequestHead) -> JobListRequest:
    del api
    params = QueryParams(head, "status", "dataset", "kind", "import", "after", "limit")
    import_id = params.id("import")
    after = params.integer("after", minimum=0, maximum=MAX_ID)
    limit = params.integer("limit", minimum=1, maximum=MAX_JOBS) or DEFAULT_JOBS
    requested = JobFilter(
        status=params.choice("status", JobStatus),
        import_id=None if import_id is None else ImportId(import_id),
        dataset=params.text("dataset"),
        kind=params.choice("kind", JobKind),
    )
    params.finish()
    return JobListRequest(requested, None if after is None else JobId(after), limit)


async def list_jobs(
    api: AppContext, request: Request, requested: JobListRequest
) -> Response:
    limit = requested.limit
    find = partial(
        api.penstock.stores.jobs.find,
        requested.filter,
        after=requested.after,
        limit=limit + 1,
    )
    found = await api.in_thread(find)
    page = found[:limit]
    last = page[-1].id if len(found) > limit else None
    items = [summarize_job(api, job) for job in page]
    return page_response(request, items, following=("after", last), limit=limit)


def parse_job_id(api: AppContext, head: RequestHead) -> JobId:
    del api
    QueryParams(head).finish()
    return JobId(id_in_path(head, "job"))


async def get_job(api: AppContext, request: Request, job: JobId) -> Response:
    del request
    find = partial(api.penstock.stores.jobs.get, job)
    return json_response(describe_job(api, await api.in_thread(find)), headers=NO_STORE)


def summarize_job(api: AppContext, job: Job) -> dict[str, Any]:
    """Describe a job as in a list."""
    lease_until, finished_at = job.lease_until, job.finished_at
    return {
        "job_id": job.id,
        "import_id": job.import_id,
        "dataset": job.dataset,
        "kind": job.kind,
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
        "last_error": describe_error(api, job.errors[-1]) if job.errors else None,
    }


def describe_job(api: AppContext, job: Job) -> Mapping[str, Any]:
    """Describe a job with its cursor and all errors."""
    redact = api.penstock.settings.redact
    return {
        **summarize_job(api, job),
        "parent": job.parent,
        "region": job.region,
        "cursor": None if job.cursor is None else redact(job.cursor),
        "errors": [describe_error(api, entry) for entry in job.errors],
    }


def describe_error(api: AppContext, entry: JobErrorEntry) -> Mapping[str, Any]:
    redact = api.penstock.settings.redact
    return {
        "at": format_instant(entry.at),
        "owner": entry.owner,
        "fence": entry.fence,
        "code": entry.code,
        "message": redact(entry.message),
        "cursor": None if entry.cursor is None else redact(entry.cursor),
    }


async def retry_job(api: AppContext, request: Request, job: JobId) -> Response:
    await refuse_body(request)
    await api.in_thread(partial(retry_one, api, job))
    find = partial(api.penstock.stores.jobs.get, job)
    return json_response(describe_job(api, await api.in_thread(find)), headers=NO_STORE)


def retry_one(api: AppContext, job: JobId) -> None:
    with as_conflict(api.penstock.settings.redact):
        if not api.penstock.retry(job):
            stored = api.penstock.stores.jobs.get(job)
            raise Conflict(
                f"job {job} is {stored.status}; only a failed job can be retried"
            )


def parse_retry(api: AppContext, head: RequestHead) -> None:
    del api
    QueryParams(head).finish()


async def retry_jobs(api: AppContext, request: Request, query: None) -> Response:
    """Retry the failed jobs of an import."""
    del query
    import_id = parse_import_id(await read_json(request, max_size=MAX_RETRY_BODY))
    result = await api.background.run(partial(retry_all, api, import_id))
    return json_response(result, headers=NO_STORE)


def parse_import_id(document: object) -> ImportId:
    if not isinstance(document, dict) or "import_id" not in document:
        message = "is missing; give the import whose failed jobs to retry"
        raise BadRequest(
            FieldError(pointer="/import_id", code="missing", detail=message)
        )
    errors = [
        FieldError(pointer=f"/{name}", code="unknown", detail="use import_id")
        for name in document.keys() - {"import_id"}
    ]
    number = whole_number(document["import_id"])
    if number is None or not 1 <= number <= MAX_ID:
        message = "must be the id of an import"
        errors.append(FieldError(pointer="/import_id", code="type", detail=message))
    if errors or number is None:
        raise BadRequest(*errors)
    return ImportId(number)


def whole_number(value: object) -> int | None:
    """Return an integer as JSON Schema defines it: 7.0 is one, true is not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def retry_all(api: AppContext, import_id: ImportId) -> Mapping[str, Any]:
    """Retry up to `MAX_RETRIES` jobs; the others need another request."""
    # raises if there is no such import
    api.penstock.stores.imports.peek(import_id)
    with as_conflict(api.penstock.settings.redact):
        result = api.penstock.retry.all_of(import_id, most=MAX_RETRIES)
    return {
        "import_id": import_id,
        "retried": len(result.jobs),
        "has_more": result.has_more,
    }


def endpoints() -> Sequence[AnyEndpoint]:
    jobs = "/api/v1/jobs"
    return [
        Endpoint(
            method="GET",
            path=jobs,
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="List jobs in the order of their ids",
            parse=parse_list,
            handle=list_jobs,
            parameters=LIST_PARAMETERS,
            responses=LIST_RESPONSES,
        ),
        # before /jobs/{job}, which would match it
        Endpoint(
            method="POST",
            path=f"{jobs}/retry",
            scope=AccessScope.OPERATE,
            lane=Lane.WRITES,
            summary="Retry the failed jobs of an import, up to 1,000 at a time",
            parse=parse_retry,
            handle=retry_jobs,
            body=RETRY_ALL_REQUEST,
            responses=RETRY_ALL_RESPONSES,
        ),
        Endpoint(
            method="GET",
            path=jobs + "/{job}",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="Get a job with its errors, cursor and lease",
            parse=parse_job_id,
            handle=get_job,
            parameters=[JOB_ID],
            responses=GET_RESPONSES,
        ),
        Endpoint(
            method="POST",
            path=jobs + "/{job}/retry",
            scope=AccessScope.OPERATE,
            lane=Lane.WRITES,
            summary="Retry a failed job from its cursor",
            parse=parse_job_id,
            handle=retry_job,
            parameters=[JOB_ID],
            responses=RETRY_RESPONSES,
        ),
    ]
