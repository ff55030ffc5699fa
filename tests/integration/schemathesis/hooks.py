"""What Schemathesis cannot make up, taken from the document before it reads it."""

import os
from typing import Any

import schemathesis

# cursors are given out by lists, and every other one is refused; within needs near; and
# nobody here has the time to wait for changes
GIVEN = frozenset({"cursor", "within", "wait"})
# versions that are made up let no change through
PRECONDITIONS = frozenset({"If-Match", "If-None-Match"})
# what the document says of fields of JSON in words, as generators of clients cannot
# cope with a schema that refers to itself
ANY_JSON = {
    "anyOf": [
        {"type": ["null", "boolean", "number"]},
        {"type": "string", "pattern": r"^[^\x00]*$"},
        {"type": "array", "items": {"$ref": "#/components/schemas/AnyJson"}},
        {
            "type": "object",
            "propertyNames": {"pattern": r"^[^\x00]*$"},
            "additionalProperties": {"$ref": "#/components/schemas/AnyJson"},
        },
    ],
}


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    del context
    left_out = GIVEN
    if "WITHOUT_PRECONDITIONS" in os.environ:
        left_out |= PRECONDITIONS
    schemas = raw_schema["components"]["schemas"]
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            if field.get("description", "").startswith("Any JSON"):
                schema["properties"][name] = {"$ref": "#/components/schemas/AnyJson"}
    schemas["AnyJson"] = ANY_JSON
    for operations in raw_schema["paths"].values():
        for operation in operations.values():
            operation["parameters"] = [
                each for each in operation["parameters"] if each["name"] not in left_out
            ]
            for response in operation["responses"].values():
                for link in response.get("links", {}).values():
                    for name in left_out:
                        link["parameters"].pop(f"header.{name}", None)
