"""Read the header of a file: its dialect, and the names of its columns."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from penstock.adapters.csv.byte_stream import ByteStream
from penstock.adapters.csv.dialect import CsvDialect, DeclaredDialect, detect
from penstock.adapters.csv.header_check import ColumnCheck, compare_with_declared
from penstock.adapters.csv.limits import LIMITS, FileLimits
from penstock.adapters.csv.record_scanner import RecordScanner
from penstock.adapters.csv.row_shape import RowShape, check_shape
from penstock.domain.inference.dialect import without_lines
from penstock.errors import Rejected

EMPTY_LINES = frozenset({"\n", "\r", "\r\n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader:
    """What is known of a file before its first record is read."""

    dialect: CsvDialect
    # as in the file, trimmed
    names: tuple[str, ...]
    # where the first record begins
    start: int
    line: int
    # how many values a row has
    shape: RowShape
    is_compressed: bool = False
    # why rows cannot be read reliably
    problem: str | None = None
    # warnings: what was guessed, or differs from the declaration
    warnings: tuple[str, ...] = ()


def read_header(
    path: Path, declared: DeclaredDialect, *, limits: FileLimits = LIMITS
) -> FileHeader:
    """Read the start of a file; raise `Rejected` if the header cannot be read."""
    with ByteStream(path, limits=limits) as stream:
        sample = stream.read(limits.sample)
        is_whole = not stream.read(1)
        is_compressed = stream.is_compressed
    detected = detect(sample, declared, is_whole=is_whole)
    dialect, mark = detected.dialect, detected.mark
    start, line = skip_lines(sample, mark, declared.skip, dialect, is_whole=is_whole)
    names = declared.columns
    replaced = ColumnCheck()
    if declared.header:
        raw, line = first_record(sample[start:], dialect, line=line, is_whole=is_whole)
        start += len(raw)
        if declared.columns:
            replaced = check_replaced_header(raw, dialect, declared.columns, line=line)
        else:
            names = read_names(raw, dialect)
        if names == ("",):
            raise Rejected(
                f"line {line - 1} is the header, and is blank; "
                f"remove it, or declare skip = {line - 1}"
            )
    rows = read_rows(sample[start:], dialect, is_whole=is_whole)
    shape_check = check_shape(names, rows, has_header=not declared.columns)
    return FileHeader(
        dialect=dialect,
        names=names,
        start=start,
        line=line,
        shape=shape_check.shape,
        is_compressed=is_compressed,
        problem="; ".join(replaced.problems) or shape_check.problem,
        warnings=(*detected.warnings, *replaced.warnings, *shape_check.warnings),
    )


def check_replaced_header(
    raw: bytes, dialect: CsvDialect, columns: Sequence[str], *, line: int
) -> ColumnCheck:
    """Compare a header with the columns that are declared instead of it."""
    try:
        found = read_names(raw, dialect)
    except Rejected as error:
        return ColumnCheck(warnings=(f"{error}; `columns` are used unchecked",))
    return compare_with_declared(found, columns, behind=line - 1)


def skip_lines(
    sample: bytes, start: int, count: int, dialect: CsvDialect, *, is_whole: bool
) -> tuple[int, int]:
    """Return the offset and the number of the line after the skipped ones."""
    if not count:
        return start, 1
    codec = dialect.codec
    units = codec.code_units(sample[start:])
    rest = without_lines(units, count)
    if not rest and not is_whole:
        raise Rejected(f"the first {count} lines are longer than {len(sample)} bytes")
    if not rest:
        raise Rejected(
            f"source.skip = {count}, but the file has no more lines than that"
        )
    return start + codec.size_of_units(units[: len(units) - len(rest)]), count + 1


def first_record(
    sample: bytes, dialect: CsvDialect, *, line: int = 1, is_whole: bool
) -> tuple[bytes, int]:
    """Return the bytes of the first record, and the number of the next line.

    The bytes include the empty lines before it.
    """
    codec = dialect.codec
    units = codec.code_units(sample)
    scanner = RecordScanner(dialect, line=line)
    start = 0
    while (end := scanner.find_end(units, start)) is not None:
        if units[start:end] not in EMPTY_LINES:
            # a newline may follow a carriage return at the end of the sample
            if end < len(units) or is_whole:
                return sample[: codec.size_of_units(units[:end])], scanner.line
            break
        start = end
    if scanner.is_quoted:
        raise Rejected(
            f"the header cannot be read: a quote on line {scanner.opened_on} "
            "is not closed"
        )
    if not is_whole:
        raise Rejected(f"the header is longer than {len(sample)} bytes")
    return sample, scanner.line


def read_names(raw: bytes, dialect: CsvDialect) -> tuple[str, ...]:
    try:
        text = raw.decode(dialect.codec.name)
    except UnicodeDecodeError as error:
        raise Rejected(
            f"the header is not {dialect.encoding}: {error.reason}"
        ) from error
    if "\0" in text:
        raise Rejected(
            f"the header contains NUL characters: the file is not {dialect.encoding}"
        )
    lines = StringIO(text, newline="")
    try:
        row = next(filter(None, dialect.reader(lines, strict=True)), [])
    except csv.Error as error:
        stray = dialect.find_stray_text(text)
        raise Rejected(f"the header cannot be read: {stray or error}") from error
    return tuple(name.strip() for name in row)


def read_rows(sample: bytes, dialect: CsvDialect, *, is_whole: bool) -> list[list[str]]:
    """Return the rows of the sample, without one that the sample may cut off."""
    lines = StringIO(dialect.codec.decode_leniently(sample), newline="")
    records = list(dialect.reader(lines))
    return [row for row in (records if is_whole else records[:-1]) if row]
