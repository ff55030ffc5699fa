"""Imports: look at them, and end them."""

import itertools
from collections.abc import (
    AsyncGenerator,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, ImportId, ImportStatus
from penstock.entrypoints.api.bodies import refuse_body
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.import_shapes import (
    CANCELLED,
    DEFAULT_IMPORTS,
    ERRORS,
    IMPORT,
    IMPORTS,
    LISTED,
    MOST_IMPORTS,
    RAW,
    THE_IMPORT,
)
from penstock.entrypoints.api.parameters import Parameters, id_in_path
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.responses import (
    NEVER,
    Timely,
    following,
    json_response,
    page_of,
)
from penstock.entrypoints.api.service import Api
from penstock.entrypoints.forms.bad_rows import lines_of, page_by_page
from penstock.errors import (
    Conflict,
    NotFound,
)

# bad rows that are sent at a time
AT_ONCE = 500
# lists of them that are sent at a time; each is sorted in memory, as far as it fits
MOST_LISTS = 4
# seconds in which the first of many is found
LONGEST_LIST = 120.0


async def list_imports(api: Api, request: Request) -> Response:
    asked = Parameters(request, "dataset", "status", "before", "limit")
    dataset = asked.text("dataset")
    status = asked.choice("status", ImportStatus)
    before = asked.id("before")
    limit = asked.number("limit", least=1, most=MOST_IMPORTS) or DEFAULT_IMPORTS
    asked.finish()
    find = partial(
        api.penstock.stores.imports.recent,
        dataset=dataset,
        status=status,
        before=None if before is None else ImportId(before),
        limit=limit + 1,
    )

    def look() -> tuple[list[Mapping[str, Any]], ImportId | None]:
        found = find()
        shown = found[:limit]
        last = shown[-1][0].id if len(found) > limit else None
        return [api.gauges.told(known, shards) for known, shards in shown], last

    items, last = await api.in_thread(look)
    return page_of(request, items, following=("before", last), limit=limit)


async def get_import(api: Api, request: Request) -> Response:
    Parameters(request).finish()
    import_id = import_in(request)
    told = await api.in_thread(partial(api.gauges.look, import_id))
    return json_response(told, headers=NEVER)


def import_in(request: Request) -> ImportId:
    return ImportId(id_in_path(request, "import"))


async def cancel_import(api: Api, request: Request) -> Response:
    """End an import; what it has brought until now stays."""
    Parameters(request).finish()
    await refuse_body(request)
    told = await api.errands.run(partial(cancelled, api, import_in(request)))
    return json_response(told, headers=NEVER)


def cancelled(api: Api, import_id: ImportId) -> Mapping[str, Any]:
    imports = api.penstock.stores.imports
    known = imports.peek(import_id)
    if known.finished_at is None:
        known = imports.cancel(import_id, reason="cancelled by a client of the API")
    if known.status is not ImportStatus.CANCELLED:
        raise Conflict(f"import {import_id} is {known.status} already")
    return api.gauges.told(*imports.get(import_id))


async def list_errors(api: Api, request: Request) -> Response:
    """Stream the bad rows of an import as CSV."""
    asked = Parameters(request, "raw")
    raw = asked.truth("raw")
    asked.finish()
    import_id = import_in(request)
    stores = api.penstock.stores
    known = await api.in_thread(partial(stores.imports.peek, import_id))
    dataset = declared(api, known)
    name = f"import-{import_id}-errors.csv"
    headers = {"content-disposition": f'attachment; filename="{name}"', **NEVER}
    if request.method == "HEAD":
        return Response(media_type="text/csv", headers=headers)
    lines = error_lines(api, dataset, import_id, raw=raw)
    # what goes wrong at once is told as such
    first = await anext(lines)
    whole = following(first, lines)
    return Timely(whole, media_type="text/csv", headers=headers)


def declared(api: Api, known: Import) -> Dataset:
    try:
        return api.dataset(known.dataset)
    except NotFound as error:
        told = f"import {known.id} is of {known.dataset!r}, which is declared no more"
        raise Problem("not-found", told) from error


async def error_lines(
    api: Api, dataset: Dataset, import_id: ImportId, *, raw: bool
) -> AsyncGenerator[bytes, None]:
    rejected = api.penstock.stores.records.rejected
    rows = page_by_page(
        lambda after, limit: rejected(import_id, after=after, limit=limit)
    )
    lines = lines_of(dataset, api.penstock.source(dataset), rows, raw=raw)
    with api.errands.place("lists of bad rows", most=MOST_LISTS):
        take = partial(joined, lines)
        while some := await api.errands.run(take, longest=LONGEST_LIST):
            yield some


def joined(lines: Iterator[bytes]) -> bytes:
    return b"".join(itertools.islice(lines, AT_ONCE))


def endpoints() -> Sequence[Endpoint]:
    one = "/api/v1/imports/{import}"
    return [
        Endpoint(
            method="GET",
            path="/api/v1/imports",
            scope=Scope.READ,
            lane=Lane.READS,
            summary="List imports, the newest first",
            handle=list_imports,
            parameters=LISTED,
            answers=IMPORTS,
        ),
        Endpoint(
            method="GET",
            path=one,
            scope=Scope.READ,
            lane=Lane.READS,
            summary="Get an import with its progress",
            handle=get_import,
            parameters=[THE_IMPORT],
            answers=IMPORT,
        ),
        Endpoint(
            method="GET",
            path=f"{one}/errors.csv",
            scope=Scope.READ,
            lane=Lane.READS,
            summary="List the bad rows of an import",
            handle=list_errors,
            parameters=[THE_IMPORT, RAW],
            operation="listBadRows",
            answers=ERRORS,
        ),
        Endpoint(
            method="POST",
            path=f"{one}/cancel",
            scope=Scope.OPERATE,
            lane=Lane.WRITES,
            summary="Cancel an import; what it has brought stays",
            handle=cancel_import,
            parameters=[THE_IMPORT],
            answers=CANCELLED,
        ),
    ]
