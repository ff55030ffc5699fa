"""What OpenAPI says of the datasets themselves, and of what changed in them."""

from collections.abc import Mapping

from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.history import LARGEST_NUMBER, PATTERN
from penstock.domain.queries.parameters import DEFAULT_LIMIT
from penstock.domain.queries.query import field_named
from penstock.entrypoints.api.endpoints import Described
from penstock.entrypoints.api.schemas import TYPES, Schema, ref
from penstock.entrypoints.api.shapes import (
    IF_NONE_MATCH,
    NOT_MODIFIED,
    TOKEN,
    answer,
    header,
    shape,
)

MOST_CHANGES = 1_000
# seconds that a client may wait for the next change
LONGEST_WAIT = 30

FRESHNESS: Mapping[str, Schema] = {
    "generation": {
        "type": "integer",
        "minimum": 0,
        "description": "Rises whenever what is served has changed.",
    },
    "change_seq": {
        "type": "integer",
        "minimum": 0,
        "description": "The number of the last change.",
    },
    "watermark": {
        "type": ["string", "null"],
        "format": "date-time",
        "description": "The provider's time at the start of the last whole import.",
    },
}


COUNT: Schema = {
    "anyOf": [ref("Count"), {"type": "null"}],
    "description": "How many records it has; null if that is not known in a moment.",
}
SCHEMAS: Mapping[str, Schema] = {
    "DatasetList": shape(
        {
            "items": {
                "type": "array",
                "items": shape(
                    {"name": {"type": "string"}, **FRESHNESS, "count": COUNT}
                ),
            }
        }
    ),
    "DatasetDescription": shape(
        {
            "name": {"type": "string"},
            "key": {"type": "array", "items": {"type": "string"}},
            "fields": {
                "type": "array",
                "items": shape(
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


def described_dataset(dataset: Dataset) -> Described:
    del dataset
    return Described(
        parameters=[TOKEN, IF_NONE_MATCH],
        answers={
            200: answer(
                "Its fields, how fresh it is, and how many records it has.",
                ref("DatasetDescription"),
                headers={"ETag": header("ETag", required=True)},
            ),
            304: NOT_MODIFIED,
        },
    )


def described_changes(dataset: Dataset) -> Described:
    kinds = {TYPES[field_named(dataset, name).type]["type"] for name in dataset.key}
    key = {
        "type": "array",
        "items": {"type": sorted(kinds)},
        "minItems": len(dataset.key),
        "maxItems": len(dataset.key),
    }
    change = shape(
        {
            "seq": {"type": "integer", "minimum": 1},
            "kind": {"enum": ["created", "updated", "deleted"]},
            "key": key,
            "import_id": {
                "type": ["integer", "null"],
                "description": "The import that brought it; none where a client did.",
            },
            "at": {"type": "string", "format": "date-time"},
        }
    )
    page = shape(
        {
            "items": {"type": "array", "items": change, "maxItems": MOST_CHANGES},
            "after": {
                "type": "integer",
                "minimum": 0,
                "description": "The number of the last change that was told.",
            },
            "next": {
                "type": "string",
                "pattern": f"^{PATTERN}$",
                "description": "Ask for what comes after this one next: its number, "
                "and a tag by which it is known whether the database was put back.",
            },
            "has_more": {"type": "boolean"},
        }
    )
    return Described(
        parameters=[
            {
                "name": "after",
                "in": "query",
                "description": "The last change that is known: 'next' of an answer, "
                "or a number alone.",
                "schema": {
                    "anyOf": [
                        {"type": "integer", "minimum": 0, "maximum": LARGEST_NUMBER},
                        {"type": "string", "pattern": f"^{PATTERN}$"},
                    ],
                    "default": 0,
                },
            },
            number(
                "limit", "How many changes to tell.", 1, MOST_CHANGES, DEFAULT_LIMIT
            ),
            number(
                "wait",
                "How many seconds to wait for a change if there is none yet.",
                0,
                LONGEST_WAIT,
            ),
        ],
        answers={
            200: answer(
                "What changed, in the order of commits.",
                page,
                headers={"X-Consistency-Token": header("Token", required=True)},
            )
        },
    )


def number(
    name: str, told: str, least: int, most: int = 2**63 - 1, default: int = 0
) -> Schema:
    return {
        "name": name,
        "in": "query",
        "description": told,
        "schema": {
            "type": "integer",
            "minimum": least,
            "maximum": most,
            "default": default,
        },
    }
