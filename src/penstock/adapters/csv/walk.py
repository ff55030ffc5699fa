"""Walk through the signs of a file and know where its records end.

The rules are those of Python's `csv` module: a quote opens a field only at its very
start, two quotes within are one, and what follows the closing quote is plain text up to
the next delimiter. So `5" pipe` opens nothing, and newlines within quotes end nothing.

So a pair of quotes changes nothing for what follows it, wherever it stands, and can be
left out. Where all other quotes stand around fields, they open and close by turns, and
splitting the text at them is enough. Where some stand in plain text, one regular
expression passes any number of well-formed fields, and Python itself acts on the rest.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto
from itertools import islice

from penstock.adapters.csv.coding import Coding
from penstock.adapters.csv.dialect import Dialect

# fields, or pairs of quotes in one, that an expression passes at a time
MOST_REPEATS = 1000


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
        self._separating = set(self._separators)
        self._quoted, self._text, self._record = patterns(self._quote, self._separators)

    def pass_by(self, signs: str, start: int, stop: int) -> None:
        """Go on from start to stop, over any number of records."""
        if self._quote and signs.find(self._quote, start, stop) >= 0:
            if not self._leap(signs[start:stop], self._quote):
                self._go(self._text, signs, start, stop)
        elif start < stop and not self.is_quoted:
            self._before = self._kind(signs[stop - 1])
        self.line += count_lines(signs, start, stop)

    def find_end(self, signs: str, start: int) -> int | None:
        """Go on to the end of the record, and return where the next one begins.

        Without an end, go on through all signs. A last carriage return is taken for
        one, so signs that go on elsewhere must not be parted before a newline.
        """
        stop = self._go(self._record, signs, start, len(signs))
        if stop == len(signs):
            self.line += count_lines(signs, start, stop)
            return None
        end = stop + (2 if signs.startswith("\r\n", stop) else 1)
        self.line += count_lines(signs, start, end)
        self._before = Before.SEPARATOR
        return end

    def _leap(self, signs: str, quote: str) -> bool:
        """Go on at once if all quotes stand around fields; else say no, and stay."""
        # outside of quotes and inside by turns, and no two quotes meet
        parts = signs.replace(2 * quote, "").split(quote)
        is_quoted = (len(parts) - 1 + self.is_quoted) % 2 == 1
        opened = parts[self.is_quoted : None if is_quoted else -1 : 2]
        if opened and not opened[0] and self._before is not Before.TEXT:
            # a quote at the very start
            del opened[0]
        if not all(opened) or not {part[-1] for part in opened} <= self._separating:
            return False
        last = parts[-1]
        is_closing = not is_quoted and not last and len(parts) > 1
        if is_quoted or is_closing:
            self._note_opening(signs, quote, last=2 if is_closing else 1)
        if is_closing:
            self._before = Before.CLOSING_QUOTE
        elif last and not is_quoted:
            self._before = self._kind(last[-1])
        self.is_quoted = is_quoted
        return True

    def _note_opening(self, signs: str, quote: str, *, last: int) -> None:
        """Note the line of one of the last quotes that stand around fields."""
        at = next(islice(odd_runs(signs, quote), last - 1, None), None)
        # the second of two, at the very start, goes on with a field
        is_second = at == 0 and self._before is Before.CLOSING_QUOTE
        if at is not None and not is_second:
            self.opened_on = self.line + count_lines(signs, 0, at)

    def _go(self, passing: re.Pattern[str], signs: str, start: int, stop: int) -> int:
        at = start + self._enter(signs, start, stop)
        while at < stop:
            if self.is_quoted:
                at = self._end_of_quoted(signs, at, stop)
                if at < stop:
                    self.is_quoted = False
                    self._before = Before.CLOSING_QUOTE
                    at += 1
                continue
            passed = end_of(passing, signs, at, stop)
            if passed == stop and signs[stop - 1] == self._quote:
                # perhaps the first of two, so the field may be open: go into it
                passed = end_of(passing, signs, at, stop - 1)
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

    def _end_of_quoted(self, signs: str, at: int, stop: int) -> int:
        """Return the quote that closes a field, or the stop."""
        pair = 2 * (self._quote or "")
        at = end_of(self._quoted, signs, at, stop)
        while signs.startswith(pair, at, stop):
            at = end_of(self._quoted, signs, at, stop)
        return at

    def _enter(self, signs: str, start: int, stop: int) -> bool:
        """Take a quote that means something because of what came before the start."""
        if self.is_quoted or start == stop or signs[start] != self._quote:
            return False
        if self._before is Before.SEPARATOR:
            self.opened_on = self.line
        self.is_quoted = self._before is not Before.TEXT
        return self.is_quoted

    def _kind(self, passed: str) -> Before:
        return Before.SEPARATOR if passed in self._separators else Before.TEXT


def patterns(
    quote: str | None, separators: str
) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return what passes the inside of quotes, well-formed text, and one record of it.

    A closing quote is one that no other follows, so nothing can be read in two ways,
    and going back finds nothing. (Possessive groups would say so, but Python below
    3.11.5 gets them wrong.) Repeats are bounded, because each is remembered; the walk
    goes on by itself where one ends.
    """
    if quote is None:
        never = re.compile(r"(?!)")
        return never, never, re.compile(r"[^\r\n]*+")
    sign = re.escape(quote)
    inside = f"[^{sign}]*+(?:{sign}{sign}[^{sign}]*+){{0,{MOST_REPEATS}}}"
    field = f"(?<=[{re.escape(separators)}]){sign}{inside}{sign}(?!{sign})"
    text, record = f"[^{sign}]*+", rf"[^{sign}\r\n]*+"
    return (
        re.compile(inside),
        re.compile(f"{text}(?:{field}{text}){{0,{MOST_REPEATS}}}"),
        re.compile(f"{record}(?:{field}{record}){{0,{MOST_REPEATS}}}"),
    )


def end_of(pattern: re.Pattern[str], signs: str, start: int, stop: int) -> int:
    found = pattern.match(signs, start, stop)
    return start if found is None else found.end()


def odd_runs(signs: str, quote: str) -> Iterator[int]:
    """Yield where quotes stand that are not all in pairs, from the end on."""
    end = len(signs)
    while (start := signs.rfind(quote, 0, end)) >= 0:
        end = start + 1
        while start and signs[start - 1] == quote:
            start -= 1
        if (end - start) % 2:
            yield start
        end = start


def count_lines(signs: str, start: int, stop: int) -> int:
    """Count the ends of lines, of whichever kind."""
    lines = signs.count("\n", start, stop)
    if signs.find("\r", start, stop) >= 0:
        pairs = signs.count("\r\n", start, stop)
        lines += signs.count("\r", start, stop) - pairs
    return lines


def whole_signs(raw: bytes, coding: Coding) -> tuple[str, int]:
    """Return the signs of bytes that go on elsewhere, and the bytes that they take.

    Half a sign is left out, and so is a last carriage return: a newline may follow.
    """
    signs = coding.signs(raw).removesuffix("\r")
    return signs, coding.size_of_signs(signs)
