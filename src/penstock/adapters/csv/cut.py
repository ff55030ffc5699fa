"""Cut a file into ranges of bytes that begin where records begin, in one pass."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from penstock.adapters.csv.content import Content, Hashing
from penstock.adapters.csv.dialect import Dialect
from penstock.adapters.csv.head import Head
from penstock.adapters.csv.stream import translated
from penstock.adapters.csv.walk import Walk, whole_signs
from penstock.errors import SourceUnavailable
from penstock.ports import StillHere

BLOCK = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Whole records: the bytes from start to end, and the number of the first line."""

    start: int
    # None: to the end of a packed file, which nobody knows before
    end: int | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """A file as it is: its ranges, and the digests of what is in it."""

    ranges: tuple[Range, ...]
    content: Content
    # the line of a quote that is never closed
    unclosed: int | None = None


def cut(
    path: Path,
    head: Head,
    *,
    size: int,
    block: int = BLOCK,
    still_here: StillHere = lambda: None,
) -> Cuts:
    """Cut a file into ranges of about that size; a packed one stays whole.

    A file whose last quote is not closed stays whole, too: nobody can tell which of its
    newlines were meant to end a record.
    """
    with translated(path), path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            # the disk reads on while what it read is looked at
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        before = file.seek(0, 2), path.stat().st_mtime_ns
        file.seek(0)
        hashed = Hashed(file, still_here)
        whole = Range(start=head.start, end=None, line=head.line)
        if head.is_packed:
            hashed.pass_by(None)
            ranges, unclosed = [whole], None
        else:
            ranges, unclosed = cut_records(hashed, head, size=size, block=block)
        after = hashed.size, path.stat().st_mtime_ns
    if before != after:
        raise SourceUnavailable(f"{path} was changed while it was read")
    return Cuts(ranges=tuple(ranges), content=hashed.content(), unclosed=unclosed)


class Hashed(Hashing):
    """A file that is hashed as it is read."""

    def __init__(self, file: BinaryIO, still_here: StillHere) -> None:
        super().__init__()
        self._file = file
        self._still_here = still_here

    def read(self, size: int) -> bytes:
        self._still_here()
        block = self._file.read(size)
        self.add(block)
        return block

    def pass_by(self, end: int | None) -> None:
        """Read up to a place, or to the end."""
        while end is None or self.size < end:
            wanted = BLOCK if end is None else min(BLOCK, end - self.size)
            if not self.read(wanted):
                break


def cut_records(
    file: Hashed, head: Head, *, size: int, block: int
) -> tuple[list[Range], int | None]:
    """Return the ranges of a file, or all in one and the line of the open quote."""
    coding = head.dialect.coding
    walk = Walk(head.dialect, line=head.line)
    whole = Range(start=head.start, end=None, line=head.line)
    current, ranges = whole, []
    file.pass_by(head.start)
    # the byte that signs[at] begins with
    byte = head.start
    for signs in read_signs(file, head.dialect, block):
        at = 0
        while at < len(signs):
            aim = at + max(0, current.start + size - byte) // coding.unit
            aim = without_parting(signs, min(aim, len(signs)), head.dialect)
            end = next_end(walk, signs, at, aim)
            byte += coding.size_of_signs(signs[at:end])
            at = len(signs) if end is None else end
            if end is not None:
                ranges.append(replace(current, end=byte))
                current = Range(start=byte, end=None, line=walk.line)
    if walk.is_quoted:
        return [replace(whole, end=file.size)], walk.opened_on
    if current.start < file.size:
        ranges.append(replace(current, end=file.size))
    return ranges, None


def next_end(walk: Walk, signs: str, start: int, aim: int) -> int | None:
    """Return the first end of a record behind the aim."""
    walk.pass_by(signs, start, aim)
    return None if aim == len(signs) else walk.find_end(signs, aim)


def without_parting(signs: str, at: int, dialect: Dialect) -> int:
    """Go on to where no end of a line is parted, and no sign from its escape."""
    escape = dialect.escape_sign
    while escape is not None and 0 < at < len(signs) and signs[at - 1] == escape:
        at += 1
    return at + 1 if signs[at - 1 : at + 1] == "\r\n" else at


def read_signs(file: Hashed, dialect: Dialect, block: int) -> Iterator[str]:
    """Yield the signs of what is left of a file, parting nothing that is one."""
    held = b""
    while read := file.read(block):
        raw = held + read
        signs, size = whole_signs(raw, dialect)
        held = raw[size:]
        yield signs
    yield dialect.coding.signs(held)
