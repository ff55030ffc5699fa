"""What OpenAPI says of the records of a dataset: parameters, bodies, answers, links."""

from collections.abc import Iterator, Mapping

from penstock.domain.dataset import Dataset
from penstock.domain.queries.parameters import (
    DEFAULT_LIMIT,
    MOST_OF_A_FIELD,
    MOST_ROWS,
    PREFIX,
    RESERVED,
)
from penstock.domain.queries.query import field_named, filterable
from penstock.entrypoints.api.endpoints import Described
from penstock.entrypoints.api.schemas import (
    FILTERS_TOLD,
    TYPES,
    Schema,
    filter_name,
    key_parameters,
    ref,
    schema_name,
)
from penstock.entrypoints.api.shapes import (
    CURSOR,
    IF_NONE_MATCH,
    MATCH,
    MUST_BE_NEW,
    NOT_MODIFIED,
    PREFER,
    TOKEN,
    answer,
    body,
    header,
    shape,
)
from penstock.flow.edit_records import MOST_AT_ONCE
from penstock.ports.serving import CountKind

JSON_TYPES = ("application/json", "application/merge-patch+json")
# where an answer has its version
ETAG = "$response.header.ETag"


def described_list(dataset: Dataset) -> Described:
    name = schema_name(dataset.name)
    return Described(
        parameters=[
            *conditions(dataset),
            sort_parameter(dataset),
            fields_parameter(dataset),
            LIMIT,
            CURSOR,
            PREFER,
            TOKEN,
            IF_NONE_MATCH,
        ],
        answers={
            200: answer(
                "A page of records.",
                page_schema(name),
                headers={
                    "ETag": header("ETag", required=True),
                    "Link": header("Link"),
                    "Preference-Applied": header("PreferenceApplied"),
                },
            ),
            304: NOT_MODIFIED,
        },
    )


def described_get(dataset: Dataset) -> Described:
    name = schema_name(dataset.name)
    return Described(
        parameters=[
            *key_parameters(dataset),
            fields_parameter(dataset),
            TOKEN,
            IF_NONE_MATCH,
        ],
        answers={
            200: answer(
                "The record.",
                ref(name),
                headers={"ETag": header("ETag", required=True)},
                links=dict(links(dataset, "$request.path.", version=ETAG)),
            ),
            304: NOT_MODIFIED,
        },
    )


def described_put(dataset: Dataset) -> Described:
    name = schema_name(dataset.name)
    return Described(
        parameters=[*key_parameters(dataset), MATCH, MUST_BE_NEW],
        body=body(ref(f"{name}Body")),
        answers={
            200: stored(dataset, "The record as it is stored now."),
            201: stored(dataset, "The record, which is new."),
        },
    )


def described_patch(dataset: Dataset) -> Described:
    name = schema_name(dataset.name)
    return Described(
        parameters=[*key_parameters(dataset), MATCH],
        body=body(ref(f"{name}Patch"), *JSON_TYPES),
        answers={200: stored(dataset, "The record as it is stored now.")},
    )


def described_delete(dataset: Dataset) -> Described:
    return Described(
        parameters=[*key_parameters(dataset), MATCH],
        answers={
            204: {
                "description": "It is deleted.",
                "headers": {"X-Consistency-Token": header("Token", required=True)},
            }
        },
    )


def described_upsert(dataset: Dataset) -> Described:
    name = schema_name(dataset.name)
    rows = {
        "type": "array",
        "items": ref(f"{name}Row"),
        "minItems": 1,
        "maxItems": MOST_AT_ONCE,
    }
    return Described(
        body=body(rows),
        answers={
            200: answer(
                "The versions of the records, in the order in which they were sent; "
                "of a key that came twice, the last one counts.",
                upserted_schema(dataset),
                headers={"X-Consistency-Token": header("Token", required=True)},
                links=dict(
                    links(
                        dataset,
                        "$response.body#/items/0/key/",
                        version="$response.body#/items/0/etag",
                    )
                ),
            )
        },
    )


