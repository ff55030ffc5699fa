"""The forms in which answers leave: documents, pages of a list, streams."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Send
from typing_extensions import override

from penstock.entrypoints.api.exchange import ClientLeft

# of what changes by itself
NEVER = {"cache-control": "no-store"}
# seconds in which a client takes a piece of a stream
LONGEST_SEND = 30.0

encode = msgspec.json.Encoder().encode


def json_response(
    document: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        encode(document),
        status_code=status,
        media_type="application/json",
        headers=dict(headers or {}),
    )


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
