"""Read the rows of a byte range in chunks, and separate what is not a row.

A range is read in windows of complete records, in bounded memory whatever it holds.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from itertools import chain, islice
from pathlib import Path

from penstock.adapters.csv.byte_stream import ByteStream
from penstock.adapters.csv.dialect import CsvDialect
from penstock.adapters.csv.limits import LIMITS, FileLimits
from penstock.adapters.csv.record_scanner import RecordScanner, complete_units
from penstock.adapters.csv.row_shape import RowShape
from penstock.adapters.csv.splitter import ByteRange
from penstock.domain.csv_reader import StrayText
from penstock.domain.formats import shorten
from penstock.domain.pages import Reason
from penstock.ports import KeepAlive

MAX_SHOWN_LENGTH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPosition:
    """The position of a record in its file, and its bytes."""

    line: int
    offset: int
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A record that is not a row."""

    position: RecordPosition
    flaw: Reason
    detail: str
    # set if an open quote may have swallowed the rows after it
    open_quote: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordText:
    """Text that begins at the start of a record."""

    raw: bytes
    text: str
    start: int
    line: int
    dialect: CsvDialect
    shape: RowShape
    # decoded without errors, without NUL, and no text follows a closing quote
    is_clean: bool

    def records(self) -> Iterator[tuple[list[str], RecordPosition]]:
        """Yield each record with its position."""
        codec = self.dialect.codec
        lines = StringIO(self.text, newline="")
        reader = self.dialect.reader(lines)
        position = offset = 0
        line = self.line
        for row in reader:
            end = lines.tell()
            size = codec.size(self.text[position:end])
            raw = self.raw[offset : offset + size]
            yield row, RecordPosition(line=line, offset=self.start + offset, raw=raw)
            position, offset, line = end, offset + size, self.line + reader.line_num

    def flaw(
        self, row: list[str], position: RecordPosition
    ) -> tuple[Reason, str] | None:
        """Return why a record is not a row; None if it is one."""
        if not self.is_clean:
            codec = self.dialect.codec
            try:
                text = position.raw.decode(codec.name)
            except UnicodeDecodeError as error:
                byte = position.raw[error.start]
                offset = position.offset + error.start
                detail = f"byte 0x{byte:02x} at offset {offset} is not {codec.name}"
                return Reason.UNDECODABLE, detail
            if "\0" in text:
                offset = position.offset + codec.size(text[: text.index("\0")])
                return Reason.NUL, f"there is a NUL character at offset {offset}"
            stray = self.dialect.find_stray_text(text)
            if stray is not None:
                return Reason.TEXT_AFTER_QUOTE, self._describe_stray_text(stray, text)
        return self.shape.find_flaw(row)

    def _describe_stray_text(self, stray: StrayText, text: str) -> str:
        """Describe the text after a closing quote, and how to fix it."""
        quote, escape = self.dialect.quote, self.dialect.escape
        shown = shorten(stray.text, MAX_SHOWN_LENGTH)
        remedy = "quotes within a value are written twice"
        if escape is None and f"\\{quote}" in text:
            remedy = "if a backslash escapes quotes, declare source.escape"
        return f"{shown} follows the closing quote of value {stray.number}; {remedy}"

    def without_last(self) -> tuple["RecordText", int]:
        """Return the text without its last record, and the line of that record."""
        *_, (_, last) = self.records()
        raw = self.raw[: last.offset - self.start]
        text = self.dialect.codec.decode_leniently(raw)
        return replace(self, raw=raw, text=text), last.line


# the stored bytes of a record that is too long: enough to find it again
MAX_RAW_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteWindow:
    """Consecutive records; the last may be cut off at a newline within quotes."""

    raw: bytes
    start: int
    # a single record that is complete
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidRecord:
    """A single record that is too long or never ends; only its first bytes are kept."""

    raw: bytes
    start: int
    size: int
    lines: int
    flaw: Reason
    detail: str
    # set if an open quote may have swallowed the rows after it
    open_quote: str | None = None