def stored(dataset: Dataset, description: str) -> Schema:
    return answer(
        description,
        ref(schema_name(dataset.name)),
        headers={
            "ETag": header("ETag", required=True),
            "Location": header("Location", required=True),
            "X-Consistency-Token": header("Token", required=True),
        },
        links=dict(links(dataset, "$request.path.", version=ETAG)),
    )


def links(
    dataset: Dataset, source: str, *, version: str
) -> Iterator[tuple[str, Schema]]:
    """Yield what can be done next with a record, by where its key and version stand."""
    name = schema_name(dataset.name)
    key = {f"path.{each}": f"{source}{each}" for each in dataset.key}
    guarded = {**key, "header.If-Match": version}
    yield f"get{name}", {"operationId": f"get{name}", "parameters": key}
    yield f"put{name}", {"operationId": f"put{name}", "parameters": guarded}
    yield f"patch{name}", {"operationId": f"patch{name}", "parameters": guarded}
    yield f"delete{name}", {"operationId": f"delete{name}", "parameters": guarded}


def conditions(
    dataset: Dataset, *, reserved: frozenset[str] = RESERVED
) -> Iterator[Schema]:
    for name, field in filterable(dataset).items():
        yield {
            "name": f"{PREFIX}{name}" if name in reserved else name,
            "in": "query",
            "description": f"All must hold. {FILTERS_TOLD[field.type]}",
            "schema": {
                "type": "array",
                "items": ref(filter_name(field.type)),
                "minItems": 1,
                "maxItems": MOST_OF_A_FIELD,
            },
        }


def sort_parameter(dataset: Dataset) -> Schema:
    names = [*filterable(dataset)]
    return {
        "name": "sort",
        "in": "query",
        "description": (
            "By this field, then by the key; with a minus downwards. Records without "
            "a value come last."
        ),
        "schema": {"type": "string", "enum": [*names, *(f"-{each}" for each in names)]},
    }


def fields_parameter(dataset: Dataset) -> Schema:
    return {
        "name": "fields",
        "in": "query",
        "description": "The fields that are wanted; all, unless given.",
        "style": "form",
        "explode": False,
        "schema": {
            "type": "array",
            "items": {"type": "string", "enum": [each.name for each in dataset.fields]},
            "minItems": 1,
        },
    }


def upserted_schema(dataset: Dataset) -> Schema:
    key = {name: TYPES[field_named(dataset, name).type] for name in dataset.key}
    written = shape({"key": shape(key), "etag": {"type": "string"}})
    count = {"type": "integer", "minimum": 0, "maximum": MOST_AT_ONCE}
    items = {"type": "array", "items": written, "maxItems": MOST_AT_ONCE}
    return shape({"created": count, "updated": count, "items": items})


def page_schema(name: str) -> Schema:
    return {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": ref(name), "maxItems": MOST_ROWS},
            "page": ref("Page"),
            "count": ref("Count"),
        },
        "required": ["items", "page"],
        "additionalProperties": False,
    }


LIMIT: Schema = {
    "name": "limit",
    "in": "query",
    "description": "How many records a page has.",
    "schema": {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_ROWS,
        "default": DEFAULT_LIMIT,
    },
}
SCHEMAS: Mapping[str, Schema] = {
    "Page": shape(
        {
            "next": {"type": ["string", "null"], "description": "The next cursor."},
            "prev": {"type": ["string", "null"], "description": "The previous one."},
            "has_more": {"type": "boolean"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS},
        }
    ),
    "Count": shape(
        {
            "value": {"type": "integer", "minimum": 0},
            "kind": {
                "enum": [each for each in CountKind if each is not CountKind.NONE],
                "description": (
                    "`exact`; `planned`, what the database expects; `capped`, at "
                    "least so many."
                ),
            },
        }
    ),
}
