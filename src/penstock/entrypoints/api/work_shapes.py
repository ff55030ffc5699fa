"""The pieces in which OpenAPI is told of imports, jobs and budgets."""

from penstock.entrypoints.api.parameters import LARGEST_ID
from penstock.entrypoints.api.schemas import Schema
from penstock.entrypoints.api.shapes import shape

PROBLEM = {
    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
}


def refusal(description: str) -> Schema:
    return {"description": description, "content": PROBLEM}


def query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def in_path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": ID}


def listed(items: Schema, *, most: int, address: str) -> Schema:
    page: dict[str, Schema] = {
        "next": {"type": ["integer", "null"], "description": address},
        "has_more": {"type": "boolean"},
        "limit": {"type": "integer", "minimum": 1, "maximum": most},
    }
    some = {"type": "array", "items": items, "maxItems": most}
    return shape({"items": some, "page": shape(page)})


ID: Schema = {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}
COUNT: Schema = {"type": "integer", "minimum": 0}
TEXT_OR_NONE: Schema = {"type": ["string", "null"]}
INSTANT: Schema = {"type": "string", "format": "date-time"}
INSTANT_OR_NONE: Schema = {"type": ["string", "null"], "format": "date-time"}
NUMBER_OR_NONE: Schema = {"type": ["number", "null"], "minimum": 0}
DATASET: Schema = query("dataset", "Only of this dataset.", {"type": "string"})
RECORDS: Schema = shape(
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
)