class WindowReader:
    """The windows of a stream, in order, from the start of a record."""

    def __init__(
        self, stream: ByteStream, dialect: CsvDialect, limits: FileLimits, *, start: int
    ) -> None:
        self._stream = stream
        self._dialect = dialect
        self._codec = dialect.codec
        self._limit = limits.record
        # records that are not too long must fit, wherever a window ends
        self._size = max(1, min(limits.bytes, limits.record))
        self._start = start
        self._buffer = b""
        # the stream has no more bytes than those in the buffer
        self._is_at_end = False
        # the last window contained no complete record
        self._is_stuck = False

    def take(self, *, line: int) -> ByteWindow | InvalidRecord | None:
        """Return the next window, which begins on that line; None at the end."""
        if not self._fill(self._size):
            return None
        if self._is_stuck:
            return self._take_record(line)
        return self._take_lines() or self._take_record(line)

    def put_back(self, window: ByteWindow, start: int) -> None:
        """Return the end of the last window to the buffer: it cuts off a record."""
        self._buffer = window.raw[start - window.start :] + self._buffer
        self._start = start
        self._is_stuck = start == window.start

    def _fill(self, size: int) -> bool:
        """Fill the buffer up to `size` bytes; return whether there are any."""
        missing = size - len(self._buffer)
        if missing > 0 and not self._is_at_end:
            read = self._stream.read(missing)
            self._is_at_end = len(read) < missing
            self._buffer += read
        return bool(self._buffer)

    def _take_lines(self) -> ByteWindow | None:
        """Take all complete lines that fit, if there are any."""
        raw = self._buffer[: self._size]
        if not self._is_at_end or len(raw) < len(self._buffer):
            units, _ = complete_units(raw, self._dialect)
            stop = max(units.rfind("\n"), units.rfind("\r")) + 1
            raw = raw[: self._codec.size_of_units(units[:stop])]
        window = ByteWindow(raw=raw, start=self._start)
        self._drop(len(raw))
        return window if raw else None

    def _take_record(self, line: int) -> ByteWindow | InvalidRecord:
        """Take a single record; of one that is too long, only the first bytes."""
        self._is_stuck = False
        self._fill(self._limit)
        raw, start = self._buffer[: self._limit], self._start
        scanner = RecordScanner(self._dialect, line=line)
        end, is_open = None, True
        while is_open:
            units, size = self._complete_units()
            end = scanner.find_end(units, 0)
            is_open = end is None and not self._is_at_end
            if end is not None:
                size = self._codec.size_of_units(units[:end])
            self._drop(size)
            if is_open:
                self._fill(len(self._buffer) + self._size)
        total, lines = self._start - start, scanner.line - line
        open_quote = None
        if scanner.is_quoted:
            flaw = Reason.UNCLOSED_QUOTE
            detail = open_quote = (
                f"the quote on line {scanner.opened_on} is never closed"
            )
        elif total > self._limit:
            flaw = Reason.TOO_LONG
            detail = f"the record has {total} bytes, of {self._limit} that are allowed"
            opened_on = self._find_open_quote(raw, line)
            if opened_on is not None:
                detail += f"; is a quote on line {opened_on} not closed?"
            # a record of a single line contains no other row
            if opened_on is not None and lines > (end is not None):
                open_quote = (
                    f"the quote on line {opened_on} is not closed within "
                    f"{self._limit} bytes"
                )
        else:
            return ByteWindow(raw=raw[:total], start=start, is_whole=True)
        return InvalidRecord(
            raw=raw[:MAX_RAW_BYTES],
            start=start,
            size=total,
            lines=lines,
            flaw=flaw,
            detail=detail,
            open_quote=open_quote,
        )

    def _find_open_quote(self, raw: bytes, line: int) -> int | None:
        """Return the line of the quote that is open at the end of a partial record."""
        scanner = RecordScanner(self._dialect, line=line)
        scanner.find_end(complete_units(raw, self._dialect)[0], 0)
        return scanner.opened_on if scanner.is_quoted else None

    def _complete_units(self) -> tuple[str, int]:
        """Return the complete code units of the buffer, and how many bytes they are."""
        if self._is_at_end:
            return self._codec.code_units(self._buffer), len(self._buffer)
        return complete_units(self._buffer, self._dialect)

    def _drop(self, size: int) -> None:
        self._buffer = self._buffer[size:]
        self._start += size


# read after a window, it is a record of its own, unless a quote is open there
END_OF_WINDOW = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChunk:
    """Consecutive records, and where the next chunk begins."""

    start: int
    line: int
    next_start: int
    next_line: int
    rows: list[list[str]]
    bad: list[BadRow]
    # the number of empty lines
    skipped: int
    excerpt: RecordText | None

    def positions(self) -> list[RecordPosition]:
        """Return the position of each row; costs as much as reading them."""
        if self.excerpt is None:
            return []
        flaw = self.excerpt.flaw
        return [
            position
            for row, position in self.excerpt.records()
            if row and flaw(row, position) is None
        ]


