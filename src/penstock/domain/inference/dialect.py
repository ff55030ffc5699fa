"""Guess the CSV dialect of a text, and parse it into a sample table."""

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
from penstock.domain.formats import shorten
from penstock.domain.inference.guess import Guess
from penstock.domain.inference.types import fits

DELIMITERS = (",", ";", "\t", "|")
BACKSLASH = "\\"
# the share of rows with a delimiter at the end from which it is not an empty column
MIN_TRAILING_SHARE = 0.99
# enough to distinguish delimiters, and few enough to try them all
JUDGED_CHARACTERS = 64 * 1024
JUDGED_ROWS = 200
MAX_SAMPLE_ROWS = 20_000
MAX_COLUMN_NAME = 1_000
MAX_TITLE_LINES = 10
# the share of rows of the same width that a table below a title has
MIN_EVEN_SHARE = 0.9
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
# in the form of a cell: digits, or characters of URLs, e-mail addresses and times
UNLIKE_NAMES = re.compile(r"[9@:/]")
# with a smaller share of matching rows, a chunk was cut inside of a quoted cell
MIN_MATCHING_SHARE = 0.5

# a cell of the first line, and the cells below it
Headed: TypeAlias = tuple[str, Sequence[str]]


class NotTabular(ValueError):
    """A text that cannot be parsed as rows and cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvLayout:
    delimiter: Guess[str]
    header: Guess[bool]
    # the character that escapes quotes within quotes, where they are not doubled
    escape: Guess[str] | None = None
    # lines to skip above the header, or above the first row
    skip: Guess[int] = field(default_factory=lambda: Guess(0, "no title"))

    @property
    def doubts(self) -> Iterator[str]:
        """Warnings about guesses that may be wrong."""
        for guess in (self.skip, self.delimiter, self.header):
            if guess.doubt is not None:
                yield guess.doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTable:
    """A parsed sample of a file: all rows have a cell for each column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    # rows with more or fewer cells
    odd: int = 0


def guess_layout(text: str, *, is_whole: bool) -> CsvLayout:
    """Guess from the beginning of a file, or all of it; raises `NotTabular`."""
    if is_json(text):
        raise NotTabular("looks like JSON; only CSV files can be drafted")
    skip = guess_title(text, is_whole=is_whole)
    below = without_lines(text, skip.value)
    escape = guess_escape(below, is_whole=is_whole)
    escape_character = None if escape is None else escape.value
    delimiter = named_delimiter(text) or guess_delimiter(
        below, escape=escape_character, is_whole=is_whole
    )
    parsed = parse_rows(below, delimiter.value, escape=escape_character)
    rows = [*islice(parsed, JUDGED_ROWS)]
    if not rows:
        raise NotTabular("there is nothing but blank lines")
    header = guess_header(rows[0], rows[1:])
    return CsvLayout(delimiter=delimiter, header=header, escape=escape, skip=skip)


def named_delimiter(text: str) -> Guess[str] | None:
    """Return the delimiter of a `sep=` line, as spreadsheets write it."""
    named = SEPARATOR_LINE.match(text)
    if named is None or named[1].isalnum():
        return None
    return Guess(named[1], "the line sep= above the header, as spreadsheets write it")


def guess_title(text: str, *, is_whole: bool) -> Guess[int]:
    """Find lines of text above the table."""
    named = named_delimiter(text)
    if named is not None:
        return Guess(1, named.reason)
    for lines in range(MAX_TITLE_LINES + 1):
        below = without_lines(text, lines)
        guess, (is_even, share, width) = judge_delimiters(below, is_whole=is_whole)
        header = next(parse_rows(below[:JUDGED_CHARACTERS], guess.value), [])
        has_names = sum(map(bool, map(str.strip, header))) > 1
        if not (is_even and width > 1 and has_names):
            continue
        if lines == 0:
            break
        above = text[: len(text) - len(below)]
        if share >= MIN_EVEN_SHARE and is_title(above, guess.value, width):
            subject = "the first line is" if lines == 1 else f"{lines} lines are"
            reason = f"text above a table of {width} columns"
            doubt = (
                f"{subject} taken for a title and skipped (skip = {lines}): look "
                "whether the header follows"
            )
            return Guess(lines, reason, doubt)
    return Guess(0, "no title")


def is_title(above: str, delimiter: str, width: int) -> bool:
    """Return whether lines contain one text each, and no column names."""
    rows = [[cell.strip() for cell in row] for row in parse_rows(above, delimiter)]
    texts = [" ".join(filter(None, row)) for row in rows]
    is_one_text = all(sum(map(bool, row)) <= 1 for row in rows)
    # a single word above two columns may be a header that lacks one name
    is_blank = rows != [] and all(len(row) == 1 for row in rows)
    return (
        is_one_text
        and (is_blank or any(texts))
        and (width > NARROW or all(" " in text for text in texts if text))
    )


