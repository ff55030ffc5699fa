"""Scan the code units of a file and find where its records end.

The rules are those of Python's `csv` module: a quote opens a field only at its very
start, two quotes within are one, and what follows the closing quote is plain text up to
the next delimiter. So `5" pipe` opens nothing, and newlines within quotes end nothing.

To find the end of one record, a regular expression matches any number of well-formed
fields, and Python code handles the rest.

To skip any number of records, hardly any of them has to be read. An even run of quotes
changes nothing for what follows it, wherever it is. An odd run after a separator opens
a field, or closes the open one. Any other odd run closes a field, or is text: after it
no field is open, whatever the state before. So it is enough to search backwards from
the end to the last such run, and count the parity of the odd runs after it.

Where a field is open, an escape cancels the first quote of a run; where none is open,
the run is text. So a run after an odd number of escapes counts as one quote less, and
never follows a separator. Blocks must not be split after an odd number of escapes.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto

from penstock.adapters.csv.dialect import CsvDialect

# fields, or pairs of quotes in a field, that an expression matches at a time
MAX_REPEATS = 1000
# units of a run that are compared at a time
MAX_RUN_STEP = 1024
LONE_RETURN = re.compile(r"\r(?!\n)")


class PrecedingBytes(Enum):
    """What precedes a code unit, outside of quotes."""

    # here a quote opens a field
    SEPARATOR = auto()
    # here a quote is the second of two, and the field continues
    CLOSING_QUOTE = auto()
    # here a quote is an ordinary character
    TEXT = auto()


class RecordScanner:
    """The scanner state at a position of a file; starts at the start of a record."""

    def __init__(self, dialect: CsvDialect, *, line: int) -> None:
        self.line = line
        self.is_quoted = False
        # the line of the open quote, if there is one
        self.opened_on = line
        self._preceding = PrecedingBytes.SEPARATOR
        self._quote = dialect.quote_unit
        self._separators = f"{dialect.delimiter_unit}\r\n"
        self._escape = dialect.escape_unit
        self._quoted, self._record = compile_patterns(
            self._quote, self._separators, self._escape
        )

    def skip_to(self, units: str, start: int, stop: int) -> None:
        """Advance from start to stop, over any number of records."""
        self.line += count_lines(units, start, stop)
        if self._quote is not None and start < stop:
            self._skip_quotes(units, self._quote, start, stop)

    def find_end(self, units: str, start: int) -> int | None:
        """Advance to the end of the record, and return where the next one begins.

        Returns None at the end of the units. A last carriage return ends a record,
        so a block must not be split between a carriage return and a newline.
        """
        stop = self._find_record_stop(units, start)
        if stop == len(units):
            self.line += count_lines(units, start, stop)
            return None
        end = stop + (2 if units.startswith("\r\n", stop) else 1)
        self.line += count_lines(units, start, end)
        self._preceding = PrecedingBytes.SEPARATOR
        return end

    def _skip_quotes(self, units: str, quote: str, start: int, stop: int) -> None:
        """Update the quote state at the stop."""
        # the run of quotes at the end may continue after the stop
        tail_start = start_of_run(units, quote, start, stop)
        preceding = self._preceding_at(units, start, tail_start)
        is_quoted, opener = self._quote_state_before(units, quote, start, tail_start)
        if (
            tail_start < stop
            and (stop - tail_start - self._is_escaped(units, start, tail_start)) % 2
        ):
            if not is_quoted:
                opener = tail_start
            is_quoted, preceding = (
                not is_quoted and preceding is not PrecedingBytes.TEXT,
                PrecedingBytes.CLOSING_QUOTE if is_quoted else PrecedingBytes.TEXT,
            )
        is_in_field = is_quoted or preceding is PrecedingBytes.CLOSING_QUOTE
        # the second of two quotes, at the very start, continues a field
        is_second = opener == start and self._preceding is PrecedingBytes.CLOSING_QUOTE
        if is_in_field and opener is not None and not is_second:
            self.opened_on = self.line - count_lines(units, opener, stop)
        self.is_quoted, self._preceding = is_quoted, preceding

    def _quote_state_before(
        self, units: str, quote: str, start: int, stop: int
    ) -> tuple[bool, int | None]:
        """Return whether a field is open at the stop, and where its quote may be."""
        is_odd, last = False, None
        for at, length in quote_runs(units, quote, start, stop):
            if (length - self._is_escaped(units, start, at)) % 2 == 0:
                continue
            last = at if last is None else last
            if self._preceding_at(units, start, at) is PrecedingBytes.TEXT:
                break
            is_odd = not is_odd
        else:
            is_odd ^= self.is_quoted
        return is_odd, last

    def _is_escaped(self, units: str, start: int, at: int) -> bool:
        """Return whether an odd number of escapes precedes a position."""
        if self._escape is None:
            return False
        return (at - start_of_run(units, self._escape, start, at)) % 2 == 1

    def _preceding_at(self, units: str, start: int, at: int) -> PrecedingBytes:
        return self._preceding if at == start else self._kind_of(units[at - 1])

    def _find_record_stop(self, units: str, start: int) -> int:
        """Advance to the line end that ends the record, or to the end of the units."""
        stop = len(units)
        at = start + self._enter_quoted_field(units, start)
        while at < stop:
            if self.is_quoted:
                at = self._end_of_quoted_field(units, at)
                if at < stop:
                    self.is_quoted = False
                    self._preceding = PrecedingBytes.CLOSING_QUOTE
                    at += 1
                continue
            end = match_end(self._record, units, at, stop)
            if end == stop and units[stop - 1] == self._quote:
                # perhaps the first of two, so the field may be open: enter it
                end = match_end(self._record, units, at, stop - 1)
            at = end
            if at == stop:
                self._preceding = self._kind_of(units[at - 1])
            elif units[at] != self._quote:
                break
            else:
                # it opens a field that is not closed before the stop, or it is text
                self.is_quoted = at > 0 and units[at - 1] in self._separators
                if self.is_quoted:
                    self.opened_on = self.line + count_lines(units, start, at)
                self._preceding = PrecedingBytes.TEXT
                at += 1
        return at

    def _end_of_quoted_field(self, units: str, at: int) -> int:
        """Return the position of the closing quote, or the end of the units."""
        stop = len(units)
        pair = 2 * (self._quote or "")
        more = (pair,) if self._escape is None else (pair, self._escape)
        at = match_end(self._quoted, units, at, stop)
        while units.startswith(more, at):
            at = match_end(self._quoted, units, at, stop)
        return at

    def _enter_quoted_field(self, units: str, start: int) -> bool:
        """Return whether a quote at the start opens or continues a field."""
        if self.is_quoted or self._quote is None:
            return False
        if not units.startswith(self._quote, start):
            return False
        if self._preceding is PrecedingBytes.SEPARATOR:
            self.opened_on = self.line
        self.is_quoted = self._preceding is not PrecedingBytes.TEXT
        return self.is_quoted

    def _kind_of(self, unit: str) -> PrecedingBytes:
        return (
            PrecedingBytes.SEPARATOR
            if unit in self._separators
            else PrecedingBytes.TEXT
        )


def compile_patterns(
    quote: str | None, separators: str, escape: str | None
) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of the inside of quotes and of a well-formed record.

    A closing quote is one that no other follows, so a match is unambiguous and
    backtracking finds nothing else. (Possessive groups would say so, but Python below
    3.11.5 gets them wrong.) Repeats are bounded, because the engine stores each of
    them; the scanner continues where a match ends.
    """
    if quote is None:
        return re.compile(r"(?!)"), re.compile(r"[^\r\n]*+")
    mark = re.escape(quote)
    other, doubled = mark, mark * 2
    if escape is not None:
        other += re.escape(escape)
        doubled += rf"|{re.escape(escape)}(?:[\s\S]|\Z)"
    inside = f"[^{other}]*+(?:(?:{doubled})[^{other}]*+){{0,{MAX_REPEATS}}}"
    field = f"(?<=[{re.escape(separators)}]){mark}{inside}{mark}(?!{mark})"
    text = rf"[^{mark}\r\n]*+"
    return (
        re.compile(inside),
        re.compile(f"{text}(?:{field}{text}){{0,{MAX_REPEATS}}}"),
    )


