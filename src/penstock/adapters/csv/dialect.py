"""The dialect of a CSV file: declared, or detected where it is not declared."""

import codecs
import csv
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from itertools import combinations

from penstock.adapters.csv.encoding import UTF_8, Encoding, find_encoding
from penstock.domain.csv_reader import (
    CsvRecordReader,
    QuotedReader,
    StrayText,
    open_reader,
)
from penstock.domain.inference.dialect import guess_delimiter, without_lines
from penstock.domain.inference.encoding import find_byte_order_mark, guess_encoding
from penstock.errors import Misconfigured

# no delimiter, quote or escape: line ends, and what is never data
IMPOSSIBLE = "\r\n\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvDialect:
    """What is needed to find and read the records of a file."""

    delimiter: str = ","
    # None: quotes are ordinary characters
    quote: str | None = '"'
    # within quotes, before a quote or itself; None: quotes are only doubled
    escape: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        roles = {
            "delimiter": self.delimiter,
            "quote": self.quote,
            "escape": self.escape,
        }
        given = [(role, value) for role, value in roles.items() if value is not None]
        for role, character in given:
            unit_of(self.codec, character, role)
        for (role, character), (other, other_character) in combinations(given, 2):
            if character == other_character:
                raise Misconfigured(f"{other} and {role} are the same character")

    def reader(self, lines: Iterable[str], *, strict: bool = False) -> CsvRecordReader:
        return open_reader(
            lines,
            delimiter=self.delimiter,
            quote=self.quote,
            escape=self.escape,
            strict=strict,
        )

    def is_strict(self, lines: Iterable[str]) -> bool:
        """Return whether no text follows a closing quote, and no quote stays open.

        A line may hold others, within quotes.
        """
        try:
            deque(self.reader(lines, strict=True), maxlen=0)
        except csv.Error:
            return False
        return True

    def find_stray_text(self, text: str) -> StrayText | None:
        """Return the text that follows the first closing quote of a record, if any."""
        if self.quote is None or self.quote not in text or self.is_strict([text]):
            return None
        reader = QuotedReader(
            StringIO(text, newline=""),
            delimiter=self.delimiter,
            quote=self.quote,
            escape=self.escape,
            strict=True,
        )
        try:
            deque(reader, maxlen=0)
        except StrayText as stray:
            return stray
        except csv.Error:
            # an open quote is another flaw
            return None
        return None

    @property
    def codec(self) -> Encoding:
        return find_encoding(self.encoding)

    @property
    def delimiter_unit(self) -> str:
        return unit_of(self.codec, self.delimiter, "delimiter")

    @property
    def quote_unit(self) -> str | None:
        return None if self.quote is None else unit_of(self.codec, self.quote, "quote")

    @property
    def escape_unit(self) -> str | None:
        if self.escape is None or self.quote is None:
            return None
        return unit_of(self.codec, self.escape, "escape")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredDialect:
    """What a user declares about the files; None is detected."""

    delimiter: str | None = None
    quote: str | None = '"'
    escape: str | None = None
    encoding: str | None = None
    header: bool = True
    # the names in files without a header
    columns: tuple[str, ...] = ()
    # lines above the header, or above the first row
    skip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedDialect:
    """The dialect of one file, and warnings about it."""

    dialect: CsvDialect
    # the length of the byte order mark in bytes
    mark: int
    warnings: tuple[str, ...] = ()


def detect(
    sample: bytes, declared: DeclaredDialect, *, is_whole: bool
) -> DetectedDialect:
    """Detect the dialect of a file from its first bytes."""
    mark, marked = find_byte_order_mark(sample)
    warnings = []
    if marked is not None:
        # a mark is a fact about this file, whatever is declared for all
        codec = find_encoding(marked)
        if declared.encoding is not None and contradicts(marked, declared.encoding):
            detail = f"its byte order mark says {marked!r}, which is used"
            warnings.append(f"encoding {declared.encoding!r} is declared, but {detail}")
    elif declared.encoding is not None:
        codec = find_encoding(declared.encoding)
    else:
        encoding = guess_encoding([sample], is_whole=is_whole)
        codec = find_encoding(encoding.value)
        if encoding.doubt is not None:
            warnings.append(encoding.doubt)
        elif codec is not UTF_8:
            warnings.append(
                f"encoding {codec.name!r} is a guess: the file is not UTF-8"
            )
    delimiter = declared.delimiter
    if delimiter is None:
        text = without_lines(codec.decode_leniently(sample[mark:]), declared.skip)
        guessed = guess_delimiter(
            text, quote=declared.quote, escape=declared.escape, is_whole=is_whole
        )
        delimiter = guessed.value
        warnings.append(f"delimiter {delimiter!r} is a guess from the first records")
    dialect = CsvDialect(
        delimiter=delimiter,
        quote=declared.quote,
        escape=declared.escape,
        encoding=codec.name,
    )
    return DetectedDialect(dialect=dialect, mark=mark, warnings=tuple(warnings))


def contradicts(marked: str, encoding: str) -> bool:
    """Return whether a mark contradicts the declared encoding.

    `utf-16` leaves the byte order to the mark.
    """
    declared = codecs.lookup(encoding).name.removesuffix("-sig")
    return not marked.startswith(declared)


def unit_of(codec: Encoding, character: str, role: str) -> str:
    """Return the code unit of a delimiter, quote or escape, or refuse it."""
    unit = codec.code_unit(character) if len(character) == 1 else None
    if unit is None or character in IMPOSSIBLE:
        raise Misconfigured(
            f"{role} {character!r} must be one code unit in {codec.name}"
        )
    return unit
