"""Imports: list, get and cancel them, and list their rejected rows."""

import itertools
from collections.abc import (
    AsyncGenerator,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Import, ImportId, ImportStatus
from penstock.domain.source import CsvSource
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.import_shapes import (
    CANCEL_RESPONSES,
    DEFAULT_IMPORTS,
    ERRORS_RESPONSES,
    FILE_PARAMETER,
    GET_RESPONSES,
    IMPORT_ID,
    LIST_PARAMETERS,
    LIST_RESPONSES,
    MAX_IMPORTS,
    RAW_PARAMETER,
    REJECTS_RESPONSES,
)
from penstock.entrypoints.api.params.query_params import QueryParams, id_in_path
from penstock.entrypoints.api.params.request_body import refuse_body
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.responses import (
    NO_STORE,
    TimeoutStreamingResponse,
    json_response,
    page_response,
    prepend_chunk,
)
from penstock.entrypoints.exports.correctable_rows import correctable_lines
from penstock.entrypoints.exports.rejected_rows import csv_lines, read_all
from penstock.errors import Conflict, NotFound

LINES_PER_CHUNK = 500
MAX_CHUNK_BYTES = 1024 * 1024
# lists of rejected rows in a process at the same time, each with a sort buffer
MAX_LISTS = 4
# seconds for a chunk; the first one waits until all rows are sorted
LIST_TIMEOUT = 120.0


class ImportListRequest(NamedTuple):
    dataset: str | None
    status: ImportStatus | None
    before: ImportId | None
    limit: int


class ErrorsRequest(NamedTuple):
    import_id: ImportId
    raw: bool


class RejectsRequest(NamedTuple):
    import_id: ImportId
    # None is the only file with rows to correct
    file: str | None


def parse_list(api: AppContext, head: RequestHead) -> ImportListRequest:
    del api
    params = QueryParams(head, "dataset", "status", "before", "limit")
    dataset = params.text("dataset")
    status = params.choice("status", ImportStatus)
    before = params.id("before")
    limit = params.integer("limit", minimum=1, maximum=MAX_IMPORTS) or DEFAULT_IMPORTS
    params.finish()
    return ImportListRequest(
        dataset, status, None if before is None else ImportId(before), limit
    )


async def list_imports(
    api: AppContext, request: Request, requested: ImportListRequest
) -> Response:
    limit = requested.limit
    find = partial(
        api.penstock.stores.imports.recent,
        dataset=requested.dataset,
        status=requested.status,
        before=requested.before,
        limit=limit + 1,
    )

    def read_page() -> tuple[list[Mapping[str, Any]], ImportId | None]:
        found = find()
        shown = found[:limit]
        last = shown[-1][0].id if len(found) > limit else None
        return [
            api.progress_tracker.document(stored, shards) for stored, shards in shown
        ], last

    items, last = await api.in_thread(read_page)
    return page_response(request, items, following=("before", last), limit=limit)


def parse_import_id(api: AppContext, head: RequestHead) -> ImportId:
    del api
    QueryParams(head).finish()
    return ImportId(id_in_path(head, "import"))


async def get_import(
    api: AppContext, request: Request, import_id: ImportId
) -> Response:
    del request
    document = await api.in_thread(
        partial(api.progress_tracker.document_with_progress, import_id)
    )
    return json_response(document, headers=NO_STORE)


async def cancel_import(
    api: AppContext, request: Request, import_id: ImportId
) -> Response:
    """Cancel an import; the records it has already written stay."""
    await refuse_body(request)
    document = await api.background.run(partial(cancel, api, import_id))
    return json_response(document, headers=NO_STORE)


def cancel(api: AppContext, import_id: ImportId) -> Mapping[str, Any]:
    imports = api.penstock.stores.imports
    stored = imports.peek(import_id)
    if stored.finished_at is None:
        stored = imports.cancel(import_id, reason="cancelled by a client of the API")
    if stored.status is not ImportStatus.CANCELLED:
        raise Conflict(f"import {import_id} is already {stored.status}")
    return api.progress_tracker.document(*imports.get(import_id))


def parse_errors(api: AppContext, head: RequestHead) -> ErrorsRequest:
    del api
    params = QueryParams(head, "raw")
    raw = params.flag("raw")
    params.finish()
    return ErrorsRequest(ImportId(id_in_path(head, "import")), raw)


async def list_errors(
    api: AppContext, request: Request, requested: ErrorsRequest
) -> Response:
    """Stream the rejected rows of an import as CSV."""
    import_id, raw = requested
    stores = api.penstock.stores
    stored = await api.in_thread(partial(stores.imports.peek, import_id))
    dataset = dataset_of(api, stored)
    name = f"import-{import_id}-errors.csv"
    headers = {"content-disposition": f'attachment; filename="{name}"', **NO_STORE}
    if request.method == "HEAD":
        return Response(media_type="text/csv", headers=headers)
    rejected = stores.records.rejected
    rows = read_all(lambda after, limit: rejected(import_id, after=after, limit=limit))
    lines = csv_lines(dataset, api.penstock.source(dataset), rows, raw=raw)
    chunks = stream_lines(api, lines)
    # errors of the first chunk are raised before the response starts
    stream = prepend_chunk(await anext(chunks), chunks)
    return TimeoutStreamingResponse(stream, media_type="text/csv", headers=headers)


def parse_rejects(api: AppContext, head: RequestHead) -> RejectsRequest:
    del api
    params = QueryParams(head, "file")
    file = params.text("file")
    params.finish()
    return RejectsRequest(ImportId(id_in_path(head, "import")), file)


async def download_rejects(
    api: AppContext, request: Request, requested: RejectsRequest
) -> Response:
    """Stream the rows of an import that are still bad, in the format of their file."""
    import_id, file = requested
    stores = api.penstock.stores
    stored = await api.in_thread(partial(stores.imports.peek, import_id))
    dataset = dataset_of(api, stored)
    if not isinstance(dataset.source, CsvSource):
        raise Conflict(
            f"{dataset.name} is fetched from its provider, so there is no file to "
            "correct; errors.csv lists its bad rows"
        )
    headers = {
        "content-disposition": f'attachment; filename="import-{import_id}-rejects.csv"',
        # without a charset: it is the one of the file
        "content-type": "text/csv",
        **NO_STORE,
    }
    if request.method == "HEAD":
        return Response(headers=headers)
    rejected = stores.records.rejected
    lines = correctable_lines(
        dataset,
        api.penstock.file_formats,
        lambda after, limit: rejected(import_id, after=after, limit=limit),
        file=file,
    )
    chunks = stream_lines(api, lines)
    stream = prepend_chunk(await anext(chunks), chunks)
    return TimeoutStreamingResponse(stream, headers=headers)


def dataset_of(api: AppContext, stored: Import) -> Dataset:
    try:
        return api.dataset(stored.dataset)
    except NotFound as error:
        message = (
            f"the dataset {stored.dataset!r} of import {stored.id} is not declared"
        )
        raise Problem("not-found", message) from error


async def stream_lines(
    api: AppContext, lines: Iterator[bytes]
) -> AsyncGenerator[bytes, None]:
    with api.background.slot("lists of rejected rows", limit=MAX_LISTS):
        next_chunk = partial(join_lines, lines)
        while chunk := await api.background.run(next_chunk, longest=LIST_TIMEOUT):
            yield chunk


def join_lines(lines: Iterator[bytes]) -> bytes:
    chunk = bytearray()
    for line in itertools.islice(lines, LINES_PER_CHUNK):
        chunk += line
        if len(chunk) >= MAX_CHUNK_BYTES:
            break
    return bytes(chunk)


def endpoints() -> Sequence[AnyEndpoint]:
    one = "/api/v1/imports/{import}"
    return [
        Endpoint(
            method="GET",
            path="/api/v1/imports",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="List imports, newest first",
            parse=parse_list,
            handle=list_imports,
            parameters=LIST_PARAMETERS,
            responses=LIST_RESPONSES,
        ),
        Endpoint(
            method="GET",
            path=one,
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="Get an import with its progress",
            parse=parse_import_id,
            handle=get_import,
            parameters=[IMPORT_ID],
            responses=GET_RESPONSES,
        ),
        Endpoint(
            method="GET",
            path=f"{one}/errors.csv",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="List the rejected rows of an import",
            parse=parse_errors,
            handle=list_errors,
            parameters=[IMPORT_ID, RAW_PARAMETER],
            operation="listBadRows",
            responses=ERRORS_RESPONSES,
        ),
        Endpoint(
            method="GET",
            path=f"{one}/rejects.csv",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="Download the bad rows of an import of files, to correct them",
            parse=parse_rejects,
            handle=download_rejects,
            parameters=[IMPORT_ID, FILE_PARAMETER],
            operation="downloadRejects",
            responses=REJECTS_RESPONSES,
        ),
        Endpoint(
            method="POST",
            path=f"{one}/cancel",
            scope=AccessScope.OPERATE,
            lane=Lane.WRITES,
            summary="Cancel an import; the records it has written stay",
            parse=parse_import_id,
            handle=cancel_import,
            parameters=[IMPORT_ID],
            responses=CANCEL_RESPONSES,
        ),
    ]
