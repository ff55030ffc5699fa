"""OpenAPI for imports."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportStatus, Mode
from penstock.domain.search.value_syntax import WHOLE_INSTANT
from penstock.domain.source import CsvSource
from penstock.domain.waiting import WaitReason
from penstock.entrypoints.api.endpoints import OperationDoc
from penstock.entrypoints.api.openapi.schemas import NamedSchema, Schema
from penstock.entrypoints.api.openapi.shapes import object_schema, response_object
from penstock.entrypoints.api.openapi.work_shapes import (
    COUNT,
    DATASET,
    ID,
    INSTANT,
    INSTANT_OR_NONE,
    NUMBER_OR_NONE,
    RECORDS,
    TEXT_OR_NONE,
    error_response,
    id_parameter,
    list_schema,
    query_parameter,
)

DEFAULT_IMPORTS = 20
MAX_IMPORTS = 50
MAX_KEY_LENGTH = 255


def import_links(*operations: str) -> Mapping[str, Any]:
    """Return links to operations on the import that was started."""
    parameters = {"import": "$response.body#/import_id"}
    return {
        name: {"operationId": name, "parameters": parameters} for name in operations
    }


SHARDS: Schema = NamedSchema(
    "ShardCounts",
    object_schema(
        dict.fromkeys(
            ("total", "done", "failed", "split", "pending", "leased", "cancelled"),
            COUNT,
        )
    ),
)
WAITING: Schema = {
    "description": "What it waits for; null while it runs and when it has finished.",
    "anyOf": [
        NamedSchema(
            "Waiting",
            object_schema(
                {
                    "reason": {"enum": [*WaitReason]},
                    "since": INSTANT_OR_NONE,
                    "until": INSTANT_OR_NONE,
                    "detail": {"type": "string"},
                }
            ),
        ),
        {"type": "null"},
    ],
}
IMPORT_PROPERTIES: Mapping[str, Schema] = {
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
    "proven": {
        "type": "boolean",
        "description": "Whether it is proven that no record is missing.",
    },
    "note": {
        **TEXT_OR_NONE,
        "description": "What an operator should know about its outcome.",
    },
    "waiting": WAITING,
    "since": INSTANT_OR_NONE,
    "until": INSTANT,
    "created_at": INSTANT,
    "finished_at": INSTANT_OR_NONE,
}
PROGRESS: Schema = NamedSchema(
    "Progress",
    object_schema(
        {
            "unit": {
                "enum": ["shards", "bytes"],
                "description": "Imports of files are measured in bytes.",
            },
            "done": COUNT,
            "total": COUNT,
            "share": {"type": "number", "minimum": 0, "maximum": 1},
            "rows_per_second": {"type": "number", "minimum": 0},
            "requests_per_second": NUMBER_OR_NONE,
            "bytes_per_second": NUMBER_OR_NONE,
            "seconds_left": {
                **NUMBER_OR_NONE,
                "description": "Null if it cannot be estimated.",
            },
        }
    ),
)
IMPORT: Schema = NamedSchema("Import", object_schema(IMPORT_PROPERTIES))
IMPORT_DETAILS: Schema = NamedSchema(
    "ImportDetails", object_schema({**IMPORT_PROPERTIES, "progress": PROGRESS})
)

LIST_PARAMETERS: Sequence[Schema] = [
    DATASET,
    query_parameter(
        "status",
        "Only imports with this status.",
        {"type": "string", "enum": [*ImportStatus]},
    ),
    query_parameter("before", "Only imports before this one: `page.next`.", ID),
    query_parameter(
        "limit",
        "The maximum number of imports on a page.",
        {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_IMPORTS,
            "default": DEFAULT_IMPORTS,
        },
    ),
]
LIST_RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "A page of imports.",
        list_schema("ImportList", IMPORT, max_items=MAX_IMPORTS),
    )
}
IMPORT_ID: Schema = id_parameter("import")
GET_RESPONSES: Mapping[int, Schema] = {
    200: response_object("The import.", IMPORT_DETAILS)
}
CANCEL_RESPONSES: Mapping[int, Schema] = {
    200: response_object("The cancelled import.", IMPORT),
    409: error_response("It has already finished."),
}
RAW_PARAMETER: Schema = query_parameter(
    "raw",
    "Do not escape text that a spreadsheet would run as a formula.",
    {"type": "boolean", "default": False},
)
ERRORS_RESPONSES: Mapping[int, Schema] = {
    200: response_object("The rejected rows.", {"type": "string"}, media="text/csv")
}
FILE_PARAMETER: Schema = query_parameter(
    "file",
    "The file whose rows to return, if rows of several files are bad.",
    {"type": "string"},
)
REJECTS_RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "The rows, with the header, delimiter and encoding of their file.",
        {"type": "string", "format": "binary"},
        media="text/csv",
    ),
    409: error_response(
        "There are none, they are of several files, their file is gone, or the "
        "dataset has no files."
    ),
}
LAST_EVENT_ID: Schema = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The id of the last event that was received: it is not sent again.",
    "schema": {"type": "string"},
}
EVENTS_RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "An event `progress` whenever something changes, and `end` as the last; the "
        "data of each is the import as JSON.",
        {"type": "string"},
        media="text/event-stream",
    ),
    204: {"description": "The client has already received the last event."},
}

IDEMPOTENCY_KEY: Schema = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": (
        "A unique name of this request: sent again within 24 hours, it returns the "
        "same response, and nothing is done twice."
    ),
    "schema": {
        "type": "string",
        "pattern": "^[!-~]+$",
        "minLength": 1,
        "maxLength": MAX_KEY_LENGTH,
    },
}
SENT_INSTANT: Schema = {
    "type": "string",
    "format": "date-time",
    # years that begin with 0 or 9: no provider has data there, and arithmetic on such
    # dates could leave the range of datetime
    "pattern": f"^(?![09]){WHOLE_INSTANT}$",
}


def start_request_of(
    mode: Mode, *, required: Sequence[str] = (), **bounds: Schema
) -> Schema:
    """Return the schema of a request for an import of one mode."""
    properties = {"mode": {"const": mode}, **bounds}
    return {
        "type": "object",
        "properties": {name.rstrip("_"): schema for name, schema in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


FROM: Schema = {**SENT_INSTANT, "description": "The start of the time range."}
UNTIL: Schema = {
    **SENT_INSTANT,
    "description": "The end of the time range, after its start; now by default.",
}
ACCEPT_DUPLICATES: Schema = {
    "type": "boolean",
    "default": False,
    "description": "Let more rows lose to another row of their key than the dataset "
    "declares.",
}
START_REQUEST: Schema = {
    "description": "What to import; everything by default.",
    "anyOf": [
        start_request_of(Mode.FULL, accept_duplicates=ACCEPT_DUPLICATES),
        start_request_of(Mode.DELTA, required=["mode"], from_=FROM),
        start_request_of(
            Mode.BACKFILL, required=["mode", "from"], from_=FROM, until=UNTIL
        ),
    ],
}
UPLOAD_FORM: Schema = {
    "type": "object",
    "properties": {
        "file": {
            "type": "string",
            "format": "binary",
            "description": "Rows to add or update; no others are deleted.",
        },
        "accept_duplicates": ACCEPT_DUPLICATES,
        "corrects": {
            **ID,
            "description": "The import whose bad rows the file corrects: if as many "
            "rows as were open are all good, those without a key are settled as well.",
        },
    },
    "required": ["file"],
    "additionalProperties": False,
}
START_RESPONSE: Schema = NamedSchema(
    "StartedImport",
    object_schema(
        {
            "import_id": ID,
            "dataset": {"type": "string"},
            "mode": {"enum": [*Mode]},
            "resumed": {
                "type": "boolean",
                "description": "Whether it continues an unfinished import.",
            },
            "since": INSTANT_OR_NONE,
            "until": INSTANT,
            "created_at": INSTANT,
        }
    ),
)
START_RESPONSES: Mapping[int, Schema] = {
    202: {
        **response_object("The import, which runs in the background.", START_RESPONSE),
        "links": import_links("getImport", "listBadRows", "cancelImport"),
        "headers": {
            "Location": {
                "description": "The path of the import.",
                "required": True,
                "schema": {"type": "string", "format": "uri-reference"},
            },
            "Idempotency-Replayed": {
                "description": "Present if this repeats an earlier response.",
                "schema": {"type": "string", "enum": ["true"]},
            },
        },
    },
    408: error_response("The file was not received in time."),
    409: error_response(
        "Another import is running, the same request is being processed, or the import "
        "to correct is none of this dataset that has ended."
    ),
}


def describe_start(dataset: Dataset) -> OperationDoc:
    """Describe how an import is started: with a file only if the source is CSV."""
    content = {"application/json": {"schema": START_REQUEST}}
    if isinstance(dataset.source, CsvSource):
        content["multipart/form-data"] = {"schema": UPLOAD_FORM}
    body = {"required": True, "content": content}
    return OperationDoc(
        parameters=[IDEMPOTENCY_KEY], body=body, responses=START_RESPONSES
    )
