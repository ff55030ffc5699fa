"""Read the rows of a range chunk by chunk, and set aside what is no row.

Whatever a file holds, every record is one of three: a row, a bad row or an empty line.
A chunk of clean rows costs no work for each of them but that of Python's own reader;
where each row stands is found out, by reading the chunk again, only if somebody asks.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from itertools import chain, islice
from pathlib import Path

from penstock.adapters.csv.cut import Range
from penstock.adapters.csv.dialect import Dialect
from penstock.adapters.csv.excerpt import BadRow, Excerpt, Place
from penstock.adapters.csv.limits import LIMITS, Limits
from penstock.adapters.csv.shape import Shape
from penstock.adapters.csv.stream import Stream
from penstock.adapters.csv.windows import Flawed, Window, Windows
from penstock.ports import StillHere

# read behind a window, it is a record of its own, unless a quote is open there
OURS = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some records in a row, and where the next chunk begins."""

    start: int
    line: int
    next_start: int
    next_line: int
    rows: list[list[str]]
    bad: list[BadRow]
    # the empty lines
    skipped: int
    excerpt: Excerpt | None

    def places(self) -> list[Place]:
        """Tell where each row stands; costs as much as reading them."""
        if self.excerpt is None:
            return []
        flaw = self.excerpt.flaw
        return [
            place
            for row, place in self.excerpt.records()
            if row and flaw(row, place) is None
        ]


class Chunks:
    """The chunks of a range; a range that begins where one ended goes on there."""

    def __init__(
        self,
        path: Path,
        dialect: Dialect,
        part: Range,
        *,
        shape: Shape,
        limits: Limits = LIMITS,
        still_here: StillHere = lambda: None,
    ) -> None:
        self._path = path
        self._dialect = dialect
        self._part = part
        self._shape = shape
        self._limits = limits
        # whoever waits for the next chunk, if it takes long; another may later
        self.still_here = still_here
        # how much of the file itself is read, packed as it is
        self.passed = 0

    def __iter__(self) -> Iterator[Chunk]:
        start, line = self._part.start, self._part.line
        opened = Stream(
            self._path,
            start=start,
            end=self._part.end,
            limits=self._limits,
            still_here=lambda: self.still_here(),  # noqa: PLW0108 (it changes)
        )
        with opened as stream:
            windows = Windows(stream, self._dialect, self._limits, start=start)
            while (window := windows.take(line=line)) is not None:
                self.passed = stream.passed
                if isinstance(window, Flawed):
                    chunks = iter([set_aside(window, line)])
                else:
                    chunks = self._read(window, line, windows)
                for chunk in chunks:
                    line = chunk.next_line
                    yield chunk

    def _read(self, window: Window, line: int, windows: Windows) -> Iterator[Chunk]:
        """Part the records of a window into chunks of about the same size."""
        text, is_clean = self._decode(window.raw)
        lines = StringIO(text, newline="")
        reader, is_strict = self._dialect.reader(lines, strict=True), True
        most = even_part(window.raw.count(b"\n"), self._limits.rows)
        next_line = first_line = line
        at = byte = 0
        while at < len(text):
            try:
                records = list(islice(reader, most))
            except csv.Error:
                # text behind a quote, or a record that goes on behind the window
                lines.seek(at)
                behind = [] if window.is_whole else [OURS]
                reader, is_strict = self._dialect.reader(chain(lines, behind)), False
                first_line = next_line
                records = list(islice(reader, most))
            end = lines.tell()
            part = text[at:end]
            size = self._dialect.coding.size(part)
            excerpt = Excerpt(
                raw=window.raw[byte : byte + size],
                text=part,
                start=window.start + byte,
                line=next_line,
                dialect=self._dialect,
                shape=self._shape,
                is_clean=is_clean,
            )
            at, byte = end, byte + size
            next_line = first_line + reader.line_num
            if end == len(text) and not window.is_whole and not is_strict:
                records.extend(reader)
                next_line = first_line + reader.line_num - 1
                if records.pop():
                    excerpt, next_line = excerpt.without_last()
                    windows.put_back(window, excerpt.start + len(excerpt.raw))
            if not is_strict and is_clean:
                is_read = self._dialect.is_strict(StringIO(excerpt.text, newline=""))
                excerpt = replace(excerpt, is_clean=is_read)
            if records:
                yield sort_records(records, excerpt, next_line=next_line)

    def _decode(self, raw: bytes) -> tuple[str, bool]:
        """Return the text, and if it is clean."""
        try:
            text = raw.decode(self._dialect.coding.name)
        except UnicodeDecodeError:
            return self._dialect.coding.decode_leniently(raw), False
        return text, "\0" not in text


def even_part(count: int, most: int) -> int:
    """Return how many to take at a time, so that few are not left alone at the end."""
    parts = -(-count // most)
    return -(-count // parts) if parts > 1 else most


def set_aside(record: Flawed, line: int) -> Chunk:
    bad = BadRow(
        place=Place(line=line, offset=record.start, raw=record.raw),
        flaw=record.flaw,
        detail=record.detail,
        open_quote=record.open_quote,
    )
    return Chunk(
        start=record.start,
        line=line,
        next_start=record.start + record.size,
        next_line=line + record.lines,
        rows=[],
        bad=[bad],
        skipped=0,
        excerpt=None,
    )


def sort_records(
    records: list[list[str]], excerpt: Excerpt, *, next_line: int
) -> Chunk:
    """Tell rows, bad rows and empty lines apart."""
    shape = excerpt.shape
    rows: list[list[str]] = records
    bad: list[BadRow] = []
    skipped = 0
    is_even = not shape.is_trailing and set(map(len, records)) == {shape.width}
    if not excerpt.is_clean or not is_even:
        rows = [row for row in records if row]
        if not excerpt.is_clean or not all(map(shape.fits, rows)):
            rows, bad = set_flawed_aside(excerpt)
        rows = [row[: shape.width] for row in rows]
        skipped = records.count([])
    return Chunk(
        start=excerpt.start,
        line=excerpt.line,
        next_start=excerpt.start + len(excerpt.raw),
        next_line=next_line,
        rows=rows,
        bad=bad,
        skipped=skipped,
        excerpt=excerpt,
    )


def set_flawed_aside(excerpt: Excerpt) -> tuple[list[list[str]], list[BadRow]]:
    rows, bad = [], []
    for row, place in excerpt.records():
        flaw = excerpt.flaw(row, place) if row else None
        if flaw is not None:
            bad.append(BadRow(place=place, flaw=flaw[0], detail=flaw[1]))
        elif row:
            rows.append(row)
    return rows, bad
