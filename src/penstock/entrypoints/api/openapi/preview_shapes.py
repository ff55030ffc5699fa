"""OpenAPI for previews of files."""

from collections.abc import Mapping

from penstock.domain.dataset import Dataset
from penstock.domain.pages import Reason
from penstock.domain.source import CsvSource
from penstock.entrypoints.api.endpoints import OperationDoc
from penstock.entrypoints.api.openapi.schemas import NamedSchema, Schema
from penstock.entrypoints.api.openapi.shapes import object_schema, response_object
from penstock.entrypoints.api.openapi.work_shapes import (
    COUNT,
    TEXT_OR_NONE,
    query_parameter,
)
from penstock.ports.file_preview import PREVIEW_BYTES

MAX_NAME_LENGTH = 200
FILE_TYPE = "application/octet-stream"

TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
FIELDS: Schema = {
    "type": ["array", "null"],
    "items": TEXT,
    "description": "The fields that it fills; null if it is not declared.",
}
NAME_PARAMETER: Schema = query_parameter(
    "name", "The name of the file.", {"type": "string", "maxLength": MAX_NAME_LENGTH}
)
FILE_BODY: Schema = {
    "required": True,
    "description": (
        f"The first {PREVIEW_BYTES:,} bytes of the file, and one more if it has more."
    ),
    "content": {FILE_TYPE: {"schema": {"type": "string", "format": "binary"}}},
}
BAD_ROWS: Schema = NamedSchema(
    "BadRows",
    object_schema(
        {
            "reason": {"enum": [*Reason]},
            "field": TEXT_OR_NONE,
            "rows": COUNT,
            "line": {
                "type": ["integer", "null"],
                "description": "Of the first of them.",
            },
            "detail": {**TEXT, "description": "What is wrong with the first of them."},
        }
    ),
)
CHECK: Schema = {
    "description": (
        "What would become of the first rows; null if an import would refuse the file."
    ),
    "anyOf": [
        NamedSchema(
            "SampleCheck",
            object_schema(
                {
                    "rows": COUNT,
                    "whole": {
                        "type": "boolean",
                        "description": "Whether these are all rows of the file.",
                    },
                    "bad": COUNT,
                    "repeated": {
                        **COUNT,
                        "description": "Good rows that lose to another of their key.",
                    },
                    "reasons": {"type": "array", "items": BAD_ROWS},
                }
            ),
        ),
        {"type": "null"},
    ],
}
FILE: Schema = NamedSchema(
    "FileFacts",
    object_schema(
        {
            "encoding": TEXT,
            "delimiter": TEXT,
            "compressed": {"type": "boolean"},
            "whole": {
                "type": "boolean",
                "description": "Whether the preview has seen all of it.",
            },
            "columns": COUNT,
        }
    ),
)
PREVIEW: Schema = NamedSchema(
    "FilePreview",
    object_schema(
        {
            "file": FILE,
            "columns": {
                "type": "array",
                "items": object_schema({"name": TEXT, "fields": FIELDS}),
                "description": "The first columns of the file.",
            },
            "missing": {
                "type": "array",
                "items": object_schema({"name": TEXT, "fields": TEXTS}),
                "description": "Declared columns that the file lacks.",
            },
            "rows": {
                "type": "array",
                "items": TEXTS,
                "description": "The first rows as they were read; long cells are cut.",
            },
            "problems": {
                **TEXTS,
                "description": "Why an import would refuse the file.",
            },
            "warnings": TEXTS,
            "check": CHECK,
        }
    ),
)
DRAFT_RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "The tables of a dataset, to copy into penstock.toml.",
        NamedSchema(
            "Draft", object_schema({"dataset": TEXT, "toml": TEXT, "doubts": TEXTS})
        ),
    )
}


def describe_preview(dataset: Dataset) -> OperationDoc | None:
    """Describe the preview of a file, which only datasets of files have."""
    if not isinstance(dataset.source, CsvSource):
        return None
    return OperationDoc(
        parameters=[NAME_PARAMETER],
        body=FILE_BODY,
        responses={200: response_object("How the file is read and mapped.", PREVIEW)},
    )
