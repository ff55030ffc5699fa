"""Read bodies: bounded, and only what they say they are."""

from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from penstock.entrypoints.api.problems import Problem

LARGEST = 8 * 1024 * 1024
JSON_TYPES = frozenset({"application/json", "application/merge-patch+json"})

decode = msgspec.json.Decoder().decode


async def read_json(request: Request, *, largest: int = LARGEST) -> Any:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in JSON_TYPES:
        told = "send application/json"
        raise Problem("unsupported-media-type", told, headers={"accept": told[5:]})
    body = await read_bytes(request, largest=largest)
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
