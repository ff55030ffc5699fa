"""How a CSV file is written: as declared, and where nothing is declared, as found."""

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from typing import Protocol, Self

from penstock.adapters.csv.coding import UTF_8, Coding, coding_of, find_mark
from penstock.errors import Misconfigured

DELIMITERS = ",;\t|"
# what no file can be cut at: the ends of lines, and what is never data
IMPOSSIBLE = "\r\n\0"
# enough to tell delimiters apart, and few enough to try them all
JUDGED_BYTES = 64 * 1024
JUDGED_RECORDS = 100
# a field is bounded by its record, so the module's own limit must never be in the way
WIDEST_FIELD = 2**31 - 1


class RecordReader(Protocol):
    """What `csv.reader` returns, which has no public name."""

    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Self: ...

    def __next__(self) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What has to be known to find and read the records of a file."""

    delimiter: str = ","
    # None: quotes are characters like any other
    quote: str | None = '"'
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        sign_of(self.coding, self.delimiter, "delimiter")
        if self.quote is not None:
            sign_of(self.coding, self.quote, "quote")
            if self.quote == self.delimiter:
                raise Misconfigured("quote and delimiter are the same character")

    def reader(self, lines: Iterable[str]) -> RecordReader:
        return open_reader(lines, self.delimiter, self.quote)

    @property
    def coding(self) -> Coding:
        return coding_of(self.encoding)

    @property
    def delimiter_sign(self) -> str:
        return sign_of(self.coding, self.delimiter, "delimiter")

    @property
    def quote_sign(self) -> str | None:
        return None if self.quote is None else sign_of(self.coding, self.quote, "quote")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a user says about the files; None is to be found out."""

    delimiter: str | None = None
    quote: str | None = '"'
    encoding: str | None = None
    header: bool = True
    # the names in files without a header
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """The dialect of one file, and what was guessed to know it."""

    dialect: Dialect
    # the bytes of the byte order mark
    mark: int
    guesses: tuple[str, ...] = ()


def detect(sample: bytes, declared: Declared, *, is_whole: bool) -> Detected:
    """Find the dialect of a file by its first bytes."""
    mark, marked = find_mark(sample)
    guesses = []
    if marked is not None:
        # a mark is a fact about this file, whatever was said of all
        coding = marked
    elif declared.encoding is not None:
        coding = coding_of(declared.encoding)
    else:
        coding = guess_coding(sample, is_whole=is_whole)
        if coding is not UTF_8:
            guesses.append(
                f"encoding {coding.name!r} is a guess: the file is not UTF-8"
            )
    delimiter = declared.delimiter
    if delimiter is None:
        text = coding.decode_leniently(sample[mark : mark + JUDGED_BYTES])
        is_all = is_whole and len(sample) - mark <= JUDGED_BYTES
        delimiter = guess_delimiter(text, declared.quote, is_whole=is_all)
        guesses.append(f"delimiter {delimiter!r} is a guess by the first records")
    dialect = Dialect(delimiter=delimiter, quote=declared.quote, encoding=coding.name)
    return Detected(dialect=dialect, mark=mark, guesses=tuple(guesses))


def guess_coding(sample: bytes, *, is_whole: bool) -> Coding:
    """Tell UTF-8 from the code pages of the West by how its characters are built.

    A few broken bytes among many whole characters are damage, not another encoding.
    """
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        # the last character may go on behind the sample
        is_cut = not is_whole and error.end == len(sample)
        if is_cut and error.reason == "unexpected end of data":
            return UTF_8
    else:
        return UTF_8
    text = sample.decode("utf-8", "replace")
    broken = text.count("\N{REPLACEMENT CHARACTER}")
    ascii_only = len(text.encode("ascii", "ignore"))
    if len(text) - ascii_only - broken > broken:
        return UTF_8
    try:
        sample.decode("cp1252")
    except UnicodeDecodeError:
        return coding_of("latin-1")
    return coding_of("cp1252")


def guess_delimiter(text: str, quote: str | None, *, is_whole: bool) -> str:
    """Choose the delimiter that cuts the first records most evenly, then most often."""

    def evenness(delimiter: str) -> tuple[float, int]:
        reader = open_reader(StringIO(text, newline=""), delimiter, quote)
        rows = list(islice(reader, JUDGED_RECORDS + 1))
        # the last one may be cut off
        judged = rows if is_whole else rows[:-1] or rows
        widths = Counter(len(row) for row in judged[:JUDGED_RECORDS] if row)
        if not widths:
            return 0, 0
        width, count = widths.most_common(1)[0]
        return (count / widths.total(), width) if width > 1 else (0, 0)

    candidates = [each for each in DELIMITERS if each != quote]
    return max(candidates, key=evenness)


def open_reader(
    lines: Iterable[str], delimiter: str, quote: str | None
) -> RecordReader:
    """Read records as Python's own module does."""
    # one value for the whole process, so it matters not which thread writes it
    if csv.field_size_limit() < WIDEST_FIELD:
        csv.field_size_limit(WIDEST_FIELD)
    return csv.reader(
        lines,
        delimiter=delimiter,
        quotechar=quote,
        quoting=csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL,
    )


def sign_of(coding: Coding, character: str, role: str) -> str:
    """Return the sign of a delimiter or quote, or refuse it."""
    sign = coding.sign(character) if len(character) == 1 else None
    if sign is None or character in IMPOSSIBLE:
        raise Misconfigured(
            f"{role} {character!r} is not one character, of one unit in {coding.name}"
        )
    return sign
