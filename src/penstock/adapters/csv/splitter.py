"""Split a file into byte ranges that begin where records begin, in one pass."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from penstock.adapters.csv.byte_stream import translate_errors
from penstock.adapters.csv.content_hash import ContentHash, HashingStream
from penstock.adapters.csv.dialect import CsvDialect
from penstock.adapters.csv.header import FileHeader
from penstock.adapters.csv.record_scanner import RecordScanner, complete_units
from penstock.errors import SourceUnavailable
from penstock.ports import KeepAlive

BLOCK_SIZE = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """Whole records: the bytes from start to end, and the number of the first line."""

    start: int
    # None: to the end of a compressed file, whose size is unknown
    end: int | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPoints:
    """The ranges of a file, and the digests of its content."""

    ranges: tuple[ByteRange, ...]
    content: ContentHash
    # the line of a quote that is never closed, if there is one
    unclosed: int | None = None


def split_file(
    path: Path,
    head: FileHeader,
    *,
    size: int,
    block: int = BLOCK_SIZE,
    still_here: KeepAlive = lambda: None,
) -> SplitPoints:
    """Split a file into ranges of about that size; a compressed file stays whole.

    A file whose last quote is not closed stays whole, too: it is undecidable which of
    its newlines were meant to end a record.
    """
    with translate_errors(path), path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            # the disk reads ahead while a block is scanned
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        before = file.seek(0, 2), path.stat().st_mtime_ns
        file.seek(0)
        hashing_file = HashingFile(file, still_here)
        whole = ByteRange(start=head.start, end=None, line=head.line)
        if head.is_compressed:
            hashing_file.skip_to(None)
            ranges, unclosed = [whole], None
        else:
            ranges, unclosed = split_records(hashing_file, head, size=size, block=block)
        after = hashing_file.size, path.stat().st_mtime_ns
    if before != after:
        raise SourceUnavailable(f"{path} changed while it was read")
    return SplitPoints(
        ranges=tuple(ranges), content=hashing_file.content(), unclosed=unclosed
    )


class HashingFile(HashingStream):
    """A file that is hashed as it is read."""

    def __init__(self, file: BinaryIO, still_here: KeepAlive) -> None:
        super().__init__()
        self._file = file
        self._still_here = still_here

    def read(self, size: int) -> bytes:
        self._still_here()
        block = self._file.read(size)
        self.add(block)
        return block

    def skip_to(self, end: int | None) -> None:
        """Read up to an offset, or to the end."""
        while end is None or self.size < end:
            size_to_read = (
                BLOCK_SIZE if end is None else min(BLOCK_SIZE, end - self.size)
            )
            if not self.read(size_to_read):
                break


def split_records(
    file: HashingFile, head: FileHeader, *, size: int, block: int
) -> tuple[list[ByteRange], int | None]:
    """Return the ranges of a file, or one range and the line of the unclosed quote."""
    codec = head.dialect.codec
    scanner = RecordScanner(head.dialect, line=head.line)
    whole = ByteRange(start=head.start, end=None, line=head.line)
    current, ranges = whole, []
    file.skip_to(head.start)
    # the byte offset of units[at]
    offset = head.start
    for units in read_units(file, head.dialect, block):
        at = 0
        while at < len(units):
            target = at + max(0, current.start + size - offset) // codec.unit_size
            target = next_split_point(units, min(target, len(units)), head.dialect)
            end = next_end(scanner, units, at, target)
            offset += codec.size_of_units(units[at:end])
            at = len(units) if end is None else end
            if end is not None:
                ranges.append(replace(current, end=offset))
                current = ByteRange(start=offset, end=None, line=scanner.line)
    if scanner.is_quoted:
        return [replace(whole, end=file.size)], scanner.opened_on
    if current.start < file.size:
        ranges.append(replace(current, end=file.size))
    return ranges, None


def next_end(scanner: RecordScanner, units: str, start: int, target: int) -> int | None:
    """Return the first end of a record after the target."""
    scanner.skip_to(units, start, target)
    return None if target == len(units) else scanner.find_end(units, target)


def next_split_point(units: str, at: int, dialect: CsvDialect) -> int:
    """Advance to where neither a line end nor an escape sequence is split."""
    escape = dialect.escape_unit
    while escape is not None and 0 < at < len(units) and units[at - 1] == escape:
        at += 1
    return at + 1 if units[at - 1 : at + 1] == "\r\n" else at


def read_units(file: HashingFile, dialect: CsvDialect, block: int) -> Iterator[str]:
    """Yield the code units of the rest of a file, in complete blocks."""
    rest = b""
    while read := file.read(block):
        raw = rest + read
        units, size = complete_units(raw, dialect)
        rest = raw[size:]
        yield units
    yield dialect.codec.code_units(rest)
