"""OpenAPI for the records of a dataset: parameters, bodies, responses, links."""

from collections.abc import Iterator, Mapping, Sequence

from penstock.domain.dataset import Dataset
from penstock.domain.search.filter_params import (
    ARCHIVED,
    DEFAULT_LIMIT,
    FIELD_PREFIX,
    MAX_CONDITIONS_PER_FIELD,
    MAX_ROWS,
    RESERVED_PARAMS,
    ExportFormat,
    reserved_params,
)
from penstock.domain.search.query import field_named, filterable_fields
from penstock.entrypoints.api.endpoints import OperationDoc
from penstock.entrypoints.api.openapi.schemas import (
    FILTER_DESCRIPTIONS,
    TYPES,
    NamedSchema,
    Schema,
    filter_name,
    key_parameters,
    ref,
    schema_name,
)
from penstock.entrypoints.api.openapi.shapes import (
    CURSOR,
    IF_NONE_MATCH,
    MATCH,
    MUST_BE_NEW,
    NOT_MODIFIED,
    PREFER,
    TOKEN,
    header,
    object_schema,
    request_body,
    response_object,
)
from penstock.flow.edit_records import MAX_RECORDS_PER_REQUEST
from penstock.ports.record_access import CountKind

JSON_TYPES = ("application/json", "application/merge-patch+json")
# a runtime expression: the version in the header of the response
ETAG = "$response.header.ETag"


