"""Follow an import by server-sent events: its progress, then its end."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.jobs import ImportId
from penstock.entrypoints.api.cache.import_snapshots import ImportSnapshot
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.import_shapes import (
    EVENTS_RESPONSES,
    IMPORT_ID,
    LAST_EVENT_ID,
)
from penstock.entrypoints.api.resources.imports import parse_import_id
from penstock.entrypoints.api.responses import TimeoutStreamingResponse, prepend_chunk
from penstock.errors import NotFound, PenstockError

# seconds between comments that keep the connection open
HEARTBEAT_INTERVAL = 15.0
# seconds after which a disconnected client reconnects
RETRY_SECONDS = 2
# in a process; those of one import share a query a second
MAX_STREAMS = 200
HEADERS = {
    "cache-control": "no-store",
    # a proxy must not buffer
    "x-accel-buffering": "no",
}


async def follow_import(
    api: AppContext, request: Request, import_id: ImportId
) -> Response:
    last_event = request.headers.get("last-event-id", "")
    snapshot = await read_snapshot(api, import_id)
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=HEADERS)
    if last_event == snapshot.mark and not snapshot.is_open:
        # 204 stops the client from reconnecting: it has received the end
        return Response(status_code=204, headers=HEADERS)
    events = stream_events(api, import_id, last_event)
    # errors are raised before the response starts
    stream = prepend_chunk(await anext(events), events)
    return TimeoutStreamingResponse(
        stream, media_type="text/event-stream", headers=HEADERS
    )


async def stream_events(
    api: AppContext, import_id: ImportId, last_event: str
) -> AsyncGenerator[bytes, None]:
    """Yield events until the import or this process ends."""
    with api.background.slot("streams of events", limit=MAX_STREAMS):
        yield f"retry: {RETRY_SECONDS * 1000}\n\n".encode()
        sent_at = time.monotonic()
        while not api.is_closing:
            snapshot = await try_read_snapshot(api, import_id)
            if snapshot is not None and (
                snapshot.mark != last_event or not snapshot.is_open
            ):
                last_event, sent_at = snapshot.mark, time.monotonic()
                yield snapshot.event()
                if not snapshot.is_open:
                    return
            elif time.monotonic() - sent_at >= HEARTBEAT_INTERVAL:
                sent_at = time.monotonic()
                yield b": still here\n\n"
            await asyncio.sleep(api.import_snapshots.interval)


async def read_snapshot(api: AppContext, import_id: ImportId) -> ImportSnapshot:
    async def read(requested: ImportId) -> Mapping[str, Any]:
        return await api.in_thread(
            partial(api.progress_tracker.document_with_progress, requested)
        )

    return await api.import_snapshots.get(import_id, read)


async def try_read_snapshot(
    api: AppContext, import_id: ImportId
) -> ImportSnapshot | None:
    """Read an import; return None while the store is unavailable."""
    try:
        return await read_snapshot(api, import_id)
    except NotFound:
        raise
    except PenstockError:
        return None


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/v1/imports/{import}/events",
            scope=AccessScope.READ,
            # clients that wait for events must not delay other requests
            lane=Lane.FEEDS,
            summary="Follow an import: its progress, then its end",
            parse=parse_import_id,
            handle=follow_import,
            parameters=[IMPORT_ID, LAST_EVENT_ID],
            responses=EVENTS_RESPONSES,
        ),
    ]
