"""Rows as CSV: RFC 4180 in UTF-8, with a header of field names.

Nothing at all is null, and `""` is an empty text: the one difference that CSV can
show, and that Python's own writer cannot before 3.12.
"""

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import IO, Any, TypeAlias

from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.text import format_instant

ToCell: TypeAlias = Callable[[Any], str]

MUST_BE_QUOTED = re.compile('[",\r\n]')
# what a spreadsheet takes for the start of a formula, also in its full-width form or
# behind our own mark: so taking one apostrophe away always gives back what was there
FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def write_csv(
    dataset: Dataset,
    rows: Iterable[tuple[object, ...]],
    file: IO[bytes],
    *,
    raw: bool = False,
) -> int:
    """Write rows as CSV; return how many.

    Unless raw, an apostrophe stands before text that a spreadsheet would run.
    """
    cells = [to_cell(field.type, raw=raw) for field in dataset.fields]
    file.write(line(field.name for field in dataset.fields))
    written = 0
    for row in rows:
        file.write(
            line(
                "" if value is None else cell(value)
                for cell, value in zip(cells, row, strict=True)
            )
        )
        written += 1
    return written


def line(cells: Iterable[str]) -> bytes:
    return (",".join(cells) + "\r\n").encode()


def to_cell(kind: FieldType, *, raw: bool) -> ToCell:
    """Return how the values of a type are written.

    Only text can hold a formula: all else is written by us.
    """
    match kind:
        case FieldType.TEXT:
            return quoted if raw else protected
        case FieldType.JSON:
            return quoted
        case FieldType.INT | FieldType.FLOAT:
            # the shortest digits that are read back as the same number
            return repr
        case FieldType.BOOL:
            return lambda value: "true" if value else "false"
        case FieldType.DATE:
            return date.isoformat
        case FieldType.TIMESTAMP:
            return format_instant


def protected(text: str) -> str:
    """Mark what a spreadsheet would run as text."""
    return quoted(f"'{text}" if FORMULA.match(text) else text)


def quoted(text: str) -> str:
    """Quote what would end its cell, and empty text, which is not null."""
    if text and MUST_BE_QUOTED.search(text) is None:
        return text
    return '"' + text.replace('"', '""') + '"'
