"""What OpenAPI says of imports."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.domain.dataset import Dataset
from penstock.domain.job import ImportStatus, Mode
from penstock.domain.queries.forms import WHOLE_INSTANT
from penstock.domain.source import CsvSource
from penstock.domain.waiting import WaitReason
from penstock.entrypoints.api.endpoints import Described
from penstock.entrypoints.api.schemas import Schema
from penstock.entrypoints.api.shapes import answer, shape
from penstock.entrypoints.api.work_shapes import (
    COUNT,
    DATASET,
    ID,
    INSTANT,
    INSTANT_OR_NONE,
    NUMBER_OR_NONE,
    RECORDS,
    TEXT_OR_NONE,
    in_path,
    listed,
    query,
    refusal,
)

DEFAULT_IMPORTS, MOST_IMPORTS = 20, 50
LONGEST_KEY = 255


def links(*operations: str) -> Mapping[str, Any]:
    """Say what can be asked next of an import that was started."""
    parameters = {"import": "$response.body#/import_id"}
    return {
        each: {"operationId": each, "parameters": parameters} for each in operations
    }


SHARDS: Schema = shape(
    dict.fromkeys(
        ("total", "done", "failed", "split", "pending", "leased", "cancelled"), COUNT
    )
)
WAITING: Schema = {
    "description": "What it waits for; null while it goes on, and when it has ended.",
    "anyOf": [
        shape(
            {
                "reason": {"enum": [*WaitReason]},
                "since": INSTANT_OR_NONE,
                "until": INSTANT_OR_NONE,
                "detail": {"type": "string"},
            }
        ),
        {"type": "null"},
    ],
}
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
    "waiting": WAITING,
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
