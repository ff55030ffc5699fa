"""Receive an uploaded file: from the connection to the spool, never all in memory."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportId
from penstock.domain.search.value_syntax import parse_int
from penstock.entrypoints.api.concurrency.background import FILE_THREADS
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.params.query_params import MAX_ID
from penstock.entrypoints.api.params.request_body import refuse_encodings
from penstock.entrypoints.api.problems import Problem
from penstock.errors import (
    BadRequest,
    ExpandsTooLarge,
    FieldError,
    Rejected,
    SourceUnavailable,
)

# the names of the parts: the file, whether its rows may replace each other, and the
# import whose bad rows it corrects
FILE, ACCEPT_DUPLICATES, CORRECTS = "file", "accept_duplicates", "corrects"
FLAGS = {b"true": True, b"false": False}
MAX_TEXT_LENGTH = 20
MAX_NAME_LENGTH = 200
# bytes of a form beyond its file
MAX_FORM_OVERHEAD = 64 * 1024
# seconds for which a client may send nothing
IDLE_TIMEOUT = 30.0
# bytes a second that a client must send, after the first `IDLE_TIMEOUT` seconds
MIN_RATE = 4 * 1024
# uploads in a process at the same time, each of which occupies a thread
MAX_UPLOADS = FILE_THREADS
# it would log every malformed request
logging.getLogger("python_multipart").addHandler(logging.NullHandler())
logging.getLogger("python_multipart").propagate = False
# the rest of the body is not read
CLOSE_HEADERS = {"connection": "close"}


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    """A file in the spool."""

    file: str
    # its name as the client sent it
    label: str
    # of the bytes that were sent
    digest: bytes
    accept_duplicates: bool = False
    corrects: ImportId | None = None


@dataclass(slots=True)
class MultipartFileParser:
    """Parses a multipart form with one file, and yields its content in chunks.

    Other parts may stand before or after the file.
    """

    boundary: bytes
    # the name of the file, once the headers of its part are parsed
    label: str | None = None
    is_complete: bool = False
    size: int = 0
    # the other parts by name, as they were sent
    texts: dict[str, bytes] = field(default_factory=dict)
    # the name of the part that is read, unless it is the file
    _text: str | None = None
    _chunks: list[bytes] = field(default_factory=list)
    _header: bytes = b""
    _value: bytes = b""
    _disposition: bytes = b""

    def read(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the content of the file; raises if the form is invalid."""
        try:
            parser = self._parser()
            for chunk in chunks:
                parser.write(chunk)
                self.size += sum(map(len, self._chunks))
                yield from self._chunks
                self._chunks.clear()
        except FormParserError as error:
            message = "the form is not well-formed, or ended early"
            raise Problem("bad-request", message) from error
        if not self.is_complete:
            message = "the form ended early: its last boundary is missing"
            raise Problem("bad-request", message)
        if self.label is None:
            raise form_error(FILE, "missing", "send one file as the part 'file'")
        if not self.size:
            raise form_error(FILE, "empty", "is empty; send a file with rows")

    def _parser(self) -> MultipartParser:
        return MultipartParser(
            self.boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_to_header,
                "on_header_value": self._add_to_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._check_part,
                "on_part_data": self._add_data,
                "on_part_end": self._end_part,
                "on_end": self._finish,
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

    def _check_part(self) -> None:
        kind, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"").decode(errors="replace")[:MAX_NAME_LENGTH]
        if kind != b"form-data" or not name:
            raise Problem("bad-request", "a part of the form has no name")
        self._text = name if name in {ACCEPT_DUPLICATES, CORRECTS} else None
        if self._text is not None:
            if name in self.texts:
                raise form_error(name, "repeated", "is sent twice")
            self.texts[name] = b""
            return
        if name != FILE:
            detail = (
                f"is not a part here; send {FILE!r}, {ACCEPT_DUPLICATES!r} and "
                f"{CORRECTS!r}"
            )
            raise form_error(name, "unknown", detail)
        if self.label is not None:
            raise form_error(FILE, "repeated", "is sent twice; send one file")
        if b"filename" not in options:
            raise form_error(FILE, "type", "must be sent as a file, with a file name")
        self.label = options[b"filename"].decode(errors="replace")[:MAX_NAME_LENGTH]

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._text is None:
            self._chunks.append(data[start:end])
        else:
            text = self.texts[self._text] + data[start:end]
            self.texts[self._text] = text[: MAX_TEXT_LENGTH + 1]

    def _end_part(self) -> None:
        match self._text:
            case "accept_duplicates" if self.texts[self._text] not in FLAGS:
                raise form_error(self._text, "type", "must be true or false")
            case "corrects" if self.corrects is None:
                raise form_error(self._text, "type", "must be the id of an import")
        self._text = None

    @property
    def accept_duplicates(self) -> bool:
        return FLAGS[self.texts.get(ACCEPT_DUPLICATES, b"false")]

    @property
    def corrects(self) -> ImportId | None:
        number = parse_int(self.texts.get(CORRECTS, b"").decode(errors="replace"))
        return ImportId(number) if number and 1 <= number <= MAX_ID else None

    def _finish(self) -> None:
        self.is_complete = True