def without_lines(text: str, count: int) -> str:
    """Drop the first lines, with any line end, and ignoring quotes."""
    start = 0
    for _ in range(count):
        found = LINE_END.search(text, start)
        if found is None:
            return ""
        start = found.end()
    return text[start:]


def guess_escape(text: str, *, is_whole: bool) -> Guess[str] | None:
    """Guess that backslashes are escapes if fewer records are broken with them."""
    if f'{BACKSLASH}"' not in text:
        return None
    delimiter = guess_delimiter(text, escape=BACKSLASH, is_whole=is_whole).value
    without, within = (
        count_broken(text, delimiter, escape) for escape in (None, BACKSLASH)
    )
    if within >= without:
        return None
    reason = f"without it, text follows closing quotes in {without:,} lines"
    return Guess(BACKSLASH, f"{reason}, with it in {within:,}" if within else reason)


def count_broken(text: str, delimiter: str, escape: str | None) -> int:
    """Count the records that a strict reader rejects."""
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
    """Return whether the first line that is not blank is, or starts, JSON."""
    first = text.lstrip().partition("\n")[0].strip()
    if first in {"{", "[", "[{"}:
        return True
    try:
        return isinstance(json.loads(first), dict | list)
    except (ValueError, RecursionError):
        return False


def guess_delimiter(
    text: str, *, quote: str | None = '"', escape: str | None = None, is_whole: bool
) -> Guess[str]:
    """Return the delimiter that gives most rows, and the first, the same width."""
    return judge_delimiters(text, quote=quote, escape=escape, is_whole=is_whole)[0]


def judge_delimiters(
    text: str, *, quote: str | None = '"', escape: str | None = None, is_whole: bool
) -> tuple[Guess[str], tuple[bool, float, int]]:
    """Return the best delimiter, and its score: evenness, share of rows and width."""
    candidates = [
        delimiter for delimiter in DELIMITERS if delimiter not in {quote, escape}
    ]
    best = (False, 0.0, 1)
    reason = "one column: no comma, semicolon, tab or bar cuts it evenly"
    guess = Guess(candidates[0], reason)
    for delimiter in candidates:
        rows = first_rows(text, delimiter, quote, escape, is_whole=is_whole)
        if not rows:
            break
        first = len(rows[0])
        widths = Counter(width_of(row, first) for row in rows)
        (width, times), *_ = widths.most_common(1)
        # decimal commas split every row evenly, but not the header
        score = (first == width, round(times / len(rows), 2), width)
        if width > 1 and score > best:
            best = score
            reason = f"gives {width} columns in {times} of the first {len(rows)} lines"
            guess = Guess(delimiter, reason)
    return guess, best


def first_rows(
    text: str,
    delimiter: str,
    quote: str | None,
    escape: str | None,
    *,
    is_whole: bool,
) -> list[list[str]]:
    parsed = parse_rows(text[:JUDGED_CHARACTERS], delimiter, quote, escape)
    rows = [*islice(parsed, JUDGED_ROWS + 1)]
    if is_whole and len(text) <= JUDGED_CHARACTERS:
        return rows[:JUDGED_ROWS]
    # the last one may be truncated
    return rows[:-1] or rows


def width_of(row: Sequence[str], first: int) -> int:
    """Count the cells of a row, except an empty one after those of the first row."""
    return first if len(row) == first + 1 and not row[-1] else len(row)


def guess_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> Guess[bool]:
    """Decide whether the first row has names or values, by the cells below."""
    # concatenated files repeat their header
    others = [row for row in rows if row != first]
    below = [
        [row[index].strip() for row in others if index < len(row)]
        for index in range(len(first))
    ]
    cells = [(cell.strip(), below[index]) for index, cell in enumerate(first)]
    if not others:
        return Guess(value=True, reason="there is no other line")
    return (
        find_header(cells)
        or find_missing_header(cells)
        or Guess(
            value=True,
            reason="the first line has what does not occur below",
            doubt=(
                "the first line is taken for the header, though nothing proves it: if "
                "it is a row, declare header = false and columns = [...]"
            ),
        )
    )


def find_header(cells: Sequence[Headed]) -> Guess[bool] | None:
    for cell, below in cells:
        if cell and not is_value(cell) and are_values(below):
            reason = f"{shorten(cell, 30)} is no value, and all below are"
            return Guess(value=True, reason=reason)
    return None


