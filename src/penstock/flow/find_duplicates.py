"""Find the rows of files that lost to another row of their key, by reading them again.

Which of two rows wins depends only on their positions in the files, not on the order in
which shards were imported, nor on what was stored since.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.domain.dataset import Dataset
from penstock.domain.formats import format_key, time_to_number
from penstock.domain.jobs import ImportId
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.mapping.page_mapper import MappedRows, separate_rows
from penstock.domain.pages import Page, Position
from penstock.domain.sharding.shard import Shard, never_outside, parse_shard_key
from penstock.errors import Interrupted
from penstock.flow.external_sort import sorted_on_disk
from penstock.ports import Imports, Records, Source, StopSignal

# compared before the position; empty where no version is declared
Version: TypeAlias = tuple[object, ...]
UNKNOWN_VERSION: Version = (False,)
# key, version, file number, offset, line: of the rows of a key the greatest wins
RankedRow: TypeAlias = tuple[str, Version, int, int, int]
# file number, offset, line and key; file number and line of the winner
LosingRow: TypeAlias = tuple[int, int, int, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A row that lost to another row of its key, and the position of both."""

    file: str
    line: int
    offset: int
    key: str
    winner_file: str
    winner_line: int


class FindDuplicates:
    def __init__(self, *, imports: Imports, records: Records) -> None:
        self._imports = imports
        self._records = records

    def __call__(
        self, dataset: Dataset, source: Source, import_id: ImportId, *, halt: StopSignal
    ) -> Iterator[Duplicate]:
        """Yield the duplicates among the rows of an import by file and line.

        Reads the files again, with bounded memory: large inputs are sorted on disk.
        Raises `Interrupted` when stopped.
        """
        shards = [
            parse_shard_key(dataset.axes, key)
            for key in self._imports.shard_keys(import_id)
        ]
        files = {shard.slice.number: shard.slice.file for shard in shards}
        rows = self._read_rows(dataset, source, shards, halt)
        rows = sorted_on_disk(rows, reverse=True)
        for number, offset, line, key, winner_number, winner_line in sorted_on_disk(
            losing_rows(rows)
        ):
            yield Duplicate(
                file=files[number],
                line=line,
                offset=offset,
                key=key,
                winner_file=files[winner_number],
                winner_line=winner_line,
            )

    def _read_rows(
        self,
        dataset: Dataset,
        source: Source,
        shards: Iterable[Shard],
        halt: StopSignal,
    ) -> Iterator[RankedRow]:
        mapper = Mapper(dataset)
        for shard in shards:
            number = shard.slice.number
            for page in read_pages(source, shard, halt):
                good, _ = separate_rows(
                    *(mapper, page, never_outside, self._records.unknown),
                    shard=shard.key,
                )
                yield from ranked_rows(dataset, number, good)


def ranked_rows(dataset: Dataset, number: int, good: MappedRows) -> Iterator[RankedRow]:
    keys = map(format_key, good.records.keys)
    rows = good.rows(range(len(good.records)))
    for key, version, row in zip(keys, row_versions(dataset, good), rows, strict=True):
        if row.place is None:
            raise TypeError("a row of a file must have a location")
        yield key, version, number, row.place.offset, row.place.line


def row_versions(dataset: Dataset, good: MappedRows) -> list[Version]:
    if dataset.version is None:
        return [()] * len(good.records)
    if not good.records:
        return []
    times = map(time_to_number, good.records.columns[dataset.column(dataset.version)])
    # an unknown version is older than all others
    return [UNKNOWN_VERSION if time is None else (True, time) for time in times]


def losing_rows(rows: Iterable[RankedRow]) -> Iterator[LosingRow]:
    """Yield all rows but the first of each key; the input is in descending order."""
    winner: RankedRow | None = None
    for row in rows:
        if winner is None or row[0] != winner[0]:
            winner = row
            continue
        key, _, number, offset, line = row
        yield number, offset, line, key, winner[2], winner[4]


def read_pages(source: Source, shard: Shard, halt: StopSignal) -> Iterator[Page]:
    position: Position | None = None
    while True:
        if halt.is_set():
            raise Interrupted("stopped while the files were read for their duplicates")
        page = source.fetch(shard, position, since=None)
        if not isinstance(page, Page):
            raise TypeError("a file source must return pages")
        yield page
        if page.next is None:
            return
        position = page.next
