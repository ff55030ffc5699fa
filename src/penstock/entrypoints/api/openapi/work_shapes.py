"""Building blocks of the OpenAPI document for imports, jobs and budgets."""

from penstock.entrypoints.api.openapi.schemas import NamedSchema, Schema
from penstock.entrypoints.api.openapi.shapes import object_schema
from penstock.entrypoints.api.params.query_params import MAX_ID

PROBLEM = {
    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
}


def error_response(description: str) -> Schema:
    return {"description": description, "content": PROBLEM}


def query_parameter(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def id_parameter(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": ID}


def list_schema(name: str, items: Schema, *, max_items: int) -> Schema:
    page: dict[str, Schema] = {
        "next": {
            "type": ["integer", "null"],
            "description": "Send it as `after`, or as `before` for imports.",
        },
        "has_more": {"type": "boolean"},
        "limit": {"type": "integer", "minimum": 1},
    }
    array = {"type": "array", "items": items, "maxItems": max_items}
    shape = NamedSchema("PageOfIds", object_schema(page))
    return NamedSchema(name, object_schema({"items": array, "page": shape}))


ID: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_ID}
COUNT: Schema = {"type": "integer", "minimum": 0}
TEXT_OR_NONE: Schema = {"type": ["string", "null"]}
INSTANT: Schema = {"type": "string", "format": "date-time"}
INSTANT_OR_NONE: Schema = {"type": ["string", "null"], "format": "date-time"}
NUMBER_OR_NONE: Schema = {"type": ["number", "null"], "minimum": 0}
DATASET: Schema = query_parameter(
    "dataset", "Only of this dataset.", {"type": "string"}
)
RECORDS: Schema = NamedSchema(
    "RecordCounts",
    object_schema(
        dict.fromkeys(
            (
                "seen",
                "inserted",
                "updated",
                "unchanged",
                "deleted",
                "quarantined",
                "dropped",
                "duplicates",
            ),
            COUNT,
        )
    ),
)