def describe_list(dataset: Dataset) -> OperationDoc:
    name = schema_name(dataset.name)
    return OperationDoc(
        parameters=[
            *filter_parameters(dataset, reserved=reserved_params(dataset)),
            sort_parameter(dataset),
            fields_parameter(dataset),
            *archive_parameters(dataset),
            LIMIT,
            CURSOR,
            PREFER,
            TOKEN,
            IF_NONE_MATCH,
        ],
        responses={
            200: response_object(
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


def describe_get(dataset: Dataset) -> OperationDoc:
    name = schema_name(dataset.name)
    return OperationDoc(
        parameters=[
            *key_parameters(dataset),
            fields_parameter(dataset),
            *archive_parameters(dataset),
            TOKEN,
            IF_NONE_MATCH,
        ],
        responses={
            200: response_object(
                "The record.",
                ref(name),
                headers={"ETag": header("ETag", required=True)},
                links=dict(record_links(dataset, "$request.path.", version=ETAG)),
            ),
            304: NOT_MODIFIED,
        },
    )


def describe_put(dataset: Dataset) -> OperationDoc:
    name = schema_name(dataset.name)
    return OperationDoc(
        parameters=[*key_parameters(dataset), MATCH, MUST_BE_NEW],
        body=request_body(ref(f"{name}Body")),
        responses={
            200: record_response(dataset, "The record as it is stored now."),
            201: record_response(dataset, "The created record."),
        },
    )


def describe_patch(dataset: Dataset) -> OperationDoc:
    name = schema_name(dataset.name)
    return OperationDoc(
        parameters=[*key_parameters(dataset), MATCH],
        body=request_body(ref(f"{name}Patch"), *JSON_TYPES),
        responses={200: record_response(dataset, "The record as it is stored now.")},
    )


def describe_delete(dataset: Dataset) -> OperationDoc:
    return OperationDoc(
        parameters=[*key_parameters(dataset), MATCH],
        responses={
            204: {
                "description": "The record is deleted.",
                "headers": {"X-Consistency-Token": header("Token", required=True)},
            }
        },
    )


def describe_upsert(dataset: Dataset) -> OperationDoc:
    name = schema_name(dataset.name)
    rows = {
        "type": "array",
        "items": ref(f"{name}Row"),
        "minItems": 1,
        "maxItems": MAX_RECORDS_PER_REQUEST,
    }
    return OperationDoc(
        body=request_body(rows),
        responses={
            200: response_object(
                "The versions of the records, in the order of the request; if a key "
                "is repeated, the last record wins.",
                upsert_schema(dataset),
                headers={"X-Consistency-Token": header("Token", required=True)},
                links=dict(
                    record_links(
                        dataset,
                        "$response.body#/items/0/key/",
                        version="$response.body#/items/0/etag",
                    )
                ),
            )
        },
    )


def record_response(dataset: Dataset, description: str) -> Schema:
    return response_object(
        description,
        ref(schema_name(dataset.name)),
        headers={
            "ETag": header("ETag", required=True),
            "Location": header("Location", required=True),
            "X-Consistency-Token": header("Token", required=True),
        },
        links=dict(record_links(dataset, "$request.path.", version=ETAG)),
    )


def record_links(
    dataset: Dataset, source: str, *, version: str
) -> Iterator[tuple[str, Schema]]:
    """Yield links to the operations on a record.

    `source` and `version` are the runtime expressions of its key and its version.
    """
    name = schema_name(dataset.name)
    key = {f"path.{field}": f"{source}{field}" for field in dataset.key}
    with_version = {**key, "header.If-Match": version}
    yield f"get{name}", {"operationId": f"get{name}", "parameters": key}
    yield f"put{name}", {"operationId": f"put{name}", "parameters": with_version}
    yield f"patch{name}", {"operationId": f"patch{name}", "parameters": with_version}
    yield f"delete{name}", {"operationId": f"delete{name}", "parameters": with_version}


def filter_parameters(
    dataset: Dataset, *, reserved: frozenset[str] = RESERVED_PARAMS
) -> Iterator[Schema]:
    for name, field in filterable_fields(dataset).items():
        yield {
            "name": f"{FIELD_PREFIX}{name}" if name in reserved else name,
            "in": "query",
            "description": f"All must be true. {FILTER_DESCRIPTIONS[field.type]}",
            "schema": {
                "type": "array",
                "items": ref(filter_name(field.type)),
                "minItems": 1,
                "maxItems": MAX_CONDITIONS_PER_FIELD,
            },
        }


def archive_parameters(dataset: Dataset) -> Iterator[Schema]:
    if dataset.archive is not None:
        yield {
            "name": ARCHIVED,
            "in": "query",
            "description": "Read the archive instead, of rows gone from the source.",
            "schema": {"type": "boolean", "default": False},
        }


def sort_parameter(dataset: Dataset) -> Schema:
    names = [*filterable_fields(dataset)]
    return {
        "name": "sort",
        "in": "query",
        "description": (
            "Sort by this field, then by the key; descending with a minus. Records "
            "without a value come last."
        ),
        "schema": {"type": "string", "enum": [*names, *(f"-{name}" for name in names)]},
    }


def fields_parameter(dataset: Dataset) -> Schema:
    return {
        "name": "fields",
        "in": "query",
        "description": "The fields to return, repeated or with commas; all by default.",
        "schema": {
            "type": "array",
            "items": {
                "type": "string",
                "enum": [field.name for field in dataset.fields],
            },
            "minItems": 1,
        },
    }


def upsert_schema(dataset: Dataset) -> Schema:
    key = {name: TYPES[field_named(dataset, name).type] for name in dataset.key}
    written = NamedSchema(
        f"{schema_name(dataset.name)}Written",
        object_schema({"key": object_schema(key), "etag": {"type": "string"}}),
    )
    count = {"type": "integer", "minimum": 0, "maximum": MAX_RECORDS_PER_REQUEST}
    items = {"type": "array", "items": written, "maxItems": MAX_RECORDS_PER_REQUEST}
    return object_schema({"created": count, "updated": count, "items": items})


def page_schema(name: str) -> Schema:
    return NamedSchema(
        f"{name}List",
        {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": ref(name), "maxItems": MAX_ROWS},
                "page": ref("Page"),
                "count": ref("Count"),
            },
            "required": ["items", "page"],
            "additionalProperties": False,
        },
    )


EXPORT_PARAMETERS: Sequence[Schema] = (
    {
        "name": "format",
        "in": "query",
        "description": "One JSON object a line, or CSV with a header.",
        "schema": {
            "type": "string",
            "enum": [*ExportFormat],
            "default": ExportFormat.JSONL,
        },
    },
    {
        "name": "raw",
        "in": "query",
        "description": "CSV: do not put an apostrophe before text that a spreadsheet "
        "would run as a formula.",
        "schema": {"type": "boolean", "default": False},
    },
)
LIMIT: Schema = {
    "name": "limit",
    "in": "query",
    "description": "The maximum number of records on a page.",
    "schema": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_ROWS,
        "default": DEFAULT_LIMIT,
    },
}
SCHEMAS: Mapping[str, Schema] = {
    "Page": object_schema(
        {
            "next": {"type": ["string", "null"], "description": "The next cursor."},
            "prev": {"type": ["string", "null"], "description": "The previous one."},
            "has_more": {"type": "boolean"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_ROWS},
        }
    ),
    "Count": object_schema(
        {
            "value": {"type": "integer", "minimum": 0},
            "kind": {
                "enum": [kind for kind in CountKind if kind is not CountKind.NONE],
                "description": (
                    "`exact`; `planned`, the estimate of the database; `capped`, a "
                    "lower bound."
                ),
            },
        }
    ),
}
