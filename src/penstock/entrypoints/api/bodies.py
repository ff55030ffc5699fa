"""Read bodies: bounded, and only what they say they are."""

import asyncio
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from penstock.entrypoints.api.problems import Problem

# seconds in which a body must come; whoever sends it more slowly holds it back
LONGEST = 30.0
JSON_TYPES = frozenset({"application/json", "application/merge-patch+json"})

decode = msgspec.json.Decoder().decode


async def read_json(request: Request, *, largest: int | None = None) -> Any:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in JSON_TYPES:
        told = "send application/json"
        raise Problem("unsupported-media-type", told, headers={"accept": told[5:]})
    most = request.scope["exchange"].largest_body if largest is None else largest
    try:
        async with asyncio.timeout(LONGEST):
            body = await read_bytes(request, largest=most)
    except TimeoutError as error:
        told = f"a body must come within {LONGEST:g} s"
        headers = {"connection": "close"}
        raise Problem("request-timeout", told, headers=headers) from error
    try:
        return decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        told = f"the body is not JSON: {error}"
        raise Problem("bad-request", told) from error


async def read_bytes(request: Request, *, largest: int) -> bytes:
    """Read a body that fits into memory; what it says of its size is not believed."""
    told = f"at most {largest:,} bytes are read"
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > largest:
        raise Problem("too-large", told)
    pieces, size = [], 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > largest:
                raise Problem("too-large", told)
            pieces.append(piece)
    except ClientDisconnect as error:
        raise Problem("bad-request", "the body came to an early end") from error
    return b"".join(pieces)