def match_end(pattern: re.Pattern[str], units: str, start: int, stop: int) -> int:
    found = pattern.match(units, start, stop)
    return start if found is None else found.end()


def quote_runs(
    units: str, quote: str, start: int, stop: int
) -> Iterator[tuple[int, int]]:
    """Yield the start and length of each run of quotes, the last run first."""
    while (last := units.rfind(quote, start, stop)) >= 0:
        stop = start_of_run(units, quote, start, last)
        yield stop, last + 1 - stop


def start_of_run(units: str, quote: str, start: int, stop: int) -> int:
    """Return the start of the run that ends at the stop; the stop if there is none."""
    while start < stop and units[stop - 1] == quote:
        tail_units = units[max(start, stop - MAX_RUN_STEP) : stop]
        stop -= len(tail_units) - len(tail_units.rstrip(quote))
    return stop


def count_lines(units: str, start: int, stop: int) -> int:
    """Count the line ends of any kind."""
    lines = units.count("\n", start, stop)
    if units.find("\r", start, stop) >= 0:
        lines += len(LONE_RETURN.findall(units, start, stop))
    return lines


def complete_units(raw: bytes, dialect: CsvDialect) -> tuple[str, int]:
    """Return the complete code units of a block, and how many bytes they are.

    An incomplete unit is left out, and so is a last carriage return, since a newline
    may follow. Of the escapes at the end an even number stays.
    """
    codec, escape = dialect.codec, dialect.escape_unit
    units = codec.code_units(raw).removesuffix("\r")
    if escape is not None:
        first = start_of_run(units, escape, 0, len(units))
        units = units[: len(units) - (len(units) - first) % 2]
    return units, codec.size_of_units(units)
