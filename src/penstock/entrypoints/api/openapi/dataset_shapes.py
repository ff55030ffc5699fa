"""OpenAPI for the datasets themselves and their feeds of changes."""

from collections.abc import Mapping

from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.history import MAX_CHANGE_SEQ, POSITION_PATTERN
from penstock.domain.search.filter_params import DEFAULT_LIMIT
from penstock.domain.search.query import field_named
from penstock.entrypoints.api.endpoints import OperationDoc
from penstock.entrypoints.api.openapi.schemas import (
    TYPES,
    NamedSchema,
    Schema,
    ref,
    schema_name,
)
from penstock.entrypoints.api.openapi.shapes import (
    IF_NONE_MATCH,
    NOT_MODIFIED,
    TOKEN,
    header,
    object_schema,
    response_object,
)

MAX_CHANGES = 1_000
# seconds that a client may wait for the next change
MAX_WAIT = 30

FRESHNESS: Mapping[str, Schema] = {
    "generation": {
        "type": "integer",
        "minimum": 0,
        "description": "Increases whenever the served data changes.",
    },
    "change_seq": {
        "type": "integer",
        "minimum": 0,
        "description": "The number of the last change.",
    },
    "watermark": {
        "type": ["string", "null"],
        "format": "date-time",
        "description": "The provider's time at the start of the last complete import.",
    },
}


COUNT: Schema = {
    "anyOf": [ref("Count"), {"type": "null"}],
    "description": "How many records it has; null if counting takes too long.",
}
SCHEMAS: Mapping[str, Schema] = {
    "DatasetList": object_schema(
        {
            "items": {
                "type": "array",
                "items": object_schema(
                    {"name": {"type": "string"}, **FRESHNESS, "count": COUNT}
                ),
            }
        }
    ),
    "DatasetDescription": object_schema(
        {
            "name": {"type": "string"},
            "key": {"type": "array", "items": {"type": "string"}},
            "fields": {
                "type": "array",
                "items": object_schema(
                    {
                        "name": {"type": "string"},
                        "type": {"enum": [*FieldType]},
                        "required": {"type": "boolean"},
                        "local": {"type": "boolean"},
                    }
                ),
            },
            "filter": {"type": "array", "items": {"type": "string"}},
            "search": {"type": "array", "items": {"type": "string"}},
            "geo": {"type": ["array", "null"], "items": {"type": "string"}},
            **FRESHNESS,
            "count": COUNT,
        }
    ),
}


def describe_dataset(dataset: Dataset) -> OperationDoc:
    del dataset
    return OperationDoc(
        parameters=[TOKEN, IF_NONE_MATCH],
        responses={
            200: response_object(
                "Its fields, its freshness, and its number of records.",
                ref("DatasetDescription"),
                headers={"ETag": header("ETag", required=True)},
            ),
            304: NOT_MODIFIED,
        },
    )


def describe_changes(dataset: Dataset) -> OperationDoc:
    types = {TYPES[field_named(dataset, name).type]["type"] for name in dataset.key}
    key = {
        "type": "array",
        "items": {"type": sorted(types)},
        "minItems": len(dataset.key),
        "maxItems": len(dataset.key),
    }
    name = schema_name(dataset.name)
    change = NamedSchema(
        f"{name}Change",
        object_schema(
            {
                "seq": {"type": "integer", "minimum": 1},
                "kind": {"enum": ["created", "updated", "deleted"]},
                "key": key,
                "import_id": {
                    "type": ["integer", "null"],
                    "description": "The import that made it; null if a client did.",
                },
                "at": {"type": "string", "format": "date-time"},
            }
        ),
    )
    page = NamedSchema(
        f"{name}ChangeList",
        object_schema(
            {
                "items": {"type": "array", "items": change, "maxItems": MAX_CHANGES},
                "after": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "The number of the last change in this response.",
                },
                "next": {
                    "type": "string",
                    "pattern": f"^{POSITION_PATTERN}$",
                    "description": "Send it as `after` in the next request: the number "
                    "of the last change, and a tag that detects a restored database.",
                },
                "has_more": {"type": "boolean"},
            }
        ),
    )
    return OperationDoc(
        parameters=[
            {
                "name": "after",
                "in": "query",
                "description": "The last change that was received: `next` of a "
                "response, or a number alone.",
                "schema": {
                    "anyOf": [
                        {"type": "integer", "minimum": 0, "maximum": MAX_CHANGE_SEQ},
                        {"type": "string", "pattern": f"^{POSITION_PATTERN}$"},
                    ],
                    "default": 0,
                },
            },
            integer_parameter(
                "limit", "The maximum number of changes.", 1, MAX_CHANGES, DEFAULT_LIMIT
            ),
            integer_parameter(
                "wait",
                "How many seconds to wait for a change if there is none.",
                0,
                MAX_WAIT,
            ),
        ],
        responses={
            200: response_object(
                "The changes, in the order of their commits.",
                page,
                headers={"X-Consistency-Token": header("Token", required=True)},
            )
        },
    )


def integer_parameter(
    name: str,
    description: str,
    minimum: int,
    maximum: int = 2**63 - 1,
    default: int = 0,
) -> Schema:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {
            "type": "integer",
            "minimum": minimum,
            "maximum": maximum,
            "default": default,
        },
    }
