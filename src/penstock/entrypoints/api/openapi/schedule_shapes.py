"""OpenAPI for schedules and their fires."""

from collections.abc import Mapping, Sequence

from penstock.domain.jobs import ImportStatus, Mode
from penstock.domain.scheduling.fires import FireOutcome
from penstock.domain.scheduling.schedule import CatchUp, Overlap
from penstock.entrypoints.api.openapi.import_shapes import import_links
from penstock.entrypoints.api.openapi.schemas import Schema, ref
from penstock.entrypoints.api.openapi.shapes import (
    header,
    object_schema,
    response_object,
)
from penstock.entrypoints.api.openapi.work_shapes import (
    COUNT,
    DATASET,
    ID,
    INSTANT,
    INSTANT_OR_NONE,
    TEXT_OR_NONE,
    error_response,
    query_parameter,
)
from penstock.ports.schedules import ScheduleOrder, ScheduleOrigin, ScheduleStatus
from penstock.settings.models.schedule import MAX_CATCH_UP, MAX_FAILURES

DEFAULT_SCHEDULES = 50
MAX_SCHEDULES = 200
MAX_NOTE_LENGTH = 500
NAME_PATTERN = "^[a-z][a-z0-9_-]{0,47}$"
# line breaks and other control characters have no place in a table
NOTE_PATTERN = "^[^\\u0000-\\u001f]*$"

TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "pattern": NAME_PATTERN}
FIELDS: Mapping[str, Schema] = {
    "dataset": {**TEXT, "description": "The dataset to import."},
    "cron": {**TEXT, "description": "Five fields, or a macro such as `@daily`."},
    "every": {**TEXT, "description": "An interval, such as `15m`."},
    "at": {**TEXT, "description": "Once, such as `2026-12-24T18:00:00`."},
    "after": {
        "type": ["array", "string"],
        "items": TEXT,
        "description": "When each of these datasets has a newer proven import.",
    },
    "mode": {"type": "string", "enum": [*Mode]},
    "timezone": {**TEXT, "description": "Such as `Europe/Berlin`; UTC by default."},
    "jitter": {**TEXT, "description": "The maximum delay of all its fires."},
    "overlap": {"type": "string", "enum": [*Overlap]},
    "catch_up": {"type": "string", "enum": [*CatchUp]},
    "catch_up_max": {"type": "integer", "minimum": 1, "maximum": MAX_CATCH_UP},
    "catch_up_age": TEXT,
    "except": {
        "type": ["array", "string"],
        "items": TEXT,
        "description": "When not to import, such as `Mon-Fri 08:00-10:00`.",
    },
    "pause_after": {"type": "integer", "minimum": 1, "maximum": MAX_FAILURES},
    "paused": {"type": "boolean"},
    "accept_duplicates": {
        "type": "boolean",
        "description": "Whether more rows may lose to another row of their key than "
        "the dataset declares.",
    },
}


def nullable(schema: Schema) -> Schema:
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    types = schema["type"]
    every = [types] if isinstance(types, str) else types
    return {**schema, "type": [*every, "null"]}


SCHEDULE: Mapping[str, Schema] = {
    "name": NAME,
    "dataset": TEXT,
    "origin": {"enum": [*ScheduleOrigin]},
    "fields": {"type": "object", "description": "Its fields as they are declared."},
    "trigger": {
        **TEXT_OR_NONE,
        "description": "When it fires, in words; null if its fields are invalid.",
    },
    "status": {"enum": [*ScheduleStatus]},
    "note": {**TEXT_OR_NONE, "description": "Why it is paused or broken."},
    "conflict": {
        **TEXT_OR_NONE,
        "description": "What an older process declares otherwise.",
    },
    "waiting": {
        **INSTANT_OR_NONE,
        "description": "A fire that waits for the end of another import.",
    },
    "next_run_at": INSTANT_OR_NONE,
    "last_run_at": INSTANT_OR_NONE,
    "created_at": INSTANT,
}
UPCOMING: Schema = object_schema(
    {
        "fire_at": INSTANT,
        "local": {**INSTANT, "description": "In the time zone of the schedule."},
        "exception": {
            **TEXT_OR_NONE,
            "description": "The window of `except` in which it is skipped.",
        },
    }
)
FIRE: Mapping[str, Schema] = {
    "fire_id": ID,
    "fire_at": INSTANT,
    "last_fire_at": {
        **INSTANT,
        "description": "The last of fires in a row that were skipped for one reason.",
    },
    "count": COUNT,
    "requested": {"type": "boolean", "description": "Whether a client requested it."},
    "outcome": {"enum": [*FireOutcome]},
    "reason": TEXT_OR_NONE,
    "detail": TEXT_OR_NONE,
    "import_id": {"type": ["integer", "null"]},
    "import_status": {"enum": [*ImportStatus, None]},
    "decided_at": INSTANT,
}


