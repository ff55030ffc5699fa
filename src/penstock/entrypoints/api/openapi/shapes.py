"""Building blocks of the OpenAPI document: responses, bodies, headers, parameters."""

from collections.abc import Mapping
from typing import Any

from penstock.domain.search.list_cursor import MAX_CURSOR_LENGTH
from penstock.entrypoints.api.openapi.schemas import Schema


def object_schema(properties: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object with exactly these properties, all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def response_object(
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


def request_body(schema: Schema, *media_types: str) -> Schema:
    types = media_types or ("application/json",)
    return {
        "required": True,
        "content": {media_type: {"schema": schema} for media_type in types},
    }


def header(name: str, *, required: bool = False) -> Schema:
    # a $ref cannot carry `required`
    return {**HEADERS[name], "required": True} if required else header_ref(name)


def header_ref(name: str) -> Schema:
    return {"$ref": f"#/components/headers/{name}"}


HEADERS: Mapping[str, Schema] = {
    "ETag": {
        "description": "The version of this response; send it as If-None-Match.",
        "schema": {"type": "string"},
    },
    "Allow": {
        "description": "The methods that this path supports.",
        "schema": {"type": "string"},
    },
    "Link": {
        "description": 'URLs of the next and previous page: rel="next", rel="prev".',
        "schema": {"type": "string"},
    },
    "Location": {
        "description": "The path of the record.",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    "PreferenceApplied": {
        "description": "The preferences that were applied.",
        "schema": {"type": "string"},
    },
    "Token": {
        "description": (
            "Send it as X-Consistency-Token to read at least this version, from any "
            "process."
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
        "`next` or `prev` of another page of the same list, with the same filters "
        "and sort."
    ),
    "schema": {
        "type": "string",
        "pattern": "^[A-Za-z0-9_-]+$",
        "maxLength": MAX_CURSOR_LENGTH,
    },
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
        "The token of a write or of a list of changes: the response is at least as new."
    ),
    "schema": {"type": "string"},
}
IF_NONE_MATCH: Schema = {
    "name": "If-None-Match",
    "in": "header",
    "description": "ETags of cached responses; if one is current, the response is 304.",
    "schema": {"type": "string"},
}
MATCH: Schema = {
    "name": "If-Match",
    "in": "header",
    "description": "The ETags that the record may have, or * for any.",
    "schema": {"type": "string"},
}
MUST_BE_NEW: Schema = {
    "name": "If-None-Match",
    "in": "header",
    "description": "With *, the record is written only if it does not exist yet.",
    "schema": {"type": "string", "enum": ["*"]},
}
NOT_MODIFIED: Schema = {
    "description": "The cached version is current.",
    "headers": {"ETag": header("ETag", required=True)},
}
