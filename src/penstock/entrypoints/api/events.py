"""Follow an import: its progress as it changes, then its end (server-sent events)."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.domain.job import ImportId
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.import_shapes import EVENTS, LAST_EVENT, THE_IMPORT
from penstock.entrypoints.api.imports import import_in
from penstock.entrypoints.api.looks import Seen
from penstock.entrypoints.api.parameters import Parameters
from penstock.entrypoints.api.responses import Timely, following
from penstock.entrypoints.api.service import Api
from penstock.errors import NotFound, PenstockError

# seconds after which a client hears that somebody is still there
HEARTBEAT = 15.0
# seconds after which a client that was cut off asks again
AGAIN = 2
# of a process; each costs a look a second, shared by those of one import
MOST_STREAMS = 200
HEADERS = {
    "cache-control": "no-store",
    # a proxy must pass on what comes
    "x-accel-buffering": "no",
}


async def follow_import(api: Api, request: Request) -> Response:
    Parameters(request).finish()
    import_id = import_in(request)
    known = request.headers.get("last-event-id", "")
    seen = await look(api, import_id)
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=HEADERS)
    if known == seen.mark and not seen.is_open:
        # it has heard of the end: there is nothing to come back for
        return Response(status_code=204, headers=HEADERS)
    events = events_of(api, import_id, known)
    # what is refused is refused before anything is sent
    whole = following(await anext(events), events)
    return Timely(whole, media_type="text/event-stream", headers=HEADERS)


async def events_of(
    api: Api, import_id: ImportId, known: str
) -> AsyncGenerator[bytes, None]:
    """Yield what is new of an import until it ends, or this process does."""
    with api.errands.place("streams of events", most=MOST_STREAMS):
        yield f"retry: {AGAIN * 1000}\n\n".encode()
        spoken = time.monotonic()
        while not api.is_closing:
            seen = await look_or_none(api, import_id)
            if seen is not None and (seen.mark != known or not seen.is_open):
                known, spoken = seen.mark, time.monotonic()
                yield seen.event()
                if not seen.is_open:
                    return
            elif time.monotonic() - spoken >= HEARTBEAT:
                spoken = time.monotonic()
                yield b": still here\n\n"
            await asyncio.sleep(api.looks.every)


async def look(api: Api, import_id: ImportId) -> Seen:
    async def ask(wanted: ImportId) -> Mapping[str, Any]:
        return await api.in_thread(partial(api.gauges.look, wanted))

    return await api.looks.at(import_id, ask)


async def look_or_none(api: Api, import_id: ImportId) -> Seen | None:
    """Look at an import; a store that is away for a while ends nothing."""
    try:
        return await look(api, import_id)
    except NotFound:
        raise
    except PenstockError:
        return None


def endpoints() -> Sequence[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/v1/imports/{import}/events",
            scope=Scope.READ,
            # who waits for news must not keep others waiting
            lane=Lane.FEEDS,
            summary="Follow an import: its progress, then its end",
            handle=follow_import,
            parameters=[THE_IMPORT, LAST_EVENT],
            answers=EVENTS,
        ),
    ]
