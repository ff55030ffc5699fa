"""Some text of a file, and what can be told of each record in it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO

from penstock.adapters.csv.dialect import Dialect
from penstock.adapters.csv.shape import Shape
from penstock.domain.csv_reader import StrayText
from penstock.domain.page import Reason
from penstock.domain.text import shorten

MAX_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record stands in its file, and its very bytes."""

    line: int
    offset: int
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A record that is no row."""

    place: Place
    flaw: Reason
    detail: str
    # what says that it may hold the rows behind it, if something does
    open_quote: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Text that begins where a record does."""

    raw: bytes
    text: str
    start: int
    line: int
    dialect: Dialect
    shape: Shape
    # it could be decoded, holds nothing that is never data, and no text stands behind
    # a closing quote
    is_clean: bool

    def records(self) -> Iterator[tuple[list[str], Place]]:
        """Yield each record with its place."""
        coding = self.dialect.coding
        lines = StringIO(self.text, newline="")
        reader = self.dialect.reader(lines)
        at = byte = 0
        line = self.line
        for row in reader:
            end = lines.tell()
            size = coding.size(self.text[at:end])
            raw = self.raw[byte : byte + size]
            yield row, Place(line=line, offset=self.start + byte, raw=raw)
            at, byte, line = end, byte + size, self.line + reader.line_num

    def flaw(self, row: list[str], place: Place) -> tuple[Reason, str] | None:
        """Say why a record is no row; None if it is one."""
        if not self.is_clean:
            coding = self.dialect.coding
            try:
                text = place.raw.decode(coding.name)
            except UnicodeDecodeError as error:
                byte = place.raw[error.start]
                at = place.offset + error.start
                told = f"byte 0x{byte:02x} at offset {at} is not {coding.name}"
                return Reason.UNDECODABLE, told
            if "\0" in text:
                at = place.offset + coding.size(text[: text.index("\0")])
                return Reason.NUL, f"a NUL character stands at offset {at}"
            stray = self.dialect.find_stray_text(text)
            if stray is not None:
                return Reason.TEXT_AFTER_QUOTE, self._describe(stray, text)
        return self.shape.find_flaw(row)

    def _describe(self, stray: StrayText, text: str) -> str:
        """Say what is wrong with a value, and how it would be right."""
        quote, escape = self.dialect.quote, self.dialect.escape
        told = f"{shorten(stray.text, MAX_SHOWN)} follows the closing quote of value"
        remedy = "quotes within a value are written twice"
        if escape is None and f"\\{quote}" in text:
            remedy = "if a backslash escapes quotes, declare source.escape"
        return f"{told} {stray.number}; {remedy}"

    def without_last(self) -> tuple["Excerpt", int]:
        """Return the excerpt without its last record, and the line of that."""
        *_, (_, last) = self.records()
        raw = self.raw[: last.offset - self.start]
        text = self.dialect.coding.decode_leniently(raw)
        return replace(self, raw=raw, text=text), last.line