async def receive(api: AppContext, request: Request, dataset: Dataset) -> UploadedFile:
    """Store the file of a form in the spool; nothing is stored on an error."""
    _, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if not boundary:
        raise Problem("bad-request", "the content type does not name the boundary")
    refuse_encodings(request)
    max_bytes = dataset.csv.max_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes + MAX_FORM_OVERHEAD:
        raise too_large(max_bytes)
    form = MultipartFileParser(boundary)
    chunks = pull_chunks(
        request.stream(),
        asyncio.get_running_loop(),
        max_bytes=max_bytes + MAX_FORM_OVERHEAD,
    )
    try:
        file, digest = await api.background.run_for_file(
            partial(save, api, dataset, form, chunks)
        )
    except ExpandsTooLarge as error:
        message = f"the file {error.detail}"
        raise Problem("too-large", message, headers=CLOSE_HEADERS) from error
    except Rejected as error:
        raise too_large(max_bytes) from error
    except SourceUnavailable as error:
        message = "the file could not be stored; try again"
        headers = {"retry-after": "5"}
        raise Problem(
            "unavailable", message, headers=headers, cause=str(error)
        ) from error
    return UploadedFile(
        file=file,
        label=form.label or "",
        digest=digest,
        accept_duplicates=form.accept_duplicates,
        corrects=form.corrects,
    )


def save(
    api: AppContext,
    dataset: Dataset,
    form: MultipartFileParser,
    chunks: Iterator[bytes],
) -> tuple[str, bytes]:
    """Store the file, in a thread; return its location and digest."""
    digest = blake2b(digest_size=16)

    def read_chunks() -> Iterator[bytes]:
        for chunk in form.read(chunks):
            digest.update(chunk)
            yield chunk

    content = read_chunks()
    # after the first chunk, the name of the file is known
    first = next(content, b"")
    file = api.penstock.uploads.save(
        dataset, itertools.chain([first], content), label=form.label or ""
    )
    return file, digest.digest()


def pull_chunks(
    stream: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop, *, max_bytes: int
) -> Iterator[bytes]:
    """Yield the body of a request to a thread, as fast as the thread consumes it.

    Raises if it is too large, or too slow: a client that sends a byte now and then
    would occupy one of a few threads.
    """
    waiting_time, size = 0.0, 0

    async def receive_chunk() -> bytes | None:
        nonlocal waiting_time
        started_at = loop.time()
        try:
            async with asyncio.timeout(IDLE_TIMEOUT):
                chunk = await anext(stream, None)
        except TimeoutError:
            message = f"nothing was received for {IDLE_TIMEOUT:g} s"
            raise Problem("request-timeout", message, headers=CLOSE_HEADERS) from None
        except ClientDisconnect as error:
            raise Problem("bad-request", "the form ended early") from error
        # only the time spent waiting for the client counts
        waiting_time += loop.time() - started_at
        return chunk

    while True:
        future = asyncio.run_coroutine_threadsafe(receive_chunk(), loop)
        try:
            # the event loop may have stopped
            chunk = future.result(timeout=2 * IDLE_TIMEOUT)
        except FutureTimeout:
            future.cancel()
            raise
        if chunk is None:
            return
        size += len(chunk)
        if size > max_bytes:
            raise Rejected(f"the form has more than {max_bytes:,} bytes")
        if waiting_time > IDLE_TIMEOUT + size / MIN_RATE:
            message = f"send at least {MIN_RATE:,} bytes a second"
            raise Problem("request-timeout", message, headers=CLOSE_HEADERS)
        yield chunk


def form_error(part: str, code: str, detail: str) -> BadRequest:
    return BadRequest(FieldError(pointer=f"/{part}", code=code, detail=detail))


def too_large(max_bytes: int) -> Problem:
    return Problem(
        "too-large", f"a file of at most {max_bytes:,} bytes", headers=CLOSE_HEADERS
    )
