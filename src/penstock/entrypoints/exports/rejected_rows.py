"""Rejected rows as CSV: the position of each, and what is wrong with it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

from penstock.domain.dataset import Dataset
from penstock.domain.formats import format_key
from penstock.domain.pages import Rejection
from penstock.domain.sharding.parts import Slice
from penstock.entrypoints.exports.csv import csv_line, quote, quote_safely
from penstock.flow.external_sort import sorted_on_disk
from penstock.ports import QuarantinedRow, Source

COLUMNS = ("file", "line", "offset", "field", "value", "reason", "detail", "key")
PAGE_ROWS = 500
# lines sorted in memory, of some hundred bytes each
SORT_RUN_LINES = 50_000
MAX_VALUE_LENGTH = 200
NUL, REPLACEMENT = "\0", "\N{REPLACEMENT CHARACTER}"


def read_all(
    read: Callable[[int, int], Sequence[QuarantinedRow]],
) -> Iterator[QuarantinedRow]:
    """Yield all rows of a store; `read` takes the last id and a limit."""
    after = 0
    while page := read(after, PAGE_ROWS):
        yield from page
        after = page[-1].id


def write_bad_rows(
    dataset: Dataset, source: Source, rows: Iterable[QuarantinedRow], file: IO[bytes]
) -> int:
    """Write rejected rows as CSV that is safe in a spreadsheet; return how many."""
    # without the header
    count = -1
    for text in csv_lines(dataset, source, rows):
        file.write(text)
        count += 1
    return count


def csv_lines(
    dataset: Dataset,
    source: Source,
    rows: Iterable[QuarantinedRow],
    *,
    raw: bool = False,
) -> Iterator[bytes]:
    """Yield a header and the rejected rows, those of files sorted by file and line.

    Unless raw, text that a spreadsheet would run is escaped.
    """
    yield csv_line(COLUMNS)
    quote_cell = quote if raw else quote_safely
    keyed = (
        (*sort_key(row), csv_line(format_cells(dataset, source, row, quote_cell)))
        for row in rows
    )
    for *_, text in sorted_on_disk(keyed, run=SORT_RUN_LINES):
        yield text


def sort_key(row: QuarantinedRow) -> tuple[str, int, int]:
    position = position_of(row)
    return str(position["file"] or ""), int(position["offset"] or 0), row.id


def format_cells(
    dataset: Dataset,
    source: Source,
    row: QuarantinedRow,
    quote_cell: Callable[[str], str],
) -> Iterator[str]:
    rejection = row.rejection
    position = position_of(row)
    cells = (
        *(None if value is None else str(value) for value in position.values()),
        rejection.field,
        rejected_value(dataset, source, rejection),
        rejection.reason.value,
        rejection.detail,
        None if rejection.key is None else format_key(rejection.key),
    )
    return ("" if cell is None else quote_cell(cell) for cell in cells)


def position_of(row: QuarantinedRow) -> dict[str, str | int | None]:
    """Return the position of a row in its file; a provider's record has none."""
    position = row.rejection.place
    if position is None:
        return {"file": None, "line": None, "offset": None}
    part = Slice.of_key(row.shard_key)
    return {"file": part.file, "line": position.line, "offset": position.offset}


def rejected_value(
    dataset: Dataset, source: Source, rejection: Rejection
) -> str | None:
    """Return the value of the rejected field; all of a row that could not be read."""
    indexes = {
        column.name: dataset.path_index[column.path] for column in dataset.read_columns
    }
    row = source.read(rejection.raw)
    if rejection.field is None or row.unreadable is not None:
        return shorten(rejection.raw.decode("utf-8", errors="replace").rstrip("\r\n"))
    # a field that is no longer declared has no column
    value = row.values[indexes[rejection.field]] if rejection.field in indexes else None
    if value is None or isinstance(value, str):
        return None if value is None else shorten(value)
    return shorten(json.dumps(value, ensure_ascii=False, default=str))


def shorten(text: str) -> str:
    shown = text.replace(NUL, REPLACEMENT)
    if len(shown) <= MAX_VALUE_LENGTH:
        return shown
    return f"{shown[: MAX_VALUE_LENGTH - 1]}…"
