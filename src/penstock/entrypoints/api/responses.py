"""Responses: documents, pages of a list, streams."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from decimal import Decimal
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Send
from typing_extensions import override

from penstock.domain.exact_decimals import write_decimal
from penstock.entrypoints.api.request_context import ClientDisconnected

# for documents that change at any time
NO_STORE = {"cache-control": "no-store"}
# seconds in which a client has to read a chunk of a stream
SEND_TIMEOUT = 30.0

encode = msgspec.json.Encoder().encode


def with_digits(value: object) -> object:
    """Return a value as JSON encodes it: decimals as numbers with their digits."""
    if isinstance(value, Decimal):
        return msgspec.Raw(write_decimal(value).encode())
    return value


def json_response(
    document: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        encode(document),
        status_code=status,
        media_type="application/json",
        headers=dict(headers or {}),
    )


def page_response(
    request: Request,
    items: Sequence[Mapping[str, Any]],
    *,
    following: tuple[str, int | str | None],
    limit: int,
) -> Response:
    """Return a page of a list, with a link to the next."""
    name, last = following
    headers = dict(NO_STORE)
    if last is not None:
        url = request.url.include_query_params(**{name: last})
        headers["link"] = f'<{url.path}?{url.query}>; rel="next"'
    page = {"next": last, "has_more": last is not None, "limit": limit}
    return json_response({"items": items, "page": page}, headers=headers)


class TimeoutStreamingResponse(StreamingResponse):
    """A stream that ends if its client does not read it."""

    @override
    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(SEND_TIMEOUT):
                    await send(message)
            except TimeoutError as error:
                raise ClientDisconnected from error

        await super().stream_response(send_in_time)


async def prepend_chunk(
    first: bytes, rest: AsyncGenerator[bytes, None]
) -> AsyncIterator[bytes]:
    # a stream that is not read to its end is closed at once, and releases its slot
    async with aclosing(rest):
        yield first
        async for chunk in rest:
            yield chunk