def find_missing_header(cells: Sequence[Headed]) -> Guess[bool] | None:
    for number, (cell, below) in enumerate(cells, start=1):
        subject = f"column {number} of the first line has"
        if cell and is_value(cell) and are_values(below):
            return no_header(f"{subject} a value, no name")
        if cell and cell in below:
            return no_header(f"{subject} what occurs below, too")
        if has_same_form(cell, below):
            return no_header(f"{subject} the form of all below")
    named = [cell for cell, _ in cells if NAME.search(cell)]
    if named:
        reason = f"{shorten(named[0], 30)} is a usual name of a column"
        return Guess(value=True, reason=reason)
    if has_same_case(cells):
        return no_header("the first line is written as those below")
    return None


def no_header(reason: str) -> Guess[bool]:
    doubt = (
        "there seems to be no header: the columns are called column_1, column_2 and so "
        "on; rename them, or declare header = true without columns"
    )
    return Guess(value=False, reason=reason, doubt=doubt)


def has_same_form(cell: str, below: Sequence[str]) -> bool:
    """Return whether a cell has the form of all below, and it is unlike a name."""
    form = form_of(cell)
    filled = [other for other in below if other]
    return (
        len(filled) > 1
        and UNLIKE_NAMES.search(form) is not None
        and len(cell) in set(map(len, filled))
        and all(form_of(other) == form for other in filled)
    )


def has_same_case(cells: Sequence[Headed]) -> bool:
    """Return whether cells differ in case, and each has the case of all below."""
    cases = {case_of(cell) for cell, _ in cells if cell}
    return len(cases) > 1 and all(
        {case_of(cell)} == {case_of(other) for other in below if other}
        for cell, below in cells
        if cell
    )


def case_of(cell: str) -> tuple[bool, bool, bool]:
    return cell.islower(), cell.isupper(), cell.istitle()


def form_of(cell: str) -> str:
    """Replace runs of letters by a and of digits by 9: +49 30 12 is +9 9 9."""
    return DIGITS.sub("9", LETTERS.sub("a", cell))


def are_values(cells: Iterable[str]) -> bool:
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(map(is_value, filled))


def is_value(cell: str) -> bool:
    return any(
        fits(kind, [cell])
        for kind in (FieldType.FLOAT, FieldType.DATE, FieldType.TIMESTAMP)
    )


def read_table(
    chunks: Sequence[str], layout: CsvLayout, *, is_whole: bool
) -> SampleTable:
    """Parse chunks of a file, the first of which is its beginning, or all of it.

    Raises `NotTabular`.
    """
    delimiter = layout.delimiter.value
    escape = None if layout.escape is None else layout.escape.value
    first, *rest = chunks
    texts = (without_lines(first, layout.skip.value), *rest)
    beginning, *others = (
        [*islice(parse_rows(text, delimiter, escape=escape), MAX_SAMPLE_ROWS)]
        for text in texts
    )
    if layout.header.value:
        columns, beginning = tuple(map(str.strip, beginning[0])), beginning[1:]
    else:
        columns = tuple(f"column_{index + 1}" for index in range(len(beginning[0])))
    if max(map(len, columns)) > MAX_COLUMN_NAME:
        raise NotTabular("line 1: a name is too long; is a quote never closed?")
    if not is_whole:
        # the last one may be truncated
        beginning = beginning[:-1]
    if ends_in_delimiters(beginning, len(columns)):
        beginning, *others = map(without_trailing, (beginning, *others))
    rows = [row for row in beginning if len(row) == len(columns)]
    odd = len(beginning) - len(rows)
    for chunk in others:
        good = [row for row in chunk if len(row) == len(columns)]
        if len(good) >= MIN_MATCHING_SHARE * len(chunk):
            rows += good
    return SampleTable(columns=columns, rows=tuple(map(tuple, rows)), odd=odd)


def ends_in_delimiters(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Return whether nearly all rows have one more cell than names, an empty one."""
    trailing = sum(len(row) == width + 1 and not row[-1] for row in rows)
    return bool(rows) and trailing >= MIN_TRAILING_SHARE * len(rows)


def without_trailing(rows: Iterable[list[str]]) -> list[list[str]]:
    return [row if row[-1] else row[:-1] for row in rows]


def parse_rows(
    text: str, delimiter: str, quote: str | None = '"', escape: str | None = None
) -> Iterator[list[str]]:
    reader = open_reader(
        io.StringIO(text, newline=""), delimiter=delimiter, quote=quote, escape=escape
    )
    try:
        # skips blank lines
        yield from filter(None, reader)
    except csv.Error as error:
        raise NotTabular(f"line {reader.line_num}: {error}") from error
