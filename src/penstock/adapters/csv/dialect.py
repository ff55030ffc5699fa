"""How a CSV file is written: as declared, and where nothing is declared, as found."""

import codecs
import csv
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from itertools import combinations

from penstock.adapters.csv.coding import UTF_8, Coding, coding_of
from penstock.domain.csv_reader import (
    QuotedReader,
    RecordReader,
    StrayText,
    open_reader,
)
from penstock.domain.guess.encoding import find_mark, guess_encoding
from penstock.domain.guess.layout import guess_delimiter, without_lines
from penstock.errors import Misconfigured

# what no file can be cut at: the ends of lines, and what is never data
IMPOSSIBLE = "\r\n\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What has to be known to find and read the records of a file."""

    delimiter: str = ","
    # None: quotes are characters like any other
    quote: str | None = '"'
    # within quotes, it stands before a quote or itself; None: quotes are doubled only
    escape: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        roles = {
            "delimiter": self.delimiter,
            "quote": self.quote,
            "escape": self.escape,
        }
        known = [(role, sign) for role, sign in roles.items() if sign is not None]
        for role, character in known:
            sign_of(self.coding, character, role)
        for (role, character), (other, same) in combinations(known, 2):
            if character == same:
                raise Misconfigured(f"{other} and {role} are the same character")

    def reader(self, lines: Iterable[str], *, strict: bool = False) -> RecordReader:
        return open_reader(
            lines,
            delimiter=self.delimiter,
            quote=self.quote,
            escape=self.escape,
            strict=strict,
        )

    def is_strict(self, lines: Iterable[str]) -> bool:
        """Tell if no text follows a closing quote, and no quote is open at the end.

        Lines may hold others, within quotes.
        """
        try:
            deque(self.reader(lines, strict=True), maxlen=0)
        except csv.Error:
            return False
        return True

    def find_stray_text(self, text: str) -> StrayText | None:
        """Return what follows the first closing quote of a record that should not."""
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
            # a quote that is open is another flaw
            return None
        return None

    @property
    def coding(self) -> Coding:
        return coding_of(self.encoding)

    @property
    def delimiter_sign(self) -> str:
        return sign_of(self.coding, self.delimiter, "delimiter")

    @property
    def quote_sign(self) -> str | None:
        return None if self.quote is None else sign_of(self.coding, self.quote, "quote")

    @property
    def escape_sign(self) -> str | None:
        if self.escape is None or self.quote is None:
            return None
        return sign_of(self.coding, self.escape, "escape")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a user says about the files; None is to be found out."""

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
        encoding = guess_encoding([sample], is_whole=is_whole)
        coding = coding_of(encoding.value)
        if encoding.doubt is not None:
            remarks.append(encoding.doubt)
        elif coding is not UTF_8:
            remarks.append(
                f"encoding {coding.name!r} is a guess: the file is not UTF-8"
            )
    delimiter = declared.delimiter
    if delimiter is None:
        text = without_lines(coding.decode_leniently(sample[mark:]), declared.skip)
        guessed = guess_delimiter(
            text, quote=declared.quote, escape=declared.escape, is_whole=is_whole
        )
        delimiter = guessed.value
        remarks.append(f"delimiter {delimiter!r} is a guess by the first records")
    dialect = Dialect(
        delimiter=delimiter,
        quote=declared.quote,
        escape=declared.escape,
        encoding=coding.name,
    )
    return Detected(dialect=dialect, mark=mark, remarks=tuple(remarks))


def differs(marked: str, encoding: str) -> bool:
    """Tell if a mark names another encoding; `utf-16` leaves the order to it."""
    known = codecs.lookup(encoding).name.removesuffix("-sig")
    return not marked.startswith(known)


def sign_of(coding: Coding, character: str, role: str) -> str:
    """Return the sign of a delimiter, quote or escape, or refuse it."""
    sign = coding.sign(character) if len(character) == 1 else None
    if sign is None or character in IMPOSSIBLE:
        raise Misconfigured(
            f"{role} {character!r} is not one character, of one unit in {coding.name}"
        )
    return sign