class ChunkReader:
    """The chunks of a range, which may begin where an earlier chunk ended."""

    def __init__(
        self,
        path: Path,
        dialect: CsvDialect,
        byte_range: ByteRange,
        *,
        shape: RowShape,
        limits: FileLimits = LIMITS,
        still_here: KeepAlive = lambda: None,
    ) -> None:
        self._path = path
        self._dialect = dialect
        self._range = byte_range
        self._shape = shape
        self._limits = limits
        # called while the next chunk is read; callers may replace it
        self.still_here = still_here
        # the number of bytes read from the file on disk, before decompression
        self.passed = 0

    def __iter__(self) -> Iterator[RecordChunk]:
        start, line = self._range.start, self._range.line
        opened = ByteStream(
            self._path,
            start=start,
            end=self._range.end,
            limits=self._limits,
            still_here=lambda: self.still_here(),  # noqa: PLW0108 (it changes)
        )
        with opened as stream:
            windows = WindowReader(stream, self._dialect, self._limits, start=start)
            while (window := windows.take(line=line)) is not None:
                self.passed = stream.passed
                if isinstance(window, InvalidRecord):
                    chunks = iter([build_invalid_chunk(window, line)])
                else:
                    chunks = self._read(window, line, windows)
                for chunk in chunks:
                    line = chunk.next_line
                    yield chunk

    def _read(
        self, window: ByteWindow, line: int, windows: WindowReader
    ) -> Iterator[RecordChunk]:
        """Yield the records of a window in chunks of about the same size."""
        text, is_clean = self._decode(window.raw)
        lines = StringIO(text, newline="")
        reader, is_strict = self._dialect.reader(lines, strict=True), True
        batch_size = even_batch_size(window.raw.count(b"\n"), self._limits.rows)
        next_line = first_line = line
        position = offset = 0
        while position < len(text):
            try:
                records = list(islice(reader, batch_size))
            except csv.Error:
                # text after a closing quote, or a record that exceeds the window
                lines.seek(position)
                sentinel = [] if window.is_whole else [END_OF_WINDOW]
                reader, is_strict = self._dialect.reader(chain(lines, sentinel)), False
                first_line = next_line
                records = list(islice(reader, batch_size))
            end = lines.tell()
            part = text[position:end]
            size = self._dialect.codec.size(part)
            excerpt = RecordText(
                raw=window.raw[offset : offset + size],
                text=part,
                start=window.start + offset,
                line=next_line,
                dialect=self._dialect,
                shape=self._shape,
                is_clean=is_clean,
            )
            position, offset = end, offset + size
            next_line = first_line + reader.line_num
            if end == len(text) and not window.is_whole and not is_strict:
                records.extend(reader)
                next_line = first_line + reader.line_num - 1
                if records.pop():
                    excerpt, next_line = excerpt.without_last()
                    windows.put_back(window, excerpt.start + len(excerpt.raw))
            if not is_strict and is_clean:
                is_clean_text = self._dialect.is_strict(
                    StringIO(excerpt.text, newline="")
                )
                excerpt = replace(excerpt, is_clean=is_clean_text)
            if records:
                yield build_chunk(records, excerpt, next_line=next_line)

    def _decode(self, raw: bytes) -> tuple[str, bool]:
        """Return the text, and whether it is clean."""
        try:
            text = raw.decode(self._dialect.codec.name)
        except UnicodeDecodeError:
            return self._dialect.codec.decode_leniently(raw), False
        return text, "\0" not in text


def even_batch_size(count: int, limit: int) -> int:
    """Return the batch size that leaves no small batch at the end."""
    batches = -(-count // limit)
    return -(-count // batches) if batches > 1 else limit


def build_invalid_chunk(record: InvalidRecord, line: int) -> RecordChunk:
    bad = BadRow(
        position=RecordPosition(line=line, offset=record.start, raw=record.raw),
        flaw=record.flaw,
        detail=record.detail,
        open_quote=record.open_quote,
    )
    return RecordChunk(
        start=record.start,
        line=line,
        next_start=record.start + record.size,
        next_line=line + record.lines,
        rows=[],
        bad=[bad],
        skipped=0,
        excerpt=None,
    )


def build_chunk(
    records: list[list[str]], excerpt: RecordText, *, next_line: int
) -> RecordChunk:
    """Separate rows, bad rows and empty lines."""
    shape = excerpt.shape
    rows: list[list[str]] = records
    bad: list[BadRow] = []
    skipped = 0
    is_uniform = not shape.is_trailing and set(map(len, records)) == {shape.width}
    if not excerpt.is_clean or not is_uniform:
        rows = [row for row in records if row]
        if not excerpt.is_clean or not all(map(shape.fits, rows)):
            rows, bad = separate_bad_rows(excerpt)
        rows = [row[: shape.width] for row in rows]
        skipped = records.count([])
    return RecordChunk(
        start=excerpt.start,
        line=excerpt.line,
        next_start=excerpt.start + len(excerpt.raw),
        next_line=next_line,
        rows=rows,
        bad=bad,
        skipped=skipped,
        excerpt=excerpt,
    )


def separate_bad_rows(excerpt: RecordText) -> tuple[list[list[str]], list[BadRow]]:
    rows, bad = [], []
    for row, position in excerpt.records():
        flaw = excerpt.flaw(row, position) if row else None
        if flaw is not None:
            bad.append(BadRow(position=position, flaw=flaw[0], detail=flaw[1]))
        elif row:
            rows.append(row)
    return rows, bad
