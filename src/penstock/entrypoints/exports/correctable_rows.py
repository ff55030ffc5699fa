"""Rejected rows of a file as a file of the same format, to be corrected."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from penstock.domain.dataset import Dataset
from penstock.domain.pages import UNREADABLE_REASONS, Reason, Rejection
from penstock.domain.sharding.parts import Slice
from penstock.entrypoints.exports.rejected_rows import (
    PAGE_ROWS,
    SORT_RUN_LINES,
    read_all,
)
from penstock.errors import Conflict, Misconfigured, Rejected, SourceUnavailable
from penstock.flow.external_sort import sorted_on_disk
from penstock.ports import QuarantinedRow
from penstock.ports.file_format import FileFormat, FileFormats

# only the first bytes of these may be stored
CUT_REASONS = frozenset({Reason.TOO_LONG, Reason.UNCLOSED_QUOTE})

# in memory: in a chunk of a file, unreadable rows have lower ids than the others
MAX_PAGES = 4

# takes the last id and a limit
ReadRows: TypeAlias = Callable[[int, int], Sequence[QuarantinedRow]]


def correctable_lines(
    dataset: Dataset, formats: FileFormats, read: ReadRows, *, file: str | None = None
) -> Iterator[bytes]:
    """Yield the head of the file, and its open rejected rows in their order.

    Raises `Conflict` before the first line if there are none, if they are of several
    files and none is chosen, or if the file is gone.
    """
    files: dict[str, Slice] = {}

    def sort_keys() -> Iterator[tuple[str, int, int]]:
        for row in filter(is_correctable, read_all(read)):
            part = Slice.of_key(row.shard_key)
            if file in {None, part.file}:
                files.setdefault(part.file, part)
                yield part.file, offset_of(row), row.id

    keys = sorted_on_disk(sort_keys(), run=SORT_RUN_LINES)
    # reads all of them
    first = next(keys, None)
    if first is None:
        raise Conflict("there are no rows to correct; errors.csv lists all bad rows")
    if len(files) > 1:
        names = ", ".join([*files][:3])
        raise Conflict(
            f"there are rows to correct of {len(files)} files; choose one with ?file=, "
            f"such as {names}"
        )
    file_format = read_format(dataset, formats, files[first[0]])
    yield file_format.head
    for row in read_by_id(read, (row_id for *_, row_id in chain([first], keys))):
        yield format_row(file_format, row.rejection)


def read_by_id(read: ReadRows, ids: Iterable[int]) -> Iterator[QuarantinedRow]:
    """Yield rows by id, in any order, from a few pages of rows with consecutive ids."""
    pages: deque[dict[int, QuarantinedRow]] = deque(maxlen=MAX_PAGES)
    for row_id in ids:
        page = next((page for page in pages if row_id in page), None)
        if page is None:
            page = {row.id: row for row in read(row_id - 1, PAGE_ROWS)}
            pages.append(page)
        # retention may have removed it
        if row_id in page:
            yield page[row_id]


def is_correctable(row: QuarantinedRow) -> bool:
    """Return whether a row is open, of a file, and stored as a whole."""
    rejection = row.rejection
    return (
        row.resolved is None
        and rejection.place is not None
        and rejection.reason not in CUT_REASONS
    )


def offset_of(row: QuarantinedRow) -> int:
    return 0 if row.rejection.place is None else row.rejection.place.offset


def read_format(dataset: Dataset, formats: FileFormats, part: Slice) -> FileFormat:
    try:
        return formats.read(dataset, part)
    except (Misconfigured, Rejected, SourceUnavailable) as error:
        raise Conflict(
            f"{part.file} is no longer as it was imported, so its format is not known "
            "(an uploaded file is kept for a day); errors.csv lists its bad rows"
        ) from error


def format_row(file_format: FileFormat, rejection: Rejection) -> bytes:
    # if no value could be read, its bytes are stored, else its values
    if rejection.reason in UNREADABLE_REASONS:
        return file_format.end_row(rejection.raw)
    values: Mapping[str, str] = json.loads(rejection.raw)
    try:
        return file_format.write_row(values)
    except KeyError as error:
        raise Conflict(f"the file has no column {error} any more") from error
