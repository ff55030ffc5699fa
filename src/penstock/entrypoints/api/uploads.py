"""A file that a client sends: from the wire to the spool, never in memory."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from penstock.domain.dataset import Dataset
from penstock.entrypoints.api.bodies import refuse_codings
from penstock.entrypoints.api.errands import FILES
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.service import Api
from penstock.errors import (
    BadRequest,
    Flaw,
    Rejected,
    SourceUnavailable,
    UnpacksTooLarge,
)

# the part that holds the file
FILE = "file"
LONGEST_NAME = 200
# what stands around the file in a form, at most
AROUND = 64 * 1024
# how long a client may send nothing, in seconds
SILENCE = 30.0
# bytes a second that a client has to send, beyond the first so many seconds
LEAST_RATE = 4 * 1024
# uploads of a process at a time: each has a thread as long as it takes
MOST_AT_ONCE = FILES
# it would tell every client's mistake to whoever reads our log
logging.getLogger("python_multipart").addHandler(logging.NullHandler())
logging.getLogger("python_multipart").propagate = False
# the rest of the body is not read
CLOSE = {"connection": "close"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """A file in the spool, and what was said of it."""

    file: str
    # what the client calls it
    label: str
    # of the content of all that was sent
    digest: bytes


@dataclass(slots=True)
class Form:
    """A form of one file, which is passed on piece by piece."""

    boundary: bytes
    # what the client calls the file, once it has come so far
    label: str | None = None
    is_whole: bool = False
    size: int = 0
    _pieces: list[bytes] = field(default_factory=list)
    _header: bytes = b""
    _value: bytes = b""
    _disposition: bytes = b""

    def read(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces of the file; raises where the form has flaws."""
        try:
            parser = self._parser()
            for chunk in chunks:
                parser.write(chunk)
                self.size += sum(map(len, self._pieces))
                yield from self._pieces
                self._pieces.clear()
        except FormParserError as error:
            told = "the form is not well-formed, or came to an early end"
            raise Problem("bad-request", told) from error
        if not self.is_whole:
            told = "the form came to an early end: its last boundary is missing"
            raise Problem("bad-request", told)
        if self.label is None:
            raise flawed(FILE, "missing", "send one file as the part 'file'")
        if not self.size:
            raise flawed(FILE, "empty", "is empty; send a file with rows")

    def _parser(self) -> MultipartParser:
        return MultipartParser(
            self.boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_to_header,
                "on_header_value": self._add_to_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._name_part,
                "on_part_data": self._add_data,
                "on_end": self._end,
            },
        )

    def _begin_part(self) -> None:
        self._disposition = b""

    def _add_to_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _add_to_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def _name_part(self) -> None:
        kind, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"").decode(errors="replace")[:LONGEST_NAME]
        if kind != b"form-data" or not name:
            raise Problem("bad-request", "a part of the form has no name")
        if name != FILE:
            raise flawed(name, "unknown", f"is no part here; send only {FILE!r}")
        if self.label is not None:
            raise flawed(FILE, "repeated", "is sent twice; send one file")
        if b"filename" not in options:
            raise flawed(FILE, "type", "must be sent as a file, with a file name")
        self.label = options[b"filename"].decode(errors="replace")[:LONGEST_NAME]

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._pieces.append(data[start:end])

    def _end(self) -> None:
        self.is_whole = True


async def receive(api: Api, request: Request, dataset: Dataset) -> Uploaded:
    """Store the file of a form in the spool; where anything is wrong, nothing is."""
    _, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if not boundary:
        raise Problem("bad-request", "the content type does not name the boundary")
    refuse_codings(request)
    most = dataset.csv.max_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most + AROUND:
        raise too_large(most)
    form = Form(boundary)
    chunks = pulled(request.stream(), asyncio.get_running_loop(), most=most + AROUND)
    try:
        file, digest = await api.errands.keep_file(
            partial(save, api, dataset, form, chunks)
        )
    except UnpacksTooLarge as error:
        told = f"the file {error.detail}"
        raise Problem("too-large", told, headers=CLOSE) from error
    except Rejected as error:
        raise too_large(most) from error
    except SourceUnavailable as error:
        told = "the file could not be stored; ask again"
        headers = {"retry-after": "5"}
        raise Problem("unavailable", told, headers=headers, cause=str(error)) from error
    return Uploaded(file=file, label=form.label or "", digest=digest)


def save(
    api: Api, dataset: Dataset, form: Form, chunks: Iterator[bytes]
) -> tuple[str, bytes]:
    """Store what comes, in a thread; return where, and its digest."""
    digest = blake2b(digest_size=16)

    def pieces() -> Iterator[bytes]:
        for piece in form.read(chunks):
            digest.update(piece)
            yield piece

    coming = pieces()
    # with it comes the name of the file
    first = next(coming, b"")
    file = api.penstock.uploads.save(
        dataset, itertools.chain([first], coming), label=form.label or ""
    )
    return file, digest.digest()


def pulled(
    stream: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop, *, most: int
) -> Iterator[bytes]:
    """Yield what comes over the wire to a thread, as fast as it takes it.

    Not more than so many bytes, wherever in the form they stand, and not without end:
    whoever sends a byte now and then would keep the place of others.
    """
    waited, size = 0.0, 0

    async def following() -> bytes | None:
        nonlocal waited
        began = loop.time()
        try:
            async with asyncio.timeout(SILENCE):
                chunk = await anext(stream, None)
        except TimeoutError:
            told = f"nothing came for {SILENCE:g} s"
            raise Problem("request-timeout", told, headers=CLOSE) from None
        except ClientDisconnect as error:
            raise Problem("bad-request", "the form came to an early end") from error
        # only as long as it was the client for whom we waited
        waited += loop.time() - began
        return chunk

    while True:
        asked = asyncio.run_coroutine_threadsafe(following(), loop)
        try:
            # the loop may have come to its end meanwhile
            chunk = asked.result(timeout=2 * SILENCE)
        except NotInTime:
            asked.cancel()
            raise
        if chunk is None:
            return
        size += len(chunk)
        if size > most:
            raise Rejected(f"the form has more than {most:,} bytes")
        if waited > SILENCE + size / LEAST_RATE:
            told = f"send at least {LEAST_RATE:,} bytes a second"
            raise Problem("request-timeout", told, headers=CLOSE)
        yield chunk


def flawed(part: str, code: str, detail: str) -> BadRequest:
    return BadRequest(Flaw(pointer=f"/{part}", code=code, detail=detail))


def too_large(most: int) -> Problem:
    return Problem("too-large", f"a file of at most {most:,} bytes", headers=CLOSE)