def list_of(item: str, following: Schema) -> Schema:
    page: Mapping[str, Schema] = {
        "next": following,
        "has_more": {"type": "boolean"},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_SCHEDULES},
    }
    items = {"type": "array", "items": ref(item), "maxItems": MAX_SCHEDULES}
    return object_schema({"items": items, "page": object_schema(page)})


# the components of the document
SCHEMAS: Mapping[str, Schema] = {
    "Schedule": object_schema(SCHEDULE),
    "ScheduleDetails": object_schema(
        {**SCHEDULE, "upcoming": {"type": "array", "items": UPCOMING}}
    ),
    "ScheduleList": list_of(
        "Schedule", {**TEXT_OR_NONE, "description": "Send it as `cursor`."}
    ),
    "NewSchedule": {
        "type": "object",
        "properties": {"name": NAME, **FIELDS},
        "required": ["name", "dataset"],
        "additionalProperties": False,
    },
    "ScheduleChange": {
        "type": "object",
        "description": "Null removes a field.",
        "properties": {name: nullable(schema) for name, schema in FIELDS.items()},
        "additionalProperties": False,
    },
    "ScheduleFire": object_schema(FIRE),
    "ScheduleFireList": list_of(
        "ScheduleFire",
        {"type": ["integer", "null"], "description": "Send it as `before`."},
    ),
    "ScheduledImport": object_schema(
        {
            "import_id": ID,
            "schedule": NAME,
            "dataset": TEXT,
            "mode": {"enum": [*Mode]},
            "since": INSTANT_OR_NONE,
            "until": INSTANT,
            "created_at": INSTANT,
        }
    ),
}

LIMIT: Schema = query_parameter(
    "limit",
    "The maximum number on a page.",
    {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_SCHEDULES,
        "default": DEFAULT_SCHEDULES,
    },
)
LIST_PARAMETERS: Sequence[Schema] = [
    query_parameter(
        "status",
        "Only schedules with this status.",
        {"type": "string", "enum": [*ScheduleStatus]},
    ),
    DATASET,
    query_parameter(
        "sort",
        "By name by default; by a time, only those that have it.",
        {"type": "string", "enum": [*ScheduleOrder], "default": ScheduleOrder.NAME},
    ),
    query_parameter("cursor", "`page.next` of the same list.", TEXT),
    LIMIT,
]
FIRE_PARAMETERS: Sequence[Schema] = [
    query_parameter("before", "Only fires before this one: `page.next`.", ID),
    LIMIT,
]
IF_MATCH: Schema = {
    "name": "If-Match",
    "in": "header",
    "description": "The ETag of the schedule, or * for any.",
    "schema": {"type": "string"},
}
ETAG = {"ETag": header("ETag", required=True)}
DECLARED = error_response("It is declared in penstock.toml, or has changed meanwhile.")
LIST_RESPONSES: Mapping[int, Schema] = {
    200: response_object("A page of schedules.", ref("ScheduleList"))
}
GET_RESPONSES: Mapping[int, Schema] = {
    200: response_object("The schedule.", ref("ScheduleDetails"), headers=ETAG)
}
CREATE_RESPONSES: Mapping[int, Schema] = {
    201: response_object(
        "The new schedule.",
        ref("ScheduleDetails"),
        headers={
            **ETAG,
            "Location": {
                "description": "The path of the schedule.",
                "required": True,
                "schema": {"type": "string", "format": "uri-reference"},
            },
        },
    ),
    409: error_response("There is a schedule of this name."),
}
CHANGE_RESPONSES: Mapping[int, Schema] = {**GET_RESPONSES, 409: DECLARED}
DELETE_RESPONSES: Mapping[int, Schema] = {
    204: {"description": "The schedule is deleted, with its fires."},
    409: DECLARED,
}
STATUS_RESPONSES: Mapping[int, Schema] = {
    **GET_RESPONSES,
    409: error_response(
        "It is no longer declared, has ended, or has changed meanwhile."
    ),
}
FIRES_RESPONSES: Mapping[int, Schema] = {
    200: response_object("Its fires, the newest first.", ref("ScheduleFireList"))
}
BEGIN_RESPONSES: Mapping[int, Schema] = {
    202: response_object(
        "The import, which runs in the background.",
        ref("ScheduledImport"),
        headers={
            "Location": {
                "description": "The path of the import.",
                "required": True,
                "schema": {"type": "string", "format": "uri-reference"},
            }
        },
        links=import_links("getImport", "cancelImport"),
    ),
    409: error_response("An import of the kind is unfinished, or none can begin."),
}
PAUSE_REQUEST: Schema = {
    "required": False,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "note": {
                        "type": "string",
                        "maxLength": MAX_NOTE_LENGTH,
                        "pattern": NOTE_PATTERN,
                        "description": "Why, for those who look at it.",
                    }
                },
                "additionalProperties": False,
            }
        }
    },
}
BACKFILL_REQUEST: Schema = object_schema({"from": INSTANT, "until": INSTANT})
