"""Cached row counts: exact for small datasets, estimated for large ones."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.domain.dataset import Dataset
from penstock.domain.history import HistoryPosition
from penstock.domain.search.query import Query
from penstock.errors import StoreTimeout
from penstock.ports.record_access import (
    Count,
    CountKind,
    DatasetVersion,
    RecordReader,
    note_observed,
    observing,
)

# up to so many rows are counted exactly, which takes the database some milliseconds
MAX_EXACT_COUNT = 10_000
# seconds after which the planner's estimate may be better though nothing changed
MAX_AGE = 60.0


@dataclass(frozen=True, slots=True)
class CachedCount:
    count: Count
    position: HistoryPosition
    at: float


class RowCounts:
    """Counts a dataset again only after it has changed; thread-safe."""

    def __init__(
        self, reads: RecordReader, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reads = reads
        self._clock = clock
        self._cached: dict[str, CachedCount] = {}

    def all(self, datasets: Mapping[str, Dataset]) -> Mapping[str, int]:
        """Return the numbers of rows of the datasets that have a table."""
        versions = self._reads.dataset_versions()
        counts = {
            name: self.of(dataset, versions[name])
            for name, dataset in datasets.items()
            if name in versions
        }
        return {name: count.value for name, count in counts.items() if count}

    def of(self, dataset: Dataset, state: DatasetVersion) -> Count | None:
        """Return the number of rows at a version of the dataset.

        None if the count times out: another session may have locked the whole table.
        """
        cached, now = self._cached.get(dataset.name), self._clock()
        if (
            cached is None
            or cached.position != state.position
            or now - cached.at >= MAX_AGE
        ):
            try:
                with observing() as observed:
                    cached = CachedCount(self._count(dataset), state.position, now)
            except StoreTimeout:
                return None
            if {version.position for version in observed} <= {state.position}:
                self._cached[dataset.name] = cached
            for version in observed:
                note_observed(version)
        return cached.count

    def _count(self, dataset: Dataset) -> Count:
        all_rows = Query(dataset=dataset, fields=dataset.fields, limit=1)
        count = self._reads.count(all_rows, CountKind.PLANNED)
        if count.kind is CountKind.PLANNED and count.value <= MAX_EXACT_COUNT:
            return self._reads.count(all_rows, CountKind.EXACT)
        return count
