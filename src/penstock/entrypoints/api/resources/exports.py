"""Export the records of a dataset as a stream, with the filters of a list."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset
from penstock.domain.search.filter_params import (
    EXPORT_PARAMS,
    Export,
    ExportFormat,
    read_export,
)
from penstock.domain.search.query import Query
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import (
    AnyEndpoint,
    Endpoint,
    Lane,
    OperationDoc,
)
from penstock.entrypoints.api.openapi.record_shapes import (
    EXPORT_PARAMETERS,
    fields_parameter,
    filter_parameters,
    sort_parameter,
)
from penstock.entrypoints.api.openapi.shapes import TOKEN
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.responses import (
    NO_STORE,
    TimeoutStreamingResponse,
    prepend_chunk,
)
from penstock.entrypoints.exports.csv import csv_header, csv_of_json
from penstock.ports.record_access import RecordPage

# at the same time in a process
MAX_EXPORTS = 8
MEDIA_TYPES = {
    ExportFormat.JSONL: "application/jsonl",
    ExportFormat.CSV: "text/csv; charset=utf-8; header=present",
}
FormatRows: TypeAlias = Callable[[Sequence[bytes]], bytes]


def parse_export(api: AppContext, head: RequestHead) -> Export:
    return read_export(api.dataset(head.parts["dataset"]), head.query)


async def export_records(
    api: AppContext, request: Request, requested: Export
) -> Response:
    name = f"{requested.query.dataset.name}.{requested.form}"
    headers = {**NO_STORE, "content-disposition": f'attachment; filename="{name}"'}
    media_type = MEDIA_TYPES[requested.form]
    if request.method == "HEAD":
        return Response(media_type=media_type, headers=headers)
    batches = stream_batches(api, requested)
    # errors of the first batch are raised before the response starts
    stream = prepend_chunk(await anext(batches), batches)
    return TimeoutStreamingResponse(stream, media_type=media_type, headers=headers)


async def stream_batches(
    api: AppContext, requested: Export
) -> AsyncGenerator[bytes, None]:
    """Yield the rows in batches; each takes a thread of its lane, and has its deadline.

    An error raised here aborts the connection, so that no response looks complete.
    """
    head, format_rows = formatter(requested)
    query, has_more = requested.query, True
    with api.background.slot("exports", limit=MAX_EXPORTS):
        while has_more:
            work = partial(read_batch, api, query, format_rows)
            batch, rows = await api.in_thread(work)
            query, has_more = replace(query, after=batch.last), batch.has_more
            yield head + rows
            head = b""


def read_batch(
    api: AppContext, query: Query, format_rows: FormatRows
) -> tuple[RecordPage, bytes]:
    batch = api.records.batch(query)
    return batch, format_rows(batch.rows)


def formatter(requested: Export) -> tuple[bytes, FormatRows]:
    """Return what stands before the rows, and how they are formatted."""
    match requested.form:
        case ExportFormat.JSONL:
            return b"", lambda rows: b"".join(row + b"\n" for row in rows)
        case ExportFormat.CSV:
            fields = requested.query.fields
            return csv_header(fields), csv_of_json(fields, raw=requested.raw)


def describe_export(dataset: Dataset) -> OperationDoc:
    return OperationDoc(
        parameters=[
            *EXPORT_PARAMETERS,
            *filter_parameters(dataset, reserved=EXPORT_PARAMS),
            sort_parameter(dataset),
            fields_parameter(dataset),
            TOKEN,
        ],
        responses={
            200: {
                "description": "All records that fulfil the filters, as a stream; if "
                "it ends early, the connection is aborted.",
                "content": {
                    media_type.partition(";")[0]: {"schema": {"type": "string"}}
                    for media_type in MEDIA_TYPES.values()
                },
            }
        },
    )


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/v1/datasets/{dataset}/export",
            scope=AccessScope.READ,
            lane=Lane.EXPORT,
            summary="Export all records that fulfil the filters, as a stream",
            parse=parse_export,
            handle=export_records,
            operation="export{}",
            describe=describe_export,
        ),
    ]
