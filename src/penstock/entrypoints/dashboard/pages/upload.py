"""Upload a file: choose its dataset, and see what an import would make of it."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.domain.source import CsvSource
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.params.query_params import QueryParams
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.dashboard.rendering import View, send_page
from penstock.ports.file_preview import PREVIEW_BYTES

TYPE_NAMES = {
    FieldType.TEXT: "text",
    FieldType.INT: "whole number",
    FieldType.FLOAT: "number",
    FieldType.DECIMAL: "exact number",
    FieldType.BOOL: "yes or no",
    FieldType.DATE: "date",
    FieldType.TIMESTAMP: "time",
    FieldType.JSON: "JSON",
}
MAX_CHOICES = 8


def parse_choice(api: AppContext, head: RequestHead) -> None:
    del api
    QueryParams(head).finish()


class UploadRequest(NamedTuple):
    dataset: Dataset
    # the import whose bad rows the file corrects
    corrects: int | None


def parse_upload(api: AppContext, head: RequestHead) -> UploadRequest:
    dataset = api.dataset(head.parts["dataset"])
    params = QueryParams(head, "corrects")
    corrects = params.id("corrects")
    params.finish()
    if not isinstance(dataset.source, CsvSource):
        message = f"{dataset.name} is fetched from its provider; see /upload"
        raise Problem("not-found", message)
    return UploadRequest(dataset, corrects)


async def show_choice(api: AppContext, request: Request, requested: None) -> Response:
    del requested
    return await send_page(api, request, partial(build_choice, api))


async def show_upload(
    api: AppContext, request: Request, requested: UploadRequest
) -> Response:
    return await send_page(api, request, partial(build_upload, api, requested))


def build_choice(api: AppContext) -> View:
    values = {
        "live": "never",
        "script": "upload.js",
        "datasets": file_datasets(api),
        "preview_bytes": PREVIEW_BYTES + 1,
    }
    return View("upload_choice.html", "Upload", "upload", values)


def build_upload(api: AppContext, requested: UploadRequest) -> View:
    dataset = requested.dataset
    values = {
        "live": "never",
        "script": "upload.js",
        "dataset": dataset,
        "corrects": requested.corrects,
        "columns": [
            (".".join(field.path), field, [*describe_rules(field)])
            for field in dataset.read_columns
        ],
        "type_names": TYPE_NAMES,
        "datasets": [each.name for each in file_datasets(api)],
        "preview_bytes": PREVIEW_BYTES + 1,
    }
    return View("upload.html", f"Upload to {dataset.name}", "upload", values)


def file_datasets(api: AppContext) -> Sequence[Dataset]:
    datasets = api.penstock.settings.datasets
    return [
        dataset
        for _, dataset in sorted(datasets.items())
        if isinstance(dataset.source, CsvSource)
    ]


def describe_rules(field: Field) -> Iterator[str]:
    """Yield what a value of the field must be, one short text each."""
    if field.required:
        yield "required"
    if field.min is not None:
        yield f"at least {field.min:g}"
    if field.max is not None:
        yield f"at most {field.max:g}"
    if field.max_length is not None:
        yield f"at most {field.max_length:,} characters"
    if field.format is not None:
        yield f"as {field.format}"
    if field.decimal != ".":
        yield f"decimals after {field.decimal}"
    if field.choices is not None:
        shown = ", ".join(str(choice) for choice in field.choices[:MAX_CHOICES])
        yield f"one of {shown}{', …' if len(field.choices) > MAX_CHOICES else ''}"
    if field.pattern is not None:
        yield f"matches {field.pattern}"
    if field.references is not None:
        yield f"stored in {field.references}"


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/upload",
            scope=AccessScope.OPERATE,
            lane=Lane.READS,
            summary="The dashboard's choice of a dataset for a file",
            parse=parse_choice,
            handle=show_choice,
            operation="chooseUpload",
        ),
        Endpoint(
            method="GET",
            path="/upload/{dataset}",
            scope=AccessScope.OPERATE,
            lane=Lane.READS,
            summary="The dashboard's page to upload a file to a dataset",
            parse=parse_upload,
            handle=show_upload,
            operation="showUpload",
        ),
    ]
