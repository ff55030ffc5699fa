"""What OpenAPI says of jobs."""

from collections.abc import Mapping, Sequence

from penstock.domain.job import JobStatus
from penstock.domain.page import Proof
from penstock.entrypoints.api.schemas import Schema
from penstock.entrypoints.api.shapes import answer, shape
from penstock.entrypoints.api.work_shapes import (
    COUNT,
    DATASET,
    ID,
    INSTANT,
    INSTANT_OR_NONE,
    RECORDS,
    TEXT_OR_NONE,
    in_path,
    listed,
    query,
    refusal,
)

DEFAULT_JOBS, MOST_JOBS = 50, 200

FAULT: Schema = shape(
    {
        "at": INSTANT,
        "owner": TEXT_OR_NONE,
        "fence": COUNT,
        "code": {"type": "string"},
        "message": {"type": "string"},
        "cursor": TEXT_OR_NONE,
    }
)
BRIEFLY: Mapping[str, Schema] = {
    "job_id": ID,
    "import_id": ID,
    "dataset": {"type": "string"},
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
    "last_error": {"anyOf": [FAULT, {"type": "null"}]},
}
LISTED: Sequence[Schema] = [
    query("status", "Only in this state.", {"type": "string", "enum": [*JobStatus]}),
    DATASET,
    query("import", "Only of this import.", ID),
    query("after", "Begin after this job: `page.next`.", {**ID, "minimum": 0}),
    query(
        "limit",
        "How many jobs a page has.",
        {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_JOBS,
            "default": DEFAULT_JOBS,
        },
    ),
]
JOBS: Mapping[int, Schema] = {
    200: answer(
        "Some jobs.",
        listed(shape(BRIEFLY), most=MOST_JOBS, address="Send it as `after`."),
    )
}
THE_JOB: Schema = in_path("job")
JOB: Mapping[int, Schema] = {
    200: answer(
        "The job.",
        shape(
            {
                **BRIEFLY,
                "parent": {"type": ["integer", "null"]},
                "region": TEXT_OR_NONE,
                "cursor": TEXT_OR_NONE,
                "errors": {"type": "array", "items": FAULT},
            }
        ),
    )
}
RETRIED: Mapping[int, Schema] = {**JOB, 409: refusal("It is not failed.")}
OF_IMPORT: Schema = shape({"import_id": ID})
ALL_RETRIED: Mapping[int, Schema] = {
    200: answer(
        "How many are pending again.",
        shape({"import_id": ID, "retried": COUNT, "has_more": {"type": "boolean"}}),
    ),
    404: refusal("There is no such import."),
    409: refusal("No worker would take them, or a newer import is running."),
}
