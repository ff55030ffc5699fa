"""Imports: look at them, and end them."""

import asyncio
import itertools
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Send
from typing_extensions import override

from penstock.domain.access import Scope
from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, ImportId, ImportStatus
from penstock.entrypoints.api.bodies import refuse_body
from penstock.entrypoints.api.datasets import json_response
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.exchange import ClientLeft
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
# seconds in which the first of many is found, and in which a client takes some of them
LONGEST_LIST = 120.0
LONGEST_SEND = 30.0
NEVER = {"cache-control": "no-store"}


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
    found = await api.in_thread(find)
    shown = found[:limit]
    last = shown[-1][0].id if len(found) > limit else None
    items = [api.gauges.told(known, shards) for known, shards in shown]
    return page_of(request, items, following=("before", last), limit=limit)


def page_of(
    request: Request,
    items: Sequence[Mapping[str, Any]],
    *,
    following: tuple[str, int | None],
    limit: int,
) -> Response:
    """Answer with some of a list, and where it goes on."""
    name, last = following
    headers = dict(NEVER)
    if last is not None:
        address = request.url.include_query_params(**{name: last})
        headers["link"] = f'<{address.path}?{address.query}>; rel="next"'
    page = {"next": last, "has_more": last is not None, "limit": limit}
    return json_response({"items": items, "page": page}, headers=headers)


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


class Timely(StreamingResponse):
    """An answer that is broken off where its client does not read it."""

    @override
    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(LONGEST_SEND):
                    await send(message)
            except TimeoutError as error:
                raise ClientLeft from error

        await super().stream_response(send_in_time)


async def following(
    first: bytes, rest: AsyncGenerator[bytes, None]
) -> AsyncIterator[bytes]:
    # whoever does not come to the end must not keep a place until somebody notices
    async with aclosing(rest):
        yield first
        async for each in rest:
            yield each


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
