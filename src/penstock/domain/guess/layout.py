"""Guess how a text is cut into rows and cells, and cut it."""

import csv
import io
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from penstock.domain.csv_reader import open_reader
from penstock.domain.dataset import FieldType
from penstock.domain.guess.guessed import Guessed
from penstock.domain.guess.kinds import fits
from penstock.domain.text import shorten

DELIMITERS = (",", ";", "\t", "|")
BACKSLASH = "\\"
# of the rows end in a delimiter, or it is an extra one
LEAST_TRAILING = 0.99
# enough to tell delimiters apart, and few enough to try them all
JUDGED_CHARACTERS = 64 * 1024
JUDGED_ROWS = 200
MOST_ROWS = 20_000
LONGEST_COLUMN = 1_000
# titles are no longer
MOST_SKIPPED = 10
# how evenly a table below a title is cut
EVEN = 0.9
NARROW = 2
SEPARATOR_LINE = re.compile(r"\s*sep=([^\r\n])\r?\n", re.IGNORECASE)
LINE_END = re.compile(r"\r\n|\r|\n")
NAME = re.compile(
    r"(^|[\W_])(id|ids|uid|uuid|guid|key|code|sku|ean|gtin|isbn|nr|number|name|title"
    r"|label|town|city|country|address|street|company|phone|email|url|type|status"
    r"|description|date|time|timestamp|lat|lon|lng|latitude|longitude|price|value)$",
    re.IGNORECASE,
)
LETTERS, DIGITS = re.compile(r"[^\W\d_]+"), re.compile(r"[0-9]+")
# in the form of a cell: digits, or what stands in addresses and times
UNLIKE_NAMES = re.compile(r"[9@:/]")
# rows that do not fit this well come from a piece that was cut inside a cell
MOST = 0.5

# a cell of the first line, and those below it
Headed: TypeAlias = tuple[str, Sequence[str]]


