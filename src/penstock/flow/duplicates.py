"""Find the rows of files that lost to another row of their key, by reading them again.

Which of two rows wins is decided by where they stand, so the files alone tell it: in
whatever order shards were worked, and whatever was stored since.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.domain.dataset import Dataset
from penstock.domain.job import ImportId
from penstock.domain.map_page import Good, sort_page
from penstock.domain.mapping import Mapper
from penstock.domain.page import Page, Position
from penstock.domain.shard import Shard, never_outside, parse_key
from penstock.domain.text import key_as_text
from penstock.domain.times import plain_time
from penstock.errors import Interrupted
from penstock.flow.sorting import sorted_on_disk
from penstock.ports import Halt, Imports, Records, Source

# what a row of a newer version wins by; nothing where no version is declared
Version: TypeAlias = tuple[object, ...]
UNKNOWN: Version = (False,)
# key, version, number of the file, offset, line: of the rows of a key the greatest wins
Come: TypeAlias = tuple[str, Version, int, int, int]
# number of the file, offset, line and key; file and line of the row that won
Lost: TypeAlias = tuple[int, int, int, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A row that another one of the same key has replaced, and where that stands."""

    file: str
    line: int
    offset: int
    key: str
    kept_file: str
    kept_line: int


class FindDuplicates:
    def __init__(self, *, imports: Imports, records: Records) -> None:
        self._imports = imports
        self._records = records

    def __call__(
        self, dataset: Dataset, source: Source, import_id: ImportId, *, halt: Halt
    ) -> Iterator[Duplicate]:
        """Yield the duplicates among the rows of an import by file and line.

        The files are read once more. Memory does not grow with them: what it cannot
        hold is sorted on disk. Raises `Interrupted` when asked to stop.
        """
        shards = [
            parse_key(dataset.axes, key) for key in self._imports.shard_keys(import_id)
        ]
        files = {shard.slice.number: shard.slice.file for shard in shards}
        come = self._read(dataset, source, shards, halt)
        come = sorted_on_disk(come, reverse=True)
        for number, offset, line, key, kept_in, kept_line in sorted_on_disk(
            losers(come)
        ):
            yield Duplicate(
                file=files[number],
                line=line,
                offset=offset,
                key=key,
                kept_file=files[kept_in],
                kept_line=kept_line,
            )

    def _read(
        self, dataset: Dataset, source: Source, shards: Iterable[Shard], halt: Halt
    ) -> Iterator[Come]:
        mapper = Mapper(dataset)
        for shard in shards:
            number = shard.slice.number
            for page in pages_of(source, shard, halt):
                good, _ = sort_page(
                    *(mapper, page, never_outside, self._records.unknown),
                    shard=shard.key,
                )
                yield from come_from(dataset, number, good)


def come_from(dataset: Dataset, number: int, good: Good) -> Iterator[Come]:
    keys = map(key_as_text, good.records.keys)
    rows = good.rows(range(len(good.records)))
    for key, version, row in zip(keys, versions(dataset, good), rows, strict=True):
        if row.place is None:
            raise TypeError("a row of a file has a place")
        yield key, version, number, row.place.offset, row.place.line


def versions(dataset: Dataset, good: Good) -> list[Version]:
    if dataset.version is None:
        return [()] * len(good.records)
    if not good.records:
        return []
    found = map(plain_time, good.records.columns[dataset.column(dataset.version)])
    # one that is not known is older than all
    return [UNKNOWN if each is None else (True, each) for each in found]


def losers(come: Iterable[Come]) -> Iterator[Lost]:
    """Yield all but the greatest of each key; they come in falling order."""
    kept: Come | None = None
    for each in come:
        if kept is None or each[0] != kept[0]:
            kept = each
            continue
        key, _, number, offset, line = each
        yield number, offset, line, key, kept[2], kept[4]


def pages_of(source: Source, shard: Shard, halt: Halt) -> Iterator[Page]:
    position: Position | None = None
    while True:
        if halt.is_set():
            raise Interrupted("stopped while the files were read for their duplicates")
        page = source.fetch(shard, position, since=None)
        if not isinstance(page, Page):
            raise TypeError("a file has no other address, and is read at once")
        yield page
        if page.next is None:
            return
        position = page.next
