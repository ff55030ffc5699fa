"""Guess how a text is cut into rows and cells, and cut it."""

import csv
import io
import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from penstock.domain.csv_reader import open_reader
from penstock.domain.dataset import FieldType
from penstock.domain.guess.guessed import Guessed
from penstock.domain.guess.kinds import fits
from penstock.domain.text import shorten

DELIMITERS = (",", ";", "\t", "|")
BACKSLASH = "\\"
# enough to tell delimiters apart, and few enough to try them all
JUDGED_CHARACTERS = 64 * 1024
JUDGED_ROWS = 200
MOST_ROWS = 20_000
LONGEST_COLUMN = 1_000
# rows that do not fit this well come from a piece that was cut inside a cell
MOST = 0.5


class NotATable(ValueError):
    """A text that cannot be read as rows and cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    delimiter: Guessed[str]
    header: Guessed[bool]
    # what stands before quotes within quotes, where they are not doubled
    escape: Guessed[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What was read of a file: all rows have a cell for each column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    # rows with more or fewer cells
    odd: int = 0


def guess_layout(text: str, *, is_whole: bool) -> Layout:
    """Look at the beginning of a file, or all of it; raises `NotATable`."""
    if is_json(text):
        raise NotATable("looks like JSON; only CSV files can be drafted")
    escape = guess_escape(text, is_whole=is_whole)
    sign = None if escape is None else escape.value
    delimiter = guess_delimiter(text, escape=sign, is_whole=is_whole)
    rows = [*islice(cut(text, delimiter.value, escape=sign), JUDGED_ROWS)]
    if not rows:
        raise NotATable("there is nothing but blank lines")
    header = guess_header(rows[0], rows[1:])
    return Layout(delimiter=delimiter, header=header, escape=escape)


def guess_escape(text: str, *, is_whole: bool) -> Guessed[str] | None:
    """Take backslashes for escapes where quotes make less sense without."""
    if f'{BACKSLASH}"' not in text:
        return None
    delimiter = guess_delimiter(text, escape=BACKSLASH, is_whole=is_whole).value
    without, within = (
        count_broken(text, delimiter, escape) for escape in (None, BACKSLASH)
    )
    if within >= without:
        return None
    told = f"without it, text follows closing quotes in {without:,} lines"
    return Guessed(BACKSLASH, told if not within else f"{told}, with it in {within:,}")


def count_broken(text: str, delimiter: str, escape: str | None) -> int:
    """Count what a strict reader does not take for a record."""
    lines = io.StringIO(text, newline="")
    reader = open_reader(
        lines, delimiter=delimiter, quote='"', escape=escape, strict=True
    )
    broken = 0
    while True:
        try:
            deque(reader, maxlen=0)
        except csv.Error:
            broken += 1
        else:
            return broken


def is_json(text: str) -> bool:
    """Tell a document, or lines of them, by the first line that is not blank."""
    first = text.lstrip().partition("\n")[0].strip()
    if first in {"{", "[", "[{"}:
        return True
    try:
        return isinstance(json.loads(first), dict | list)
    except (ValueError, RecursionError):
        return False


def guess_delimiter(
    text: str, *, quote: str | None = '"', escape: str | None = None, is_whole: bool
) -> Guessed[str]:
    """Take what cuts most rows, the first of them too, into the same many cells."""
    candidates = [each for each in DELIMITERS if each not in {quote, escape}]
    best = (False, 0.0, 1)
    told = "one column: no comma, semicolon, tab or bar cuts it evenly"
    guess = Guessed(candidates[0], told)
    for delimiter in candidates:
        rows = first_rows(text, delimiter, quote, escape, is_whole=is_whole)
        if not rows:
            break
        first = len(rows[0])
        widths = Counter(width_of(row, first) for row in rows)
        (width, times), *_ = widths.most_common(1)
        # decimal commas cut every row evenly, but not the header
        score = (first == width, round(times / len(rows), 2), width)
        if width > 1 and score > best:
            best = score
            told = f"gives {width} columns in {times} of the first {len(rows)} lines"
            guess = Guessed(delimiter, told)
    return guess


def first_rows(
    text: str,
    delimiter: str,
    quote: str | None,
    escape: str | None,
    *,
    is_whole: bool,
) -> list[list[str]]:
    rows = cut(text[:JUDGED_CHARACTERS], delimiter, quote, escape)
    some = [*islice(rows, JUDGED_ROWS + 1)]
    if is_whole and len(text) <= JUDGED_CHARACTERS:
        return some[:JUDGED_ROWS]
    # the last one may be cut off
    return some[:-1] or some


def width_of(row: Sequence[str], first: int) -> int:
    """Count the cells of a row; a delimiter at its end adds none to the first's."""
    return first if len(row) == first + 1 and not row[-1] else len(row)


def guess_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> Guessed[bool]:
    """Tell names from values, by what stands below them."""
    # files that were joined repeat their header
    others = [row for row in rows if row != first]
    below = [
        [row[place].strip() for row in others if place < len(row)]
        for place in range(len(first))
    ]
    cells = [(cell.strip(), below[place]) for place, cell in enumerate(first)]
    if not others:
        return Guessed(value=True, reason="there is no other line")
    for cell, under in cells:
        if cell and not is_value(cell) and are_values(under):
            told = f"{shorten(cell, 30)} is no value, and all below are"
            return Guessed(value=True, reason=told)
    for place, (cell, under) in enumerate(cells, start=1):
        told = f"column {place} of the first line holds"
        if cell and is_value(cell) and are_values(under):
            return Guessed(value=False, reason=f"{told} a value, no name")
        if cell and cell in under:
            return Guessed(value=False, reason=f"{told} what stands below, too")
    return Guessed(value=True, reason="the first line holds what stands nowhere below")


def are_values(cells: Iterable[str]) -> bool:
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(map(is_value, filled))


def is_value(cell: str) -> bool:
    return any(
        fits(kind, [cell])
        for kind in (FieldType.FLOAT, FieldType.DATE, FieldType.TIMESTAMP)
    )


def read_table(pieces: Sequence[str], layout: Layout, *, is_whole: bool) -> Table:
    """Cut pieces of a file, the first of which is its beginning, or all of it.

    Raises `NotATable`.
    """
    delimiter = layout.delimiter.value
    escape = None if layout.escape is None else layout.escape.value
    begin, *others = (
        [*islice(cut(each, delimiter, escape=escape), MOST_ROWS)] for each in pieces
    )
    if layout.header.value:
        columns, begin = tuple(map(str.strip, begin[0])), begin[1:]
    else:
        columns = tuple(f"column_{place + 1}" for place in range(len(begin[0])))
    if max(map(len, columns)) > LONGEST_COLUMN:
        raise NotATable("line 1: a name goes on and on; is a quote never closed?")
    if not is_whole:
        # the last one may be cut off
        begin = begin[:-1]
    rows = [row for row in begin if len(row) == len(columns)]
    odd = len(begin) - len(rows)
    for piece in others:
        good = [row for row in piece if len(row) == len(columns)]
        if len(good) >= MOST * len(piece):
            rows += good
    return Table(columns=columns, rows=tuple(map(tuple, rows)), odd=odd)


def cut(
    text: str, delimiter: str, quote: str | None = '"', escape: str | None = None
) -> Iterator[list[str]]:
    reader = open_reader(
        io.StringIO(text, newline=""), delimiter=delimiter, quote=quote, escape=escape
    )
    try:
        # a blank line is no row
        yield from filter(None, reader)
    except csv.Error as error:
        raise NotATable(f"line {reader.line_num}: {error}") from error
