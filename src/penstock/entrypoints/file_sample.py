"""Read a bounded sample of a file as text: its start, middle and end."""

import codecs
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from penstock.domain.formats import MAX_MAGIC_BYTES, describe_format
from penstock.domain.inference.encoding import (
    find_byte_order_mark,
    guess_encoding,
    guess_utf16,
)
from penstock.domain.inference.guess import Guess
from penstock.errors import Misconfigured

HEAD_BYTES = 2**20
CHUNK_BYTES = 2**17

GZIP = b"\x1f\x8b"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSample:
    """Complete lines of a file, judged by line breaks alone."""

    encoding: Guess[str]
    chunks: tuple[str, ...]
    is_whole: bool


def sample_file(path: Path) -> FileSample:
    """Sample a file; raises `Misconfigured` if it cannot be a table."""
    try:
        if path.exists() and not path.is_file():
            raise Misconfigured(f"{path}: is not a file")
        with path.open("rb") as file:
            return sample_open_file(file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Misconfigured(f"{path}: cannot be decompressed: {error}") from error
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from error


def sample_open_file(file: IO[bytes], path: Path) -> FileSample:
    size = os.fstat(file.fileno()).st_size
    is_gzip = file.read(len(GZIP)) == GZIP
    file.seek(0)
    # one byte more shows whether this is the whole file
    start = (gzip.GzipFile(fileobj=file) if is_gzip else file).read(HEAD_BYTES + 1)
    is_whole = len(start) <= HEAD_BYTES
    refuse_binary(start, path)
    # a compressed file can only be read from its start, and only in encodings with
    # single-byte line breaks can lines be found anywhere
    can_jump = not (is_whole or is_gzip or is_wide(start))
    positions = [size // 2, size - CHUNK_BYTES] if can_jump else []
    raw = [start if is_whole else without_last_line(start, path)]
    raw += [lines_at(file, position) for position in positions if position > HEAD_BYTES]
    encoding = encoding_of(raw)
    chunks = tuple(decode(raw, encoding.value))
    if not chunks[0].strip():
        raise Misconfigured(f"{path}: is empty")
    return FileSample(encoding=encoding, chunks=chunks, is_whole=is_whole)


def refuse_binary(start: bytes, path: Path) -> None:
    other_format = describe_format(start[:MAX_MAGIC_BYTES], path.name)
    if other_format is not None:
        raise Misconfigured(f"{path}: {other_format}")
    if not is_wide(start) and b"\0" in start:
        raise Misconfigured(
            f"{path}: is not text: it has NUL bytes; convert it to UTF-8 CSV first"
        )


def is_wide(start: bytes) -> bool:
    """Return whether a file is UTF-16, with or without a byte order mark."""
    return start.startswith(UTF_16) or guess_utf16(start) is not None


def without_last_line(start: bytes, path: Path) -> bytes:
    """Drop the last line, which may be incomplete."""
    width = 2 if is_wide(start) else 1
    head = start[:HEAD_BYTES]
    end = max(head.rfind(b"\n"), head.rfind(b"\r"))
    if end < 0:
        raise Misconfigured(f"{path}: is not CSV: its first line is longer than 1 MiB")
    # characters of UTF-16 start at even offsets
    return head[: (end // width + 1) * width]


def lines_at(file: IO[bytes], position: int) -> bytes:
    """Read complete lines after a position; empty if there is no line break."""
    file.seek(position)
    chunk = file.read(CHUNK_BYTES)
    first, last = chunk.find(b"\n"), chunk.rfind(b"\n")
    return chunk[first + 1 : last + 1]


def encoding_of(chunks: Sequence[bytes]) -> Guess[str]:
    """Guess the encoding to declare for files like this one."""
    _, marked = find_byte_order_mark(chunks[0])
    if marked is None:
        return guess_encoding(chunks, is_whole=True)
    # each file's own mark gives its byte order
    encoding = "utf-16" if marked.startswith("utf-16") else marked
    return Guess(encoding, "its byte order mark")


def decode(chunks: Sequence[bytes], encoding: str) -> Iterator[str]:
    for chunk in chunks:
        # invalid bytes become U+FFFD
        text = chunk.decode(encoding, "replace")
        yield text.removeprefix("\ufeff")
