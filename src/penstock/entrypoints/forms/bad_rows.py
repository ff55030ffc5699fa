"""Bad rows as a table: where each stands, and what is wrong with it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

from penstock.domain.dataset import Dataset
from penstock.domain.page import Rejection
from penstock.domain.parts import Slice
from penstock.domain.text import key_as_text
from penstock.entrypoints.forms.as_csv import line, protected, quoted
from penstock.flow.sorting import sorted_on_disk
from penstock.ports import Quarantined, Source

COLUMNS = ("file", "line", "offset", "field", "value", "reason", "detail", "key")
AT_ONCE = 500
# lines of some hundred bytes
SORTED_AT_ONCE = 50_000
LONGEST_VALUE = 200
NUL, REPLACED = "\0", "\N{REPLACEMENT CHARACTER}"


def page_by_page(
    read: Callable[[int, int], Sequence[Quarantined]],
) -> Iterator[Quarantined]:
    """Yield all rows of a store that gives some, after an id and up to a number."""
    after = 0
    while some := read(after, AT_ONCE):
        yield from some
        after = some[-1].id


def write_bad_rows(
    dataset: Dataset, source: Source, rows: Iterable[Quarantined], file: IO[bytes]
) -> int:
    """Write bad rows as CSV that is safe in a spreadsheet; return how many."""
    written = -1
    for each in lines_of(dataset, source, rows):
        file.write(each)
        written += 1
    return written


def lines_of(
    dataset: Dataset, source: Source, rows: Iterable[Quarantined], *, raw: bool = False
) -> Iterator[bytes]:
    """Yield a header and bad rows; unless raw, a spreadsheet runs nothing of them.

    Those of files come by file and line, in whatever order they were found.
    """
    yield line(COLUMNS)
    as_cell = quoted if raw else protected
    told = (
        (*order_of(row), line(cells_of(dataset, source, row, as_cell))) for row in rows
    )
    for *_, each in sorted_on_disk(told, run=SORTED_AT_ONCE):
        yield each


def order_of(row: Quarantined) -> tuple[str, int, int]:
    stands = place_of(row)
    return str(stands["file"] or ""), int(stands["offset"] or 0), row.id


def cells_of(
    dataset: Dataset, source: Source, row: Quarantined, as_cell: Callable[[str], str]
) -> Iterator[str]:
    bad = row.rejection
    stands = place_of(row)
    told = (
        *(None if each is None else str(each) for each in stands.values()),
        bad.field,
        value_of(dataset, source, bad),
        bad.reason.value,
        bad.detail,
        None if bad.key is None else key_as_text(bad.key),
    )
    return ("" if cell is None else as_cell(cell) for cell in told)


def place_of(row: Quarantined) -> dict[str, str | int | None]:
    """Say where a row of a file stands; a provider's record stands nowhere."""
    place = row.rejection.place
    if place is None:
        return {"file": None, "line": None, "offset": None}
    part = Slice.of_key(row.shard_key)
    return {"file": part.file, "line": place.line, "offset": place.offset}


def value_of(dataset: Dataset, source: Source, bad: Rejection) -> str | None:
    """Return what stands in the field; all of a row that has no fields."""
    places = {each.name: dataset.place[each.path] for each in dataset.columns}
    row = source.read(bad.raw)
    if bad.field is None or row.unreadable is not None:
        return cut_short(bad.raw.decode("utf-8", errors="replace").rstrip("\r\n"))
    # a field that is no longer declared is not read either
    value = row.values[places[bad.field]] if bad.field in places else None
    if value is None or isinstance(value, str):
        return None if value is None else cut_short(value)
    return cut_short(json.dumps(value, ensure_ascii=False, default=str))


def cut_short(text: str) -> str:
    shown = text.replace(NUL, REPLACED)
    if len(shown) <= LONGEST_VALUE:
        return shown
    return f"{shown[: LONGEST_VALUE - 1]}…"
