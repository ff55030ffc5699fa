"""Read bodies: bounded, one by one and together, and only what they say they are."""

import asyncio
import json
import re
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from penstock.domain.text import explain_bad_json
from penstock.entrypoints.api.problems import Problem
from penstock.errors import BadRequest, Flaw, Overloaded

# seconds in which a body must come; whoever sends it more slowly holds it back
LONGEST = 30.0
JSON_TYPES = frozenset({"application/json", "application/merge-patch+json"})
# bytes of what may stand where nothing is read
LARGEST_NOTHING = 64
# bytes of all bodies in memory, and how many of the largest they are at least
ALL_TOGETHER, AT_ONCE = 64 * 1024**2, 4
# bytes beyond which the event loop has no time to decode them
LARGE = 64 * 1024

decode_once = msgspec.json.Decoder().decode


class Bodies:
    """What bodies may take of memory: each of them, and all that are under way."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.most = max(ALL_TOGETHER, AT_ONCE * largest)
        self.held = 0

    def hold(self, size: int) -> None:
        if self.held + size > self.most:
            raise Overloaded("bodies")
        self.held += size

    def let_go(self, size: int) -> None:
        self.held -= size


class DuplicateName(Exception):
    """An object of a body has a name twice: readers take different ones of the two."""


def decode(body: bytes) -> Any:
    """Read JSON in which every name of an object stands once."""
    document = decode_once(body)
    json.loads(
        body, object_pairs_hook=refuse_duplicate_names, parse_int=len, parse_float=len
    )
    return document


def refuse_duplicate_names(pairs: list[tuple[str, Any]]) -> None:
    # nothing is built: the document is there already
    if len(dict(pairs)) != len(pairs):
        raise DuplicateName


class Pairs(list[tuple[str, Any]]):
    """An object with all that it names."""


def find_duplicate_name(document: Any, at: str = "") -> str | None:
    """Return where the first name stands that comes twice in its object."""
    if isinstance(document, Pairs):
        seen = set()
        for name, value in document:
            place = f"{at}/{name.replace('~', '~0').replace('/', '~1')}"
            if name in seen:
                return place
            seen.add(name)
            if found := find_duplicate_name(value, place):
                return found
    elif isinstance(document, list):
        for number, each in enumerate(document):
            if found := find_duplicate_name(each, f"{at}/{number}"):
                return found
    return None


def explain_duplicate_name(body: bytes) -> Problem:
    pointer = find_duplicate_name(json.loads(body, object_pairs_hook=Pairs)) or "/"
    message = "stands twice in its object; give it once"
    flaw = Flaw(pointer=pointer, code="duplicate", detail=message)
    return Problem("bad-request", f"{pointer} {message}", flaws=[flaw])


async def read_json(request: Request, *, largest: int | None = None) -> Any:
    refuse_codings(request)
    media, _, options = request.headers.get("content-type", "").lower().partition(";")
    if media.strip() not in JSON_TYPES or not is_utf8(options):
        told = "send application/json, in UTF-8"
        headers = {"accept": "application/json"}
        raise Problem("unsupported-media-type", told, headers=headers)
    most = request.scope["exchange"].bodies.largest if largest is None else largest
    body = await read_bytes(request, largest=most)
    try:
        if len(body) > LARGE:
            return await asyncio.to_thread(decode, body)
        return decode(body)
    except DuplicateName:
        raise explain_duplicate_name(body) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        is_deep = isinstance(error, RecursionError)
        told = (
            "it is nested too deeply" if is_deep else explain_bad_json(body, str(error))
        )
        raise Problem("bad-request", f"the body is not JSON: {told}") from error


def refuse_codings(request: Request) -> None:
    """Refuse what is packed: others on the way might read another body than we do."""
    packed = request.headers.get("content-encoding", "identity")
    if packed.strip().lower() != "identity":
        told = f"a body in {packed[:20]!r} is not read; send it as it is"
        raise Problem("unsupported-media-type", told)
    sent = request.headers.get("transfer-encoding", "chunked")
    if sent.strip().lower() != "chunked":
        raise Problem("bad-request", f"the coding {sent[:20]!r} is not understood")


def is_utf8(options: str) -> bool:
    """Say whether the options of a media type name no other encoding."""
    charset = re.search(r"charset\s*=\s*\"?([^\s;\"]*)", options)
    return charset is None or charset[1] in {"utf-8", "utf8"}


async def refuse_body(request: Request) -> None:
    """Refuse what somebody sends along where nothing is read."""
    body = await read_bytes(request, largest=LARGEST_NOTHING)
    if body.strip() not in {b"", b"{}"}:
        told = "nothing is read here; send no body"
        raise BadRequest(Flaw(pointer="/", code="unknown", detail=told))


async def read_bytes(request: Request, *, largest: int) -> bytes:
    """Read a body that fits into memory; what it says of its size is not believed."""
    told = f"at most {largest:,} bytes are read"
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > largest:
        raise Problem("too-large", told)
    pieces, size = [], 0
    try:
        async with asyncio.timeout(LONGEST):
            async for piece in request.stream():
                size += len(piece)
                if size > largest:
                    raise Problem("too-large", told)
                request.scope["exchange"].hold(len(piece))
                pieces.append(piece)
    except ClientDisconnect as error:
        raise Problem("bad-request", "the body came to an early end") from error
    except TimeoutError as error:
        told = f"a body must come within {LONGEST:g} s"
        headers = {"connection": "close"}
        raise Problem("request-timeout", told, headers=headers) from error
    return b"".join(pieces)
