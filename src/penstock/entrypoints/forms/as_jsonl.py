"""Rows as JSON lines: one document a line, exactly as stored."""

from collections.abc import Iterable
from typing import IO

import msgspec

from penstock.domain.dataset import Dataset, FieldType


def write_jsonl(
    dataset: Dataset, rows: Iterable[tuple[object, ...]], file: IO[bytes]
) -> int:
    """Write rows as JSON lines; return how many."""
    names = [field.name for field in dataset.fields]
    nested = [
        place
        for place, field in enumerate(dataset.fields)
        if field.type is FieldType.JSON
    ]
    encode = msgspec.json.Encoder().encode
    written = 0
    for row in rows:
        values = with_raw_json(row, nested) if nested else row
        file.write(encode(dict(zip(names, values, strict=True))) + b"\n")
        written += 1
    return written


def with_raw_json(row: tuple[object, ...], nested: list[int]) -> list[object]:
    """Set stored JSON in as it is: it is text already."""
    values = [*row]
    for place in nested:
        if isinstance(text := values[place], str):
            values[place] = msgspec.Raw(text.encode())
    return values
