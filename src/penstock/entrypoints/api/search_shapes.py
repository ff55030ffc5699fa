"""What OpenAPI says of searches, suggestions and facets."""

from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.queries.parameters import MOST_ROWS
from penstock.domain.queries.query import field_named
from penstock.domain.queries.search_parameters import (
    FACETS,
    LONGEST,
    MOST_FACETS,
    MOST_SUGGESTIONS,
    SEARCH,
    USUALLY_FOUND,
    USUALLY_SUGGESTED,
)
from penstock.entrypoints.api.dataset_shapes import number
from penstock.entrypoints.api.endpoints import Described
from penstock.entrypoints.api.record_shapes import conditions, fields_parameter
from penstock.entrypoints.api.schemas import Schema, ref, schema_name
from penstock.entrypoints.api.shapes import (
    CURSOR,
    IF_NONE_MATCH,
    NOT_MODIFIED,
    TOKEN,
    answer,
    header,
    shape,
)

COUNT: Schema = {"type": "integer", "minimum": 0}
TRUTH: Schema = {"type": "boolean"}


def described_search(dataset: Dataset) -> Described | None:
    if not dataset.search and dataset.geo is None:
        return None
    match = {
        "type": "object",
        "properties": {
            "score": {
                "type": "number",
                "description": "How well it fits, compared with others beside it.",
            },
            "km": {"type": "number", "minimum": 0},
        },
        "required": ["score"],
        "additionalProperties": False,
    }
    found = shape({"record": ref(schema_name(dataset.name)), "match": match})
    page = shape(
        {
            "next": {"type": ["string", "null"], "description": "The next cursor."},
            "has_more": TRUTH,
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS},
        }
    )
    about = shape(
        {
            "capped": {
                "type": "boolean",
                "description": "Whether more records fit than could be ranked.",
            },
            "forgiven": {
                "type": "object",
                "description": "As what else words were read, by the words.",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
            },
        }
    )
    items = {"type": "array", "items": found, "maxItems": MOST_ROWS}
    return told(
        [
            *([words(required=dataset.geo is None)] if dataset.search else []),
            *([NEAR, WITHIN] if dataset.geo else []),
            *conditions(dataset, reserved=SEARCH),
            fields_parameter(dataset),
            number("limit", "How many to find.", 1, MOST_ROWS, USUALLY_FOUND),
            CURSOR,
        ],
        "The best first, or the nearest.",
        shape({"items": items, "page": page, "search": about}),
        links=True,
    )


def described_suggest(dataset: Dataset) -> Described | None:
    if not dataset.search:
        return None
    suggestion = shape({"text": {"type": "string"}, "rows": COUNT})
    items = {"type": "array", "items": suggestion, "maxItems": MOST_SUGGESTIONS}
    return told(
        [
            words(required=True),
            number(
                "limit", "How many to tell.", 1, MOST_SUGGESTIONS, USUALLY_SUGGESTED
            ),
        ],
        "What was typed, completed; the most frequent first.",
        shape({"items": items}),
    )


def described_facets(dataset: Dataset) -> Described | None:
    counted = [
        name
        for name in dataset.filter
        if field_named(dataset, name).type is not FieldType.JSON
    ]
    if not counted:
        return None
    by = {
        "name": "by",
        "in": "query",
        "description": "The fields to count by; all, unless given.",
        "style": "form",
        "explode": False,
        "schema": {
            "type": "array",
            "items": {"type": "string", "enum": counted},
            "minItems": 1,
            "maxItems": MOST_FACETS,
        },
    }
    return told(
        [
            by,
            *([words(required=False)] if dataset.search else []),
            *conditions(dataset, reserved=FACETS),
        ],
        "How many records have which values.",
        shape(
            {
                "facets": {"type": "array", "items": facet_schema(counted)},
                "rows": COUNT,
                "sampled": {
                    "type": "boolean",
                    "description": "Whether only some of the records were counted.",
                },
            }
        ),
    )


def facet_schema(counted: list[str]) -> Schema:
    value = {"type": ["string", "number", "boolean"]}
    bound = {"type": ["string", "number"]}
    return shape(
        {
            "field": {"type": "string", "enum": counted},
            "values": {
                "type": "array",
                "items": shape({"value": value, "rows": COUNT}),
            },
            "ranges": {
                "type": "array",
                "items": shape({"start": bound, "end": bound, "rows": COUNT}),
            },
            "others": COUNT,
            "missing": COUNT,
        }
    )


def told(
    parameters: list[Schema], description: str, schema: Schema, *, links: bool = False
) -> Described:
    headers = {"ETag": header("ETag", required=True)}
    if links:
        headers["Link"] = header("Link")
    return Described(
        parameters=[*parameters, TOKEN, IF_NONE_MATCH],
        answers={200: answer(description, schema, headers=headers), 304: NOT_MODIFIED},
    )


def words(*, required: bool) -> Schema:
    return {
        "name": "q",
        "in": "query",
        "required": required,
        "description": "Words, in any script; the last one may be unfinished.",
        "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST},
        "example": "berlin mitte",
    }


NEAR: Schema = {
    "name": "near",
    "in": "query",
    "description": (
        "Latitude and longitude in degrees, such as `52.52,13.40`; the nearest come "
        "first."
    ),
    "schema": {
        "type": "string",
        "pattern": (
            r"^-?(?:90(?:\.0+)?|[1-8]?[0-9](?:\.[0-9]+)?),"
            r"-?(?:180(?:\.0+)?|(?:1[0-7][0-9]|[1-9]?[0-9])(?:\.[0-9]+)?)$"
        ),
    },
}
WITHIN: Schema = {
    "name": "within",
    "in": "query",
    "description": "With `near`: no farther away than so many kilometres.",
    "schema": {"type": "number", "exclusiveMinimum": 0},
}
