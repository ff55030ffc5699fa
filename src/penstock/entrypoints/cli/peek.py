"""Read a bounded part of a file as text: its beginning, some of its middle, its end."""

import codecs
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from penstock.domain.file_formats import LONGEST_MAGIC, describe_format
from penstock.domain.guess.encoding import find_mark, guess_encoding, guess_wide
from penstock.domain.guess.guessed import Guessed
from penstock.errors import Misconfigured

BEGINNING = 2**20
ELSEWHERE = 2**17

GZIP = b"\x1f\x8b"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Whole lines of a file, as far as line breaks tell."""

    encoding: Guessed[str]
    pieces: tuple[str, ...]
    is_whole: bool


def peek(path: Path) -> Peek:
    """Look into a file; raises `Misconfigured` if it cannot hold a table."""
    try:
        if path.exists() and not path.is_file():
            raise Misconfigured(f"{path}: is no file")
        with path.open("rb") as file:
            return peek_into(file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Misconfigured(f"{path}: cannot be unpacked: {error}") from error
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from error


def peek_into(file: IO[bytes], path: Path) -> Peek:
    size = os.fstat(file.fileno()).st_size
    is_packed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    # one byte more says whether that is all
    beginning = (gzip.GzipFile(fileobj=file) if is_packed else file).read(BEGINNING + 1)
    is_whole = len(beginning) <= BEGINNING
    refuse_what_is_no_text(beginning, path)
    # only the beginning of packed files can be reached, and only bytes that are one
    # character each tell where a line ends
    can_jump = not (is_whole or is_packed or is_wide(beginning))
    places = [size // 2, size - ELSEWHERE] if can_jump else []
    raw = [beginning if is_whole else without_last_line(beginning, path)]
    raw += [lines_at(file, place) for place in places if place > BEGINNING]
    encoding = encoding_of(raw)
    pieces = tuple(decoded(raw, encoding.value))
    if not pieces[0].strip():
        raise Misconfigured(f"{path}: is empty")
    return Peek(encoding=encoding, pieces=pieces, is_whole=is_whole)


def refuse_what_is_no_text(beginning: bytes, path: Path) -> None:
    other = describe_format(beginning[:LONGEST_MAGIC], path.name)
    if other is not None:
        raise Misconfigured(f"{path}: {other}")
    if not is_wide(beginning) and b"\0" in beginning:
        told = "is no text: it holds NUL bytes; convert it to UTF-8 CSV first"
        raise Misconfigured(f"{path}: {told}")


def is_wide(beginning: bytes) -> bool:
    """Say whether characters have two bytes or more: UTF-16, with its mark or not."""
    return beginning.startswith(UTF_16) or guess_wide(beginning) is not None


def without_last_line(beginning: bytes, path: Path) -> bytes:
    """Drop what may go on behind the part that was read."""
    wide = 2 if is_wide(beginning) else 1
    kept = beginning[:BEGINNING]
    end = max(kept.rfind(b"\n"), kept.rfind(b"\r"))
    if end < 0:
        raise Misconfigured(f"{path}: is no CSV: its first line is longer than 1 MiB")
    # a character of UTF-16 begins at an even place
    return kept[: (end // wide + 1) * wide]


def lines_at(file: IO[bytes], place: int) -> bytes:
    """Read whole lines somewhere in a file; none if there is no end of a line."""
    file.seek(place)
    some = file.read(ELSEWHERE)
    begin, end = some.find(b"\n"), some.rfind(b"\n")
    return some[begin + 1 : end + 1]


def encoding_of(pieces: Sequence[bytes]) -> Guessed[str]:
    """Guess an encoding for all files like this one."""
    _, marked = find_mark(pieces[0])
    if marked is None:
        return guess_encoding(pieces, is_whole=True)
    # the order of bytes is told by the mark of each file
    known = "utf-16" if marked.startswith("utf-16") else marked
    return Guessed(known, "its byte order mark")


def decoded(pieces: Sequence[bytes], encoding: str) -> Iterator[str]:
    for piece in pieces:
        # what is damaged is shown as such
        text = piece.decode(encoding, "replace")
        yield text.removeprefix("\ufeff")
