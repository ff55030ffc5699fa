"""Rows as CSV: RFC 4180 in UTF-8, with a header of field names.

An empty cell is null, and `""` is an empty text; Python's own writer cannot tell them
apart before 3.12.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import IO, Any, TypeAlias

import msgspec

from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.domain.exact_decimals import write_decimal
from penstock.domain.formats import format_instant

FormatCell: TypeAlias = Callable[[Any], str]

MUST_BE_QUOTED = re.compile('[",\r\n]')
# what a spreadsheet takes for the start of a formula, also in full-width form and with
# apostrophes before it, so that removing one always gives the original text
FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def write_csv(
    dataset: Dataset,
    rows: Iterable[tuple[object, ...]],
    file: IO[bytes],
    *,
    raw: bool = False,
) -> int:
    """Write rows as CSV; return how many.

    Unless raw, text that a spreadsheet would run gets an apostrophe in front.
    """
    formatters = [cell_formatter(field.type, raw=raw) for field in dataset.fields]
    file.write(csv_header(dataset.fields))
    count = 0
    for row in rows:
        file.write(
            csv_line(
                "" if value is None else format_cell(value)
                for format_cell, value in zip(formatters, row, strict=True)
            )
        )
        count += 1
    return count


def csv_header(fields: Sequence[Field]) -> bytes:
    return csv_line(field.name for field in fields)


def csv_of_json(
    fields: Sequence[Field], *, raw: bool
) -> Callable[[Sequence[bytes]], bytes]:
    """Return the function that formats rows which are JSON objects already."""
    formatters = [
        (field.name, json_cell_formatter(field.type, raw=raw)) for field in fields
    ]
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    # as Python's values, their numbers would lose digits
    exact = [
        field.name
        for field in fields
        if field.type in {FieldType.DECIMAL, FieldType.JSON}
    ]
    decode_texts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

    def format_row(row: bytes) -> bytes:
        values = decode(row)
        if exact:
            texts = decode_texts(row)
            values |= {
                name: bytes(texts[name]).decode()
                for name in exact
                if values[name] is not None
            }
        return csv_line(
            "" if values[name] is None else format_cell(values[name])
            for name, format_cell in formatters
        )

    return lambda rows: b"".join(map(format_row, rows))


def json_cell_formatter(kind: FieldType, *, raw: bool) -> FormatCell:
    """Return the function that formats values of a type as JSON has them."""
    match kind:
        case FieldType.JSON:
            return quote
        case FieldType.DATE | FieldType.TIMESTAMP | FieldType.DECIMAL:
            return str
        case FieldType.TEXT | FieldType.INT | FieldType.FLOAT | FieldType.BOOL:
            return cell_formatter(kind, raw=raw)


def csv_line(cells: Iterable[str]) -> bytes:
    return (",".join(cells) + "\r\n").encode()


def cell_formatter(kind: FieldType, *, raw: bool) -> FormatCell:
    """Return the function that formats values of a type; only text can be a formula."""
    match kind:
        case FieldType.TEXT:
            return quote if raw else quote_safely
        case FieldType.JSON:
            return quote
        case FieldType.INT | FieldType.FLOAT | FieldType.DECIMAL:
            return write_number
        case FieldType.BOOL:
            return lambda value: "true" if value else "false"
        case FieldType.DATE:
            return date.isoformat
        case FieldType.TIMESTAMP:
            return format_instant


def write_number(value: float | Decimal) -> str:
    # of a float, the shortest form that is read back as the same number
    return write_decimal(value) if isinstance(value, Decimal) else repr(value)


def quote_safely(text: str) -> str:
    """Quote a cell, with an apostrophe before what a spreadsheet would run."""
    return quote(f"'{text}" if FORMULA.match(text) else text)


def quote(text: str) -> str:
    """Quote a cell where needed; empty text too, because an empty cell is null."""
    if text and MUST_BE_QUOTED.search(text) is None:
        return text
    return '"' + text.replace('"', '""') + '"'