class NotATable(ValueError):
    """A text that cannot be read as rows and cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    delimiter: Guessed[str]
    header: Guessed[bool]
    # what stands before quotes within quotes, where they are not doubled
    escape: Guessed[str] | None = None
    # lines above the header, or above the first row
    skip: Guessed[int] = field(default_factory=lambda: Guessed(0, "no title"))

    @property
    def doubts(self) -> Iterator[str]:
        """What may well be wrong, a sentence each."""
        for guess in (self.skip, self.delimiter, self.header):
            if guess.doubt is not None:
                yield guess.doubt


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
    skip = guess_title(text, is_whole=is_whole)
    below = without_lines(text, skip.value)
    escape = guess_escape(below, is_whole=is_whole)
    sign = None if escape is None else escape.value
    delimiter = named_delimiter(text) or guess_delimiter(
        below, escape=sign, is_whole=is_whole
    )
    rows = [*islice(cut(below, delimiter.value, escape=sign), JUDGED_ROWS)]
    if not rows:
        raise NotATable("there is nothing but blank lines")
    header = guess_header(rows[0], rows[1:])
    return Layout(delimiter=delimiter, header=header, escape=escape, skip=skip)


def named_delimiter(text: str) -> Guessed[str] | None:
    """Read the line by which spreadsheets name a delimiter."""
    named = SEPARATOR_LINE.match(text)
    if named is None or named[1].isalnum():
        return None
    return Guessed(named[1], "the line sep= above the header, as spreadsheets write it")


def guess_title(text: str, *, is_whole: bool) -> Guessed[int]:
    """Find lines of text above the table."""
    named = named_delimiter(text)
    if named is not None:
        return Guessed(1, named.reason)
    for lines in range(MOST_SKIPPED + 1):
        below = without_lines(text, lines)
        guess, (is_even, share, width) = judge_delimiters(below, is_whole=is_whole)
        head = next(cut(below[:JUDGED_CHARACTERS], guess.value), [])
        has_names = sum(map(bool, map(str.strip, head))) > 1
        if not (is_even and width > 1 and has_names):
            continue
        if lines == 0:
            break
        above = text[: len(text) - len(below)]
        if share >= EVEN and is_title(above, guess.value, width):
            above_it = "the first line is" if lines == 1 else f"{lines} lines are"
            told = f"text above a table of {width} columns"
            doubt = (
                f"{above_it} taken for a title and skipped (skip = {lines}): look "
                "whether the header follows"
            )
            return Guessed(lines, told, doubt)
    return Guessed(0, "no title")


def is_title(above: str, delimiter: str, width: int) -> bool:
    """Say whether lines hold one text each, and no names of columns."""
    rows = [[cell.strip() for cell in row] for row in cut(above, delimiter)]
    texts = [" ".join(filter(None, row)) for row in rows]
    is_one_text = all(sum(map(bool, row)) <= 1 for row in rows)
    # a single word above two columns may be a header that is one name short
    is_blank = rows != [] and all(len(row) == 1 for row in rows)
    return (
        is_one_text
        and (is_blank or any(texts))
        and (width > NARROW or all(" " in text for text in texts if text))
    )


def without_lines(text: str, count: int) -> str:
    """Drop the first lines, however they end and whatever they quote."""
    start = 0
    for _ in range(count):
        found = LINE_END.search(text, start)
        if found is None:
            return ""
        start = found.end()
    return text[start:]


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
    return judge_delimiters(text, quote=quote, escape=escape, is_whole=is_whole)[0]


def judge_delimiters(
    text: str, *, quote: str | None = '"', escape: str | None = None, is_whole: bool
) -> tuple[Guessed[str], tuple[bool, float, int]]:
    """Return the best delimiter, and how evenly it cuts into how many columns."""
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
    return guess, best


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
    return (
        proven_header(cells)
        or missing_header(cells)
        or Guessed(
            value=True,
            reason="the first line holds what stands nowhere below",
            doubt=(
                "the first line is taken for the header, though nothing proves it: if "
                "it is a row, declare header = false and columns = [...]"
            ),
        )
    )


def proven_header(cells: Sequence[Headed]) -> Guessed[bool] | None:
    for cell, under in cells:
        if cell and not is_value(cell) and are_values(under):
            told = f"{shorten(cell, 30)} is no value, and all below are"
            return Guessed(value=True, reason=told)
    return None


def missing_header(cells: Sequence[Headed]) -> Guessed[bool] | None:
    for place, (cell, under) in enumerate(cells, start=1):
        told = f"column {place} of the first line holds"
        if cell and is_value(cell) and are_values(under):
            return headless(f"{told} a value, no name")
        if cell and cell in under:
            return headless(f"{told} what stands below, too")
        if is_formed_alike(cell, under):
            return headless(f"{told} what is formed as all below")
    named = [cell for cell, _ in cells if NAME.search(cell)]
    if named:
        reason = f"{shorten(named[0], 30)} is what columns are called"
        return Guessed(value=True, reason=reason)
    if is_written_alike(cells):
        return headless("the first line is written as those below")
    return None


def headless(reason: str) -> Guessed[bool]:
    doubt = (
        "there seems to be no header: the columns are called column_1, column_2 and so "
        "on; rename them, or declare header = true without columns"
    )
    return Guessed(value=False, reason=reason, doubt=doubt)


def is_formed_alike(cell: str, under: Sequence[str]) -> bool:
    """Say whether a cell has the form of all below, one that names do not have."""
    form = form_of(cell)
    filled = [each for each in under if each]
    return (
        len(filled) > 1
        and UNLIKE_NAMES.search(form) is not None
        and len(cell) in set(map(len, filled))
        and all(form_of(each) == form for each in filled)
    )


def is_written_alike(cells: Sequence[Headed]) -> bool:
    """Say whether each cell has the capitals of all below, and some have others."""
    styles = {style_of(cell) for cell, _ in cells if cell}
    return len(styles) > 1 and all(
        {style_of(cell)} == {style_of(each) for each in under if each}
        for cell, under in cells
        if cell
    )


def style_of(cell: str) -> str:
    is_styled = (cell.islower(), cell.isupper(), cell.istitle())
    return "".join(map(str, map(int, is_styled)))


def form_of(cell: str) -> str:
    """Write letters as one a and digits as one 9: +49 30 12 is +9 9 9."""
    return DIGITS.sub("9", LETTERS.sub("a", cell))


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
    first, *rest = pieces
    known = (without_lines(first, layout.skip.value), *rest)
    begin, *others = (
        [*islice(cut(each, delimiter, escape=escape), MOST_ROWS)] for each in known
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
    if ends_in_delimiters(begin, len(columns)):
        begin, *others = map(without_trailing, (begin, *others))
    rows = [row for row in begin if len(row) == len(columns)]
    odd = len(begin) - len(rows)
    for piece in others:
        good = [row for row in piece if len(row) == len(columns)]
        if len(good) >= MOST * len(piece):
            rows += good
    return Table(columns=columns, rows=tuple(map(tuple, rows)), odd=odd)


def ends_in_delimiters(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Say whether nearly all rows have one cell more than names, an empty one."""
    trailing = sum(len(row) == width + 1 and not row[-1] for row in rows)
    return bool(rows) and trailing >= LEAST_TRAILING * len(rows)


def without_trailing(rows: Iterable[list[str]]) -> list[list[str]]:
    return [row if row[-1] else row[:-1] for row in rows]


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
