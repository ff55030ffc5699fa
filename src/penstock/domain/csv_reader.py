r"""Read the records of CSV text: by Python's `csv` module, or with escapes by our own.

A quote opens a value only at its very start, and two quotes within are one. An escape
before a quote or another escape stands for that character, within quotes only;
anywhere else it is an ordinary character, so that `\N` stays `\N`. The module's own
`escapechar` would drop it everywhere.

Text after a closing quote belongs to its value up to the next delimiter. A strict
reader raises `csv.Error` instead, also for a quote that is open at the end.
"""

import csv
import re
from collections.abc import Iterable
from typing import Protocol, Self

# the size of a record is limited elsewhere, so the module's own limit must not apply
MAX_FIELD_SIZE = 2**31 - 1


class CsvRecordReader(Protocol):
    """The type that `csv.reader` returns, which has no public name."""

    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Self: ...

    def __next__(self) -> list[str]: ...


class StrayText(csv.Error):
    """Text follows the closing quote of a value."""

    def __init__(self, *, number: int, text: str) -> None:
        super().__init__(f"{text!r} follows the closing quote of value {number}")
        self.number = number
        self.text = text


def open_reader(
    lines: Iterable[str],
    *,
    delimiter: str,
    quote: str | None,
    escape: str | None = None,
    strict: bool = False,
) -> CsvRecordReader:
    """Return a reader of lines with their original line ends."""
    if quote is not None and escape is not None:
        return QuotedReader(
            lines, delimiter=delimiter, quote=quote, escape=escape, strict=strict
        )
    # a global of the process, which every thread sets to the same value
    if csv.field_size_limit() < MAX_FIELD_SIZE:
        csv.field_size_limit(MAX_FIELD_SIZE)
    return csv.reader(
        lines,
        delimiter=delimiter,
        quotechar=quote,
        quoting=csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL,
        strict=strict,
    )


class QuotedReader:
    """Reads what Python's module reads, and escapes; several times slower."""

    def __init__(
        self,
        lines: Iterable[str],
        *,
        delimiter: str,
        quote: str,
        escape: str | None,
        strict: bool,
    ) -> None:
        self.line_num = 0
        self._lines = iter(lines)
        self._delimiter = delimiter
        self._quote = quote
        self._strict = strict
        self._plain = re.compile(rf"[^{re.escape(delimiter)}\r\n]*")
        non_closing = escaped = re.escape(quote * 2)
        if escape is not None:
            escape_pattern = re.escape(escape)
            non_closing += rf"|{escape_pattern}[\s\S]?"
            escaped += f"|{escape_pattern}[{re.escape(quote)}{escape_pattern}]"
        # alternatives that do not close the value come first
        self._quotes = re.compile(f"{non_closing}|{re.escape(quote)}")
        self._escaped = re.compile(escaped)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[str]:
        line = self._next_line()
        if self._quote not in line:
            text = line.rstrip("\r\n")
            return text.split(self._delimiter) if text else []
        values: list[str] = []
        at = 0
        while True:
            if line.startswith(self._quote, at):
                value, line, at = self._read_quoted(line, at + 1)
                end = self._find_plain_end(line, at)
                if self._strict and end > at:
                    raise StrayText(number=len(values) + 1, text=line[at:end])
                value += line[at:end]
            else:
                end = self._find_plain_end(line, at)
                value = line[at:end]
            values.append(value)
            if not line.startswith(self._delimiter, end):
                return values
            at = end + 1

    def _read_quoted(self, line: str, start: int) -> tuple[str, str, int]:
        """Return the value, and the line and the offset after the closing quote."""
        parts: list[str] = []
        while True:
            closing = self._find_closing_quote(line, start)
            parts.append(line[start:closing])
            if closing is not None:
                break
            try:
                line, start = self._next_line(), 0
            except StopIteration:
                if self._strict:
                    raise csv.Error("a quote is never closed") from None
                line = ""
                break
        text = self._escaped.sub(lambda found: found[0][-1], "".join(parts))
        return text, line, 0 if closing is None else closing + 1

    def _find_closing_quote(self, line: str, start: int) -> int | None:
        for found in self._quotes.finditer(line, start):
            if found[0] == self._quote:
                return found.start()
        return None

    def _find_plain_end(self, line: str, start: int) -> int:
        found = self._plain.match(line, start)
        return start if found is None else found.end()

    def _next_line(self) -> str:
        line = next(self._lines)
        self.line_num += 1
        return line
