"""How a CSV file is written: as declared, and where nothing is declared, as found."""

import codecs
import csv
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self

from penstock.adapters.csv.coding import UTF_8, Coding, coding_of
from penstock.domain.guess.encoding import find_mark, guess_encoding
from penstock.domain.guess.layout import guess_delimiter
from penstock.errors import Misconfigured

# what no file can be cut at: the ends of lines, and what is never data
IMPOSSIBLE = "\r\n\0"
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
    """The dialect of one file, and what is to be told of it."""

    dialect: Dialect
    # the bytes of the byte order mark
    mark: int
    remarks: tuple[str, ...] = ()


def detect(sample: bytes, declared: Declared, *, is_whole: bool) -> Detected:
    """Find the dialect of a file by its first bytes."""
    mark, marked = find_mark(sample)
    remarks = []
    if marked is not None:
        # a mark is a fact about this file, whatever was said of all
        coding = coding_of(marked)
        if declared.encoding is not None and differs(marked, declared.encoding):
            told = f"its byte order mark says {marked!r}, and that counts"
            remarks.append(f"encoding {declared.encoding!r} is declared, but {told}")
    elif declared.encoding is not None:
        coding = coding_of(declared.encoding)
    else:
        coding = coding_of(guess_encoding([sample], is_whole=is_whole).value)
        if coding is not UTF_8:
            remarks.append(
                f"encoding {coding.name!r} is a guess: the file is not UTF-8"
            )
    delimiter = declared.delimiter
    if delimiter is None:
        text = coding.decode_leniently(sample[mark:])
        guessed = guess_delimiter(text, quote=declared.quote, is_whole=is_whole)
        delimiter = guessed.value
        remarks.append(f"delimiter {delimiter!r} is a guess by the first records")
    dialect = Dialect(delimiter=delimiter, quote=declared.quote, encoding=coding.name)
    return Detected(dialect=dialect, mark=mark, remarks=tuple(remarks))


def differs(marked: str, encoding: str) -> bool:
    """Tell if a mark names another encoding; `utf-16` leaves the order to it."""
    known = codecs.lookup(encoding).name.removesuffix("-sig")
    return not marked.startswith(known)


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
