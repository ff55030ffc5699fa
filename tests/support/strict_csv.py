"""A strict reading of CSV: RFC 4180 and what is declared, character by character.

The judge of property tests: it shares no code with what it judges, nor with Python's
csv module. A record ends at a line end outside quotes, whichever it is. A quote opens a
value at its very start only; within, two of them, or the escape before one or before
itself, are one character. Whatever else a record holds, it is a row only if each of its
values can be taken as it stands.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

LINE_END = re.compile("\r\n|\r|\n")
# of the rows, if all of these end in a delimiter it adds no value
TRAILING_SHARE = 0.99


@dataclass(frozen=True, kw_only=True)
class Format:
    """What is declared of a file."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    encoding: str = "utf-8"


@dataclass(kw_only=True)
class StrictRecord:
    """One record, and what is wrong with it."""

    line: int
    offset: int
    raw: bytes = b""
    values: list[str] = field(default_factory=list)
    # text follows a closing quote
    is_stray: bool = False
    # the line of a quote that is never closed
    open_line: int | None = None


def read_strictly(
    raw: bytes, declared: Format, *, start: int = 0
) -> list[StrictRecord]:
    """Return all records of a file from an offset on, in order."""
    reading = _Reading(raw, declared, start)
    records = []
    while not reading.is_over:
        records.append(reading.read_record())
    return records


def has_trailing_delimiters(records: Sequence[StrictRecord], width: int) -> bool:
    rows = [record for record in records if record.values]
    trailing = [row for row in rows if row.values[width:] == [""]]
    return bool(rows) and len(trailing) >= TRAILING_SHARE * len(rows)


def is_one_name_short(records: Sequence[StrictRecord], width: int) -> bool:
    rows = [record for record in records if record.values]
    longer = [row for row in rows if len(row.values) == width + 1]
    filled = [row for row in longer if row.values[-1]]
    is_every = len(longer) >= TRAILING_SHARE * len(rows)
    return len(filled) > len(rows) / 2 or (bool(filled) and is_every)


def find_flaw(
    record: StrictRecord, declared: Format, *, width: int, is_trailing: bool, most: int
) -> str | None:
    """Say why a record that is not empty is no row; None if it is one."""
    if record.open_line is not None:
        return "unclosed_quote"
    if len(record.raw) > most:
        return "too_long"
    try:
        text = record.raw.decode(declared.encoding)
    except UnicodeDecodeError:
        return "undecodable"
    if "\0" in text or record.is_stray:
        return "nul" if "\0" in text else "text_after_quote"
    # what stands behind a trailing delimiter is no value
    count = len(record.values) - (is_trailing and record.values[-1] == "")
    if count == width:
        return None
    return "too_few_values" if count < width else "too_many_values"


def find_open_quote(record: StrictRecord, declared: Format, *, most: int) -> int | None:
    """Return the line of a quote that may have taken in the rows behind it.

    It is never closed, or not within the longest record, and goes on to another line.
    """
    if record.open_line is not None or len(record.raw) <= most:
        return record.open_line
    line_ends = LINE_END.findall(decode(record.raw, declared.encoding).rstrip("\r\n"))
    beginning = read_strictly(record.raw[:most], declared)[0]
    if not line_ends or beginning.open_line is None:
        return None
    return record.line + beginning.open_line - 1


class _Reading:
    """A place in the characters of a file."""

    def __init__(self, raw: bytes, declared: Format, start: int) -> None:
        self._raw = raw
        self._declared = declared
        self._characters = decode(raw[start:], declared.encoding)
        self._sizes = [size_of(each, declared.encoding) for each in self._characters]
        if sum(self._sizes) < len(raw) - start:
            # half a character at the end of a file
            self._characters += "\N{REPLACEMENT CHARACTER}"
            self._sizes.append(len(raw) - start - sum(self._sizes))
        self._at = 0
        self._offset = start
        self._line = 1

    @property
    def is_over(self) -> bool:
        return self._at == len(self._characters)

    def read_record(self) -> StrictRecord:
        record = StrictRecord(line=self._line, offset=self._offset)
        if not self._take_line_end():
            self._read_values(record)
        record.raw = self._raw[record.offset : self._offset]
        return record

    def _read_values(self, record: StrictRecord) -> None:
        while True:
            if self._next() == self._declared.quote:
                record.values.append(self._read_quoted(record))
            else:
                record.values.append(self._read_plain())
            if self.is_over or self._take_line_end():
                return
            # a delimiter: nothing else ends a value
            self._take()

    def _read_plain(self) -> str:
        text = ""
        while not self.is_over and self._next() not in {
            self._declared.delimiter,
            "\r",
            "\n",
        }:
            text += self._take()
        return text

    def _read_quoted(self, record: StrictRecord) -> str:
        quote, escape = self._declared.quote, self._declared.escape
        opened_on = self._line
        self._take()
        text = ""
        while not self.is_over:
            if end := self._take_line_end():
                text += end
                continue
            character, following = self._take(), self._next()
            if character == escape and following in {quote, escape}:
                text += self._take()
            elif character != quote:
                text += character
            elif following == quote:
                text += self._take()
            else:
                behind = self._read_plain()
                record.is_stray |= behind != ""
                return text + behind
        record.open_line = opened_on
        return text

    def _take_line_end(self) -> str:
        """Take the end of a line, if one is here, and count the line."""
        if self._next() not in {"\r", "\n"}:
            return ""
        end = self._take()
        if end == "\r" and self._next() == "\n":
            end += self._take()
        self._line += 1
        return end

    def _next(self) -> str:
        return "" if self.is_over else self._characters[self._at]

    def _take(self) -> str:
        taken = self._characters[self._at]
        self._offset += self._sizes[self._at]
        self._at += 1
        return taken


def decode(raw: bytes, encoding: str) -> str:
    """Return a character for whatever stands there, also where it is none."""
    if encoding.startswith("utf-16"):
        whole = len(raw) // 2 * 2
        return raw[:whole].decode(encoding, "surrogatepass")
    return raw.decode(encoding, "surrogateescape")


def size_of(character: str, encoding: str) -> int:
    is_wide = encoding.startswith("utf-16")
    handler = "surrogatepass" if is_wide else "surrogateescape"
    return len(character.encode(encoding, handler))
