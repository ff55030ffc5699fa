"""Walk through the signs of a file and know where its records end.

The rules are those of Python's `csv` module: a quote opens a field only at its very
start, two quotes within are one, and what follows the closing quote is plain text up to
the next delimiter. So `5" pipe` opens nothing, and newlines within quotes end nothing.

To find the end of one record, a regular expression passes any number of well-formed
fields, and Python itself acts on the rest.

To pass any number of records, hardly any has to be looked at. An even number of quotes
in a row changes nothing for what follows them, wherever they stand. An odd number
behind a separator opens a field, or closes the one that is open. Any other odd number
closes a field, or is text: behind it none is open, whatever was before. So a look back
from the end, to the first of these, tells by the parity of the runs between.

An escape takes the first quote of a run away where a field is open, and where none is,
the run is text: a run behind an odd number of escapes counts as one quote less, and it
stands behind no separator. Signs must not be parted behind such a number of escapes.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto

from penstock.adapters.csv.dialect import Dialect

# fields, or pairs of quotes in one, that an expression passes at a time
MOST_REPEATS = 1000
# quotes in a row that are looked at together
STRIDE = 1024
LONE_RETURN = re.compile(r"\r(?!\n)")


class Before(Enum):
    """What a sign follows, outside of quotes."""

    # here a quote opens a field
    SEPARATOR = auto()
    # here a quote is the second of two, and the field goes on
    CLOSING_QUOTE = auto()
    # here a quote is a character like any other
    TEXT = auto()


class Walk:
    """A place in the signs of a file; it begins where a record does."""

    def __init__(self, dialect: Dialect, *, line: int) -> None:
        self.line = line
        self.is_quoted = False
        # the line of the quote that is open, if one is
        self.opened_on = line
        self._before = Before.SEPARATOR
        self._quote = dialect.quote_sign
        self._separators = f"{dialect.delimiter_sign}\r\n"
        self._escape = dialect.escape_sign
        self._quoted, self._record = patterns(
            self._quote, self._separators, self._escape
        )

    def pass_by(self, signs: str, start: int, stop: int) -> None:
        """Go on from start to stop, over any number of records."""
        self.line += count_lines(signs, start, stop)
        if self._quote is not None and start < stop:
            self._pass_quotes(signs, self._quote, start, stop)

    def find_end(self, signs: str, start: int) -> int | None:
        """Go on to the end of the record, and return where the next one begins.

        Without an end, go on through all signs. A last carriage return is taken for
        one, so signs that go on elsewhere must not be parted before a newline.
        """
        stop = self._stop_of_record(signs, start)
        if stop == len(signs):
            self.line += count_lines(signs, start, stop)
            return None
        end = stop + (2 if signs.startswith("\r\n", stop) else 1)
        self.line += count_lines(signs, start, end)
        self._before = Before.SEPARATOR
        return end

    def _pass_quotes(self, signs: str, quote: str, start: int, stop: int) -> None:
        """Know what is open, and what comes before the stop."""
        # the run of quotes that the signs end in may go on behind the stop
        tail = start_of_run(signs, quote, start, stop)
        before = self._before_sign(signs, start, tail)
        is_quoted, opener = self._look_back(signs, quote, start, tail)
        if tail < stop and (stop - tail - self._is_escaped(signs, start, tail)) % 2:
            if not is_quoted:
                opener = tail
            is_quoted, before = (
                not is_quoted and before is not Before.TEXT,
                Before.CLOSING_QUOTE if is_quoted else Before.TEXT,
            )
        is_known = is_quoted or before is Before.CLOSING_QUOTE
        # the second of two, at the very start, goes on with a field
        is_second = opener == start and self._before is Before.CLOSING_QUOTE
        if is_known and opener is not None and not is_second:
            self.opened_on = self.line - count_lines(signs, opener, stop)
        self.is_quoted, self._before = is_quoted, before

    def _look_back(
        self, signs: str, quote: str, start: int, stop: int
    ) -> tuple[bool, int | None]:
        """Tell if a field is open at the stop, and where behind the start it opened."""
        is_odd, last = False, None
        for at, length in runs(signs, quote, start, stop):
            if (length - self._is_escaped(signs, start, at)) % 2 == 0:
                continue
            last = at if last is None else last
            if self._before_sign(signs, start, at) is Before.TEXT:
                break
            is_odd = not is_odd
        else:
            is_odd ^= self.is_quoted
        return is_odd, last

    def _is_escaped(self, signs: str, start: int, at: int) -> bool:
        """Tell if an odd number of escapes stands before a place."""
        if self._escape is None:
            return False
        return (at - start_of_run(signs, self._escape, start, at)) % 2 == 1

    def _before_sign(self, signs: str, start: int, at: int) -> Before:
        return self._before if at == start else self._kind(signs[at - 1])

    def _stop_of_record(self, signs: str, start: int) -> int:
        """Go on to what ends the record, or through all signs."""
        stop = len(signs)
        at = start + self._enter(signs, start)
        while at < stop:
            if self.is_quoted:
                at = self._end_of_quoted(signs, at)
                if at < stop:
                    self.is_quoted = False
                    self._before = Before.CLOSING_QUOTE
                    at += 1
                continue
            passed = end_of(self._record, signs, at, stop)
            if passed == stop and signs[stop - 1] == self._quote:
                # perhaps the first of two, so the field may be open: go into it
                passed = end_of(self._record, signs, at, stop - 1)
            at = passed
            if at == stop:
                self._before = self._kind(signs[at - 1])
            elif signs[at] != self._quote:
                break
            else:
                # it opens what is not closed before the stop, or it is text
                self.is_quoted = at > 0 and signs[at - 1] in self._separators
                if self.is_quoted:
                    self.opened_on = self.line + count_lines(signs, start, at)
                self._before = Before.TEXT
                at += 1
        return at

    def _end_of_quoted(self, signs: str, at: int) -> int:
        """Return the quote that closes a field, or the end of all signs."""
        stop = len(signs)
        pair = 2 * (self._quote or "")
        more = (pair,) if self._escape is None else (pair, self._escape)
        at = end_of(self._quoted, signs, at, stop)
        while signs.startswith(more, at):
            at = end_of(self._quoted, signs, at, stop)
        return at

    def _enter(self, signs: str, start: int) -> bool:
        """Take a quote that means something because of what came before the start."""
        if self.is_quoted or self._quote is None:
            return False
        if not signs.startswith(self._quote, start):
            return False
        if self._before is Before.SEPARATOR:
            self.opened_on = self.line
        self.is_quoted = self._before is not Before.TEXT
        return self.is_quoted

    def _kind(self, passed: str) -> Before:
        return Before.SEPARATOR if passed in self._separators else Before.TEXT


def patterns(
    quote: str | None, separators: str, escape: str | None
) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what passes the inside of quotes, and a record that is well-formed.

    A closing quote is one that no other follows, so nothing can be read in two ways,
    and going back finds nothing. (Possessive groups would say so, but Python below
    3.11.5 gets them wrong.) Repeats are bounded, because each is remembered; the walk
    goes on by itself where one ends.
    """
    if quote is None:
        return re.compile(r"(?!)"), re.compile(r"[^\r\n]*+")
    sign = re.escape(quote)
    other, doubled = sign, sign * 2
    if escape is not None:
        other += re.escape(escape)
        doubled += rf"|{re.escape(escape)}(?:[\s\S]|\Z)"
    inside = f"[^{other}]*+(?:(?:{doubled})[^{other}]*+){{0,{MOST_REPEATS}}}"
    field = f"(?<=[{re.escape(separators)}]){sign}{inside}{sign}(?!{sign})"
    text = rf"[^{sign}\r\n]*+"
    return (
        re.compile(inside),
        re.compile(f"{text}(?:{field}{text}){{0,{MOST_REPEATS}}}"),
    )


