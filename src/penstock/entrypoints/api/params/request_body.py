"""Read request bodies, within limits of their sizes, types and times."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from penstock.domain.formats import explain_bad_json
from penstock.domain.mapping.written_numbers import WrittenNumber
from penstock.entrypoints.api.problems import Problem
from penstock.errors import BadRequest, FieldError, Overloaded

# seconds within which a body must be received
BODY_TIMEOUT = 30.0
JSON_TYPES = frozenset({"application/json", "application/merge-patch+json"})
# bytes of a body, such as {}, where none is expected
MAX_EMPTY_BODY = 64
# bytes of all bodies in memory; more if that is less than so many of maximum size
MEMORY_LIMIT = 64 * 1024**2
MIN_LARGEST_BODIES = 4
# bytes above which a body is decoded in a thread, not in the event loop
THREAD_THRESHOLD = 64 * 1024

decode_json = msgspec.json.Decoder().decode
# a number with a point has its text: its float may have fewer digits
decode_written = msgspec.json.Decoder(float_hook=WrittenNumber).decode


class BodyMemoryLimit:
    """Limits the memory of request bodies: of each, and of all at the same time."""

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self.capacity = max(MEMORY_LIMIT, MIN_LARGEST_BODIES * max_size)
        self.reserved = 0

    def hold(self, size: int) -> None:
        if self.reserved + size > self.capacity:
            raise Overloaded("bodies")
        self.reserved += size

    def release(self, size: int) -> None:
        self.reserved -= size


class DuplicateName(Exception):
    """An object has a name twice; parsers disagree on which value counts."""


def decode(body: bytes, decode_plain: Callable[[bytes], Any] = decode_json) -> Any:
    """Decode JSON; raises `DuplicateName` if an object has a name twice."""
    document = decode_plain(body)
    json.loads(
        body, object_pairs_hook=refuse_duplicate_names, parse_int=len, parse_float=len
    )
    return document


def refuse_duplicate_names(pairs: list[tuple[str, Any]]) -> None:
    # nothing is built: msgspec has decoded the document already
    if len(dict(pairs)) != len(pairs):
        raise DuplicateName


class Pairs(list[tuple[str, Any]]):
    """A JSON object as pairs, with duplicate names."""


def find_duplicate_name(document: Any, parent: str = "") -> str | None:
    """Return the JSON pointer of the first name that its object has twice."""
    if isinstance(document, Pairs):
        seen = set()
        for name, value in document:
            pointer = f"{parent}/{name.replace('~', '~0').replace('/', '~1')}"
            if name in seen:
                return pointer
            seen.add(name)
            if found := find_duplicate_name(value, pointer):
                return found
    elif isinstance(document, list):
        for index, item in enumerate(document):
            if found := find_duplicate_name(item, f"{parent}/{index}"):
                return found
    return None


def explain_duplicate_name(body: bytes) -> Problem:
    pointer = find_duplicate_name(json.loads(body, object_pairs_hook=Pairs)) or "/"
    message = "occurs twice in its object; give it once"
    error = FieldError(pointer=pointer, code="duplicate", detail=message)
    return Problem("bad-request", f"{pointer} {message}", flaws=[error])


async def read_records(request: Request) -> Any:
    """Read JSON whose numbers are stored."""
    return await read_json(request, decode_plain=decode_written)


async def read_json(
    request: Request,
    *,
    max_size: int | None = None,
    decode_plain: Callable[[bytes], Any] = decode_json,
) -> Any:
    refuse_encodings(request)
    media, _, options = request.headers.get("content-type", "").lower().partition(";")
    if media.strip() not in JSON_TYPES or not is_utf8(options):
        message = "send application/json, in UTF-8"
        headers = {"accept": "application/json"}
        raise Problem("unsupported-media-type", message, headers=headers)
    most = request.scope["context"].bodies.max_size if max_size is None else max_size
    body = await read_bytes(request, max_size=most)
    try:
        if len(body) > THREAD_THRESHOLD:
            return await asyncio.to_thread(decode, body, decode_plain)
        return decode(body, decode_plain)
    except DuplicateName:
        raise explain_duplicate_name(body) from None
    except (ValueError, RecursionError) as error:
        is_deep = isinstance(error, RecursionError)
        message = (
            "it is nested too deeply" if is_deep else explain_bad_json(body, str(error))
        )
        raise Problem("bad-request", f"the body is not JSON: {message}") from error


def refuse_encodings(request: Request) -> None:
    """Refuse compressed bodies and unknown transfer encodings.

    A proxy might decode them to another body than we do.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        message = (
            f"the content encoding {encoding[:20]!r} is not supported; send identity"
        )
        raise Problem("unsupported-media-type", message)
    sent = request.headers.get("transfer-encoding", "chunked")
    if sent.strip().lower() != "chunked":
        raise Problem(
            "bad-request", f"the transfer encoding {sent[:20]!r} is not supported"
        )


def is_utf8(options: str) -> bool:
    """Return whether the options of a media type name UTF-8 or no charset."""
    charset = re.search(r"charset\s*=\s*\"?([^\s;\"]*)", options)
    return charset is None or charset[1] in {"utf-8", "utf8"}


async def refuse_body(request: Request) -> None:
    """Refuse a body where none is expected; `{}` is accepted."""
    body = await read_bytes(request, max_size=MAX_EMPTY_BODY)
    if body.strip() not in {b"", b"{}"}:
        message = "no body is expected here; send none"
        raise BadRequest(FieldError(pointer="/", code="unknown", detail=message))


async def read_bytes(request: Request, *, max_size: int) -> bytes:
    """Read a body of limited size, without trusting its content-length."""
    message = f"the body has more than {max_size:,} bytes"
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_size:
        raise Problem("too-large", message)
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_size:
                    raise Problem("too-large", message)
                request.scope["context"].hold(len(chunk))
                chunks.append(chunk)
    except ClientDisconnect as error:
        raise Problem("bad-request", "the body ended early") from error
    except TimeoutError as error:
        message = f"a body must be received within {BODY_TIMEOUT:g} s"
        headers = {"connection": "close"}
        raise Problem("request-timeout", message, headers=headers) from error
    return b"".join(chunks)
