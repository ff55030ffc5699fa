"""The first bytes of a file: what it is written in, and how its columns are called."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from penstock.adapters.csv.columns import ColumnCheck, compare_with_declared
from penstock.adapters.csv.dialect import Declared, Dialect, detect
from penstock.adapters.csv.limits import LIMITS, Limits
from penstock.adapters.csv.shape import Shape, check_shape
from penstock.adapters.csv.stream import Stream
from penstock.adapters.csv.walk import Walk
from penstock.domain.guess.layout import without_lines
from penstock.errors import Rejected

EMPTY_LINES = frozenset({"\n", "\r", "\r\n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What is known of a file before its first record is read."""

    dialect: Dialect
    # trimmed, as they stand in the file
    names: tuple[str, ...]
    # where the records begin
    start: int
    line: int
    # how many values a row has
    shape: Shape
    is_packed: bool = False
    # why no row can be read with certainty
    problem: str | None = None
    # what had to be guessed, or is not as it was declared
    remarks: tuple[str, ...] = ()


def read_head(path: Path, declared: Declared, *, limits: Limits = LIMITS) -> Head:
    """Look at the beginning of a file; raise `Rejected` where no header can be read."""
    with Stream(path, limits=limits) as stream:
        sample = stream.read(limits.sample)
        is_whole = not stream.read(1)
        is_packed = stream.is_packed
    detected = detect(sample, declared, is_whole=is_whole)
    dialect, mark = detected.dialect, detected.mark
    start, line = skip_lines(sample, mark, declared.skip, dialect, is_whole=is_whole)
    names = declared.columns
    replaced = ColumnCheck()
    if declared.header:
        raw, line = first_record(sample[start:], dialect, line=line, is_whole=is_whole)
        start += len(raw)
        if declared.columns:
            replaced = check_replaced(raw, dialect, declared.columns, line=line)
        else:
            names = read_names(raw, dialect)
        if names == ("",):
            raise Rejected(
                f"line {line - 1} is the header, and holds nothing but white space; "
                f"remove it, or declare skip = {line - 1}"
            )
    rows = read_rows(sample[start:], dialect, is_whole=is_whole)
    checked = check_shape(names, rows, has_header=not declared.columns)
    return Head(
        dialect=dialect,
        names=names,
        start=start,
        line=line,
        shape=checked.shape,
        is_packed=is_packed,
        problem="; ".join(replaced.problems) or checked.problem,
        remarks=(*detected.remarks, *replaced.remarks, *checked.remarks),
    )


def check_replaced(
    raw: bytes, dialect: Dialect, columns: Sequence[str], *, line: int
) -> ColumnCheck:
    """Compare a header with the columns that are declared in its place."""
    try:
        found = read_names(raw, dialect)
    except Rejected as error:
        return ColumnCheck(remarks=(f"{error}; `columns` count, unchecked",))
    return compare_with_declared(found, columns, behind=line - 1)


def skip_lines(
    sample: bytes, start: int, count: int, dialect: Dialect, *, is_whole: bool
) -> tuple[int, int]:
    """Return where the lines above the table end, and which line follows."""
    if not count:
        return start, 1
    coding = dialect.coding
    signs = coding.signs(sample[start:])
    below = without_lines(signs, count)
    if not below and not is_whole:
        raise Rejected(f"the first {count} lines are longer than {len(sample)} bytes")
    if not below:
        raise Rejected(
            f"source.skip = {count}, but the file has no more lines than that"
        )
    return start + coding.size_of_signs(signs[: len(signs) - len(below)]), count + 1


def first_record(
    sample: bytes, dialect: Dialect, *, line: int = 1, is_whole: bool
) -> tuple[bytes, int]:
    """Return all up to the end of the first record, and the line that follows."""
    coding = dialect.coding
    signs = coding.signs(sample)
    walk = Walk(dialect, line=line)
    start = 0
    while (end := walk.find_end(signs, start)) is not None:
        if signs[start:end] not in EMPTY_LINES:
            # a newline may follow a carriage return behind the sample
            if end < len(signs) or is_whole:
                return sample[: coding.size_of_signs(signs[:end])], walk.line
            break
        start = end
    if walk.is_quoted:
        raise Rejected(
            f"the header cannot be read: a quote on line {walk.opened_on} is not closed"
        )
    if not is_whole:
        raise Rejected(f"the header is longer than {len(sample)} bytes")
    return sample, walk.line


def read_names(raw: bytes, dialect: Dialect) -> tuple[str, ...]:
    try:
        text = raw.decode(dialect.coding.name)
    except UnicodeDecodeError as error:
        raise Rejected(
            f"the header is not {dialect.encoding}: {error.reason}"
        ) from error
    if "\0" in text:
        raise Rejected(
            f"the header holds NUL characters: the file is not {dialect.encoding}"
        )
    lines = StringIO(text, newline="")
    try:
        row = next(filter(None, dialect.reader(lines, strict=True)), [])
    except csv.Error as error:
        stray = dialect.find_stray_text(text)
        raise Rejected(f"the header cannot be read: {stray or error}") from error
    return tuple(name.strip() for name in row)


def read_rows(sample: bytes, dialect: Dialect, *, is_whole: bool) -> list[list[str]]:
    """Return the first rows, as they are read; the last may go on behind the sample."""
    lines = StringIO(dialect.coding.decode_leniently(sample), newline="")
    records = list(dialect.reader(lines))
    return [row for row in (records if is_whole else records[:-1]) if row]