def end_of(pattern: re.Pattern[str], signs: str, start: int, stop: int) -> int:
    found = pattern.match(signs, start, stop)
    return start if found is None else found.end()


def runs(signs: str, quote: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield where quotes in a row begin and how many they are, the last ones first."""
    while (last := signs.rfind(quote, start, stop)) >= 0:
        stop = start_of_run(signs, quote, start, last)
        yield stop, last + 1 - stop


def start_of_run(signs: str, quote: str, start: int, stop: int) -> int:
    """Return where the quotes begin that stand before the stop, if any do."""
    while start < stop and signs[stop - 1] == quote:
        near = signs[max(start, stop - STRIDE) : stop]
        stop -= len(near) - len(near.rstrip(quote))
    return stop


def count_lines(signs: str, start: int, stop: int) -> int:
    """Count the ends of lines, of whichever kind."""
    lines = signs.count("\n", start, stop)
    if signs.find("\r", start, stop) >= 0:
        lines += len(LONE_RETURN.findall(signs, start, stop))
    return lines


def whole_signs(raw: bytes, dialect: Dialect) -> tuple[str, int]:
    """Return the signs of bytes that go on elsewhere, and the bytes that they take.

    Half a sign is left out, and so is a last carriage return: a newline may follow. Of
    the escapes at the end an even number stays.
    """
    coding, escape = dialect.coding, dialect.escape_sign
    signs = coding.signs(raw).removesuffix("\r")
    if escape is not None:
        first = start_of_run(signs, escape, 0, len(signs))
        signs = signs[: len(signs) - (len(signs) - first) % 2]
    return signs, coding.size_of_signs(signs)
