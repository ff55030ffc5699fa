"""The pieces that OpenAPI is told in: answers, bodies, headers, common parameters."""

from collections.abc import Mapping
from typing import Any

from penstock.domain.queries.cursor import LONGEST
from penstock.entrypoints.api.schemas import Schema


def shape(properties: Mapping[str, Schema]) -> Schema:
    """Say that an object has these and nothing else."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def answer(
    description: str,
    schema: Schema,
    *,
    media: str = "application/json",
    headers: Mapping[str, Any] | None = None,
    links: Mapping[str, Any] | None = None,
) -> Schema:
    return {
        "description": description,
        "content": {media: {"schema": schema}},
        **({"headers": headers} if headers else {}),
        **({"links": links} if links else {}),
    }


def body(schema: Schema, *media_types: str) -> Schema:
    types = media_types or ("application/json",)
    return {"required": True, "content": {each: {"schema": schema} for each in types}}


def header(name: str, *, required: bool = False) -> Schema:
    # a reference cannot say whether it is always there
    return {**HEADERS[name], "required": True} if required else header_ref(name)


def header_ref(name: str) -> Schema:
    return {"$ref": f"#/components/headers/{name}"}


HEADERS: Mapping[str, Schema] = {
    "ETag": {
        "description": "The version of this answer; send it as If-None-Match.",
        "schema": {"type": "string"},
    },
    "Allow": {
        "description": "The methods that this address has.",
        "schema": {"type": "string"},
    },
    "Link": {
        "description": 'Where the next and the previous page are: rel="next", "prev".',
        "schema": {"type": "string"},
    },
    "Location": {
        "description": "The address of the record.",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    "PreferenceApplied": {
        "description": "What of Prefer was understood.",
        "schema": {"type": "string"},
    },
    "Token": {
        "description": (
            "Send it as X-Consistency-Token to read what was written, whichever "
            "process answers."
        ),
        "schema": {"type": "string"},
    },
    "RetryAfter": {
        "description": "Seconds to wait.",
        "schema": {"type": "integer", "minimum": 0},
    },
}

CURSOR: Schema = {
    "name": "cursor",
    "in": "query",
    "description": (
        "`next` or `prev` of another page of the same list: with the same conditions "
        "and sort."
    ),
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$", "maxLength": LONGEST},
}
PREFER: Schema = {
    "name": "Prefer",
    "in": "header",
    "description": (
        "`count=exact` counts the records, `count=planned` estimates their number, "
        "`count=none` does neither."
    ),
    "schema": {"type": "string"},
}
TOKEN: Schema = {
    "name": "X-Consistency-Token",
    "in": "header",
    "description": (
        "What a change, or news of one, was answered with: the answer is not older."
    ),
    "schema": {"type": "string"},
}
IF_NONE_MATCH: Schema = {
    "name": "If-None-Match",
    "in": "header",
    "description": "Versions that are known; if it is one of them, 304 is answered.",
    "schema": {"type": "string"},
}
MATCH: Schema = {
    "name": "If-Match",
    "in": "header",
    "description": "Versions that the change is meant for, as ETag has them, or *.",
    "schema": {"type": "string"},
}
MUST_BE_NEW: Schema = {
    "name": "If-None-Match",
    "in": "header",
    "description": "With *, only a record that is not there yet is written.",
    "schema": {"type": "string", "enum": ["*"]},
}
NOT_MODIFIED: Schema = {
    "description": "The known version is still the right one.",
    "headers": {"ETag": header("ETag", required=True)},
}
