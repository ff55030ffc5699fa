"""What OpenAPI says of imports, jobs and budgets."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from penstock.domain.dataset import Dataset
from penstock.domain.job import ImportStatus, JobStatus, Mode
from penstock.domain.page import Proof
from penstock.domain.queries.forms import WHOLE_INSTANT
from penstock.domain.source import CsvSource
from penstock.entrypoints.api.endpoints import Described
from penstock.entrypoints.api.parameters import LARGEST_ID

Schema: TypeAlias = Mapping[str, Any]

DEFAULT_IMPORTS, MOST_IMPORTS = 20, 50
DEFAULT_JOBS, MOST_JOBS = 50, 200
LONGEST_KEY = 255
PROBLEM = {
    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
}


def shape(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def answer(description: str, schema: Schema, *, media: str = "") -> dict[str, Any]:
    content = {media or "application/json": {"schema": schema}}
    return {"description": description, "content": content}


def refusal(description: str) -> Schema:
    return {"description": description, "content": PROBLEM}


def links(*operations: str) -> Mapping[str, Any]:
    """Say what can be asked next of an import that was started."""
    parameters = {"import": "$response.body#/import_id"}
    return {
        each: {"operationId": each, "parameters": parameters} for each in operations
    }


def query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def in_path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": ID}


def listed(items: Schema, *, most: int, address: str) -> Schema:
    page = {
        "next": {"type": ["integer", "null"], "description": address},
        "has_more": {"type": "boolean"},
        "limit": {"type": "integer", "minimum": 1, "maximum": most},
    }
    some = {"type": "array", "items": items, "maxItems": most}
    return shape({"items": some, "page": shape(page)})


ID: Schema = {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}
COUNT: Schema = {"type": "integer", "minimum": 0}
TEXT_OR_NONE: Schema = {"type": ["string", "null"]}
INSTANT: Schema = {"type": "string", "format": "date-time"}
INSTANT_OR_NONE: Schema = {"type": ["string", "null"], "format": "date-time"}
NUMBER_OR_NONE: Schema = {"type": ["number", "null"], "minimum": 0}
DATASET: Schema = query("dataset", "Only of this dataset.", {"type": "string"})

SHARDS: Schema = shape(
    dict.fromkeys(
        ("total", "done", "failed", "split", "pending", "leased", "cancelled"), COUNT
    )
)
RECORDS: Schema = shape(
    dict.fromkeys(
        (
            "seen",
            "inserted",
            "updated",
            "unchanged",
            "deleted",
            "quarantined",
            "dropped",
            "duplicates",
        ),
        COUNT,
    )
)
TOLD: Mapping[str, Schema] = {
    "import_id": ID,
    "dataset": {"type": "string"},
    "mode": {"enum": [*Mode]},
    "status": {"enum": [*ImportStatus]},
    "shards": SHARDS,
    "pages": COUNT,
    "requests": COUNT,
    "records": RECORDS,
    "rescues": COUNT,
    "seconds": {**NUMBER_OR_NONE, "description": "How long it took."},
    "proven": {"type": "boolean", "description": "Nothing is missing from it."},
    "note": {**TEXT_OR_NONE, "description": "What an operator should know of its end."},
    "since": INSTANT_OR_NONE,
    "until": INSTANT,
    "created_at": INSTANT,
    "finished_at": INSTANT_OR_NONE,
}
PROGRESS: Schema = shape(
    {
        "unit": {
            "enum": ["shards", "bytes"],
            "description": "Files are told in bytes.",
        },
        "done": COUNT,
        "total": COUNT,
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "rows_per_second": {"type": "number", "minimum": 0},
        "requests_per_second": NUMBER_OR_NONE,
        "bytes_per_second": NUMBER_OR_NONE,
        "seconds_left": {**NUMBER_OR_NONE, "description": "None if nobody can tell."},
    }
)
ONE: Schema = shape({**TOLD, "progress": PROGRESS})

LISTED: Sequence[Schema] = [
    DATASET,
    query("status", "Only in this state.", {"type": "string", "enum": [*ImportStatus]}),
    query("before", "Begin before this import: `page.next`.", ID),
    query(
        "limit",
        "How many imports a page has.",
        {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_IMPORTS,
            "default": DEFAULT_IMPORTS,
        },
    ),
]
IMPORTS: Mapping[int, Schema] = {
    200: answer(
        "Some imports.",
        listed(shape(TOLD), most=MOST_IMPORTS, address="Send it as `before`."),
    )
}
THE_IMPORT: Schema = in_path("import")
IMPORT: Mapping[int, Schema] = {200: answer("The import.", ONE)}
CANCELLED: Mapping[int, Schema] = {
    200: answer("The import, as it was left.", shape(TOLD)),
    409: refusal("It has ended already."),
}
RAW: Schema = query(
    "raw",
    "Do not mark text that a spreadsheet would run as a formula.",
    {"type": "boolean", "default": False},
)
ERRORS: Mapping[int, Schema] = {
    200: answer("The bad rows.", {"type": "string"}, media="text/csv")
}
LAST_EVENT: Schema = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The last event that was heard: it is not told again.",
    "schema": {"type": "string"},
}
EVENTS: Mapping[int, Schema] = {
    200: answer(
        "Events `progress` whenever something has changed, and `end` as the last; the "
        "data of each is the import as JSON.",
        {"type": "string"},
        media="text/event-stream",
    ),
    204: {"description": "The end of it was heard already."},
}

KEY: Schema = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": (
        "A name for this request: sent again within 24 hours, it has the same answer, "
        "and nothing is done twice."
    ),
    "schema": {
        "type": "string",
        "pattern": "^[!-~]+$",
        "minLength": 1,
        "maxLength": LONGEST_KEY,
    },
}
INSTANT_TO_READ: Schema = {
    "type": "string",
    "format": "date-time",
    # beyond these years, no provider has data and no calendar has room
    "pattern": f"^(?![09]){WHOLE_INSTANT}$",
}


def asked(mode: Mode, *, needed: Sequence[str] = (), **bounds: Schema) -> Schema:
    """Say how an import of one mode is asked for."""
    properties = {"mode": {"const": mode}, **bounds}
    return {
        "type": "object",
        "properties": {name.rstrip("_"): each for name, each in properties.items()},
        "required": list(needed),
        "additionalProperties": False,
    }


FROM: Schema = {**INSTANT_TO_READ, "description": "Where it begins."}
UNTIL: Schema = {
    **INSTANT_TO_READ,
    "description": "Where it ends, which is later; without it, now.",
}
ASKED: Schema = {
    "description": "What to import; without a mode, all.",
    "anyOf": [
        asked(Mode.FULL),
        asked(Mode.DELTA, needed=["mode"], from_=FROM),
        asked(Mode.BACKFILL, needed=["mode", "from"], from_=FROM, until=UNTIL),
    ],
}
FORM: Schema = {
    "type": "object",
    "properties": {
        "file": {
            "type": "string",
            "format": "binary",
            "description": "Rows that are added; what it lacks is not missing.",
        }
    },
    "required": ["file"],
    "additionalProperties": False,
}
BEGUN: Schema = shape(
    {
        "import_id": ID,
        "dataset": {"type": "string"},
        "mode": {"enum": [*Mode]},
        "resumed": {
            "type": "boolean",
            "description": "It was there already, and unfinished.",
        },
        "since": INSTANT_OR_NONE,
        "until": INSTANT,
        "created_at": INSTANT,
    }
)
STARTED: Mapping[int, Schema] = {
    202: {
        **answer("The import, which goes on by itself.", BEGUN),
        "links": links("getImport", "listBadRows", "cancelImport"),
        "headers": {
            "Location": {
                "description": "The address of the import.",
                "required": True,
                "schema": {"type": "string", "format": "uri-reference"},
            },
            "Idempotency-Replayed": {
                "description": "The same request was answered before.",
                "schema": {"type": "string", "enum": ["true"]},
            },
        },
    },
    408: refusal("The file did not come to its end in time."),
    409: refusal(
        "Another import is in the way, or the same request is being worked on."
    ),
}


def described_start(dataset: Dataset) -> Described:
    """Say what can be sent to start an import: files only where files are read."""
    content = {"application/json": {"schema": ASKED}}
    if isinstance(dataset.source, CsvSource):
        content["multipart/form-data"] = {"schema": FORM}
    body = {"required": True, "content": content}
    return Described(parameters=[KEY], body=body, answers=STARTED)


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
LISTED_JOBS: Sequence[Schema] = [
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

ONE_BUDGET: Schema = shape(
    {
        "name": {"type": "string"},
        "state": {"enum": ["open", "closed", "stopped"]},
        "limits": {
            "type": "array",
            "items": shape({"rate": {"type": "string"}, "remaining": COUNT}),
        },
        "taken": COUNT,
        "closed_seconds": NUMBER_OR_NONE,
        "reason": TEXT_OR_NONE,
    }
)
BUDGETS: Mapping[int, Schema] = {
    200: answer(
        "All budgets.", shape({"items": {"type": "array", "items": ONE_BUDGET}})
    )
}
BUDGET: Mapping[int, Schema] = {200: answer("The budget, which is open.", ONE_BUDGET)}
