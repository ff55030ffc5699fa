"""Rows as JSON lines: one object a line, exactly as stored."""

from collections.abc import Iterable
from decimal import Decimal
from typing import IO

import msgspec

from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.exact_decimals import write_decimal


def write_jsonl(
    dataset: Dataset, rows: Iterable[tuple[object, ...]], file: IO[bytes]
) -> int:
    """Write rows as JSON lines; return how many."""
    names = [field.name for field in dataset.fields]
    nested = [
        index
        for index, field in enumerate(dataset.fields)
        if field.type in {FieldType.JSON, FieldType.DECIMAL}
    ]
    encode = msgspec.json.Encoder().encode
    count = 0
    for row in rows:
        values = with_raw_json(row, nested) if nested else row
        file.write(encode(dict(zip(names, values, strict=True))) + b"\n")
        count += 1
    return count


def with_raw_json(row: tuple[object, ...], nested: list[int]) -> list[object]:
    """Embed stored JSON text as it is, and decimals with their digits."""
    values = [*row]
    for index in nested:
        text = values[index]
        if isinstance(text, Decimal):
            text = write_decimal(text)
        if isinstance(text, str):
            values[index] = msgspec.Raw(text.encode())
    return values
