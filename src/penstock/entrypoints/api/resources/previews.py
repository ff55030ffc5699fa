"""Previews: how a file would be read and mapped, and what could be declared for it."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset
from penstock.domain.source import CsvSource
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.preview_shapes import (
    DRAFT_RESPONSES,
    FILE_BODY,
    FILE_TYPE,
    MAX_NAME_LENGTH,
    NAME_PARAMETER,
    describe_preview,
)
from penstock.entrypoints.api.params.query_params import QueryParams
from penstock.entrypoints.api.params.request_body import read_bytes, refuse_encodings
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.responses import NO_STORE, json_response
from penstock.entrypoints.file_draft import infer_dataset
from penstock.errors import BadRequest, FieldError, Misconfigured, Rejected
from penstock.flow.preview_file import FilePreview
from penstock.ports.file_preview import PREVIEW_BYTES
from penstock.settings.toml_draft import write_tables

# one byte more shows that there is more
MAX_BODY = PREVIEW_BYTES + 1
# at the same time in a process, each with a few copies of the sample in memory
MAX_PREVIEWS = 4
# seconds
PREVIEW_TIMEOUT = 30.0
MAX_SHOWN_COLUMNS = 200
MAX_SHOWN_CELL = 200
# the part of a name that is kept as the name of a file
MAX_FILE_NAME = 60
UNSAFE_CHARACTERS = re.compile(r"[/\\\0]")
DEFAULT_NAME = "file.csv"


class PreviewRequest(NamedTuple):
    dataset: Dataset
    name: str


def parse_preview(api: AppContext, head: RequestHead) -> PreviewRequest:
    dataset = api.dataset(head.parts["dataset"])
    name = parse_name(head)
    if not isinstance(dataset.source, CsvSource):
        message = f"{dataset.name} is fetched from its provider, and has no files"
        raise Problem("not-found", message)
    return PreviewRequest(dataset, name)


def parse_draft(api: AppContext, head: RequestHead) -> str:
    del api
    return parse_name(head)


def parse_name(head: RequestHead) -> str:
    """Return the name of the file."""
    params = QueryParams(head, "name")
    name = params.text("name") or DEFAULT_NAME
    if len(name) > MAX_NAME_LENGTH:
        message = f"must have at most {MAX_NAME_LENGTH} characters"
        params.add_error("name", "length", message)
    params.finish()
    media = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != FILE_TYPE:
        headers = {"accept": FILE_TYPE}
        raise Problem("unsupported-media-type", f"send {FILE_TYPE}", headers=headers)
    return name


async def preview_file(
    api: AppContext, request: Request, requested: PreviewRequest
) -> Response:
    """Read and map the beginning of a file; nothing is stored."""
    dataset, name = requested
    with api.background.slot("previews", limit=MAX_PREVIEWS):
        start = await read_start(request)
        work = partial(preview_document, api, dataset, start, name)
        document = await api.background.run(work, longest=PREVIEW_TIMEOUT)
    return json_response(document, headers=NO_STORE)


async def draft_dataset(api: AppContext, request: Request, name: str) -> Response:
    """Draft a declaration for a file; penstock.toml is only ever edited by hand."""
    with api.background.slot("previews", limit=MAX_PREVIEWS):
        start = await read_start(request)
        work = partial(draft_document, start, name)
        document = await api.background.run(work, longest=PREVIEW_TIMEOUT)
    return json_response(document, headers=NO_STORE)


async def read_start(request: Request) -> bytes:
    refuse_encodings(request)
    start = await read_bytes(request, max_size=MAX_BODY)
    if not start:
        raise unfit("it is empty; send the beginning of a file")
    return start


def preview_document(
    api: AppContext, dataset: Dataset, start: bytes, name: str
) -> Mapping[str, Any]:
    try:
        preview = api.penstock.preview_file(dataset, start, name=name)
    except (Misconfigured, Rejected) as error:
        raise unfit(*str(error).splitlines()) from error
    return describe(preview)


def describe(preview: FilePreview) -> Mapping[str, Any]:
    start, check = preview.start, preview.check
    names = start.names[:MAX_SHOWN_COLUMNS]
    return {
        "file": {
            "encoding": start.encoding,
            "delimiter": start.delimiter,
            "compressed": start.is_compressed,
            "whole": start.is_whole,
            "columns": len(start.names),
        },
        "columns": [
            {"name": shorten_cell(name), "fields": preview.fields.get(name)}
            for name in names
        ],
        "missing": [
            {"name": name, "fields": preview.fields[name]} for name in preview.missing
        ],
        "rows": [
            [shorten_cell(cell) for cell in row[:MAX_SHOWN_COLUMNS]]
            for row in start.rows
        ],
        "problems": start.problems,
        "warnings": start.warnings,
        "check": None
        if check is None
        else {
            "rows": check.rows,
            "whole": start.has_all_rows,
            "bad": check.bad,
            "repeated": check.repeated,
            "reasons": [
                {
                    "reason": bad.reason,
                    "field": bad.field,
                    "rows": bad.rows,
                    "line": bad.line,
                    "detail": bad.detail,
                }
                for bad in check.reasons
            ],
        },
    }


def shorten_cell(text: str) -> str:
    if len(text) <= MAX_SHOWN_CELL:
        return text
    return f"{text[: MAX_SHOWN_CELL - 1]}…"


def draft_document(start: bytes, name: str) -> Mapping[str, Any]:
    # names of files are limited in bytes, and characters have up to four
    safe = UNSAFE_CHARACTERS.sub("_", name)[-MAX_FILE_NAME:]
    safe = DEFAULT_NAME if safe in {".", ".."} else safe
    with TemporaryDirectory(prefix="penstock-preview-") as folder:
        path = Path(folder, safe)
        try:
            path.write_bytes(start)
            drafted = infer_dataset(path, beside=Path(folder, "penstock.toml"))
        except Misconfigured as error:
            text = str(error).replace(f"{path}: ", "").replace(str(path), safe)
            raise unfit(*text.splitlines()) from error
    return {
        "dataset": drafted.name,
        "toml": write_tables(drafted),
        "doubts": [*drafted.doubts],
    }


def unfit(*messages: str) -> BadRequest:
    return BadRequest(
        *(FieldError(pointer="/", code="unfit", detail=text) for text in messages)
    )


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="POST",
            path="/api/v1/datasets/{dataset}/preview",
            scope=AccessScope.OPERATE,
            is_read_only=True,
            lane=Lane.WRITES,
            summary="Preview a file: how it is read and mapped; nothing is stored",
            parse=parse_preview,
            handle=preview_file,
            describe=describe_preview,
            operation="preview{}File",
        ),
        Endpoint(
            method="POST",
            path="/api/v1/drafts",
            scope=AccessScope.OPERATE,
            is_read_only=True,
            lane=Lane.WRITES,
            summary="Draft a dataset for penstock.toml from a file; nothing is stored",
            parse=parse_draft,
            handle=draft_dataset,
            parameters=[NAME_PARAMETER],
            body=FILE_BODY,
            responses=DRAFT_RESPONSES,
        ),
    ]
