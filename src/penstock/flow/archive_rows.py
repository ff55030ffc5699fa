"""Archive rows that were not seen in their source for long, in small batches."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.domain.archiving import ArchiveCut, find_cut, judge_archive
from penstock.domain.dataset import Dataset
from penstock.domain.pages import Key
from penstock.errors import Conflict
from penstock.ports import Archive, Jobs

# rows that are archived in one transaction, while others wait for its locks
ROW_BATCH = 500
# how long a task works, and then lets others work
SHIFT = timedelta(seconds=3)
BREAK = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """What is archived of a dataset."""

    rows: int
    # which rows; None: none was missing for so long
    cut: ArchiveCut | None
    # why rows stay that were missing for so long
    note: str | None = None


class ArchiveRows:
    def __init__(
        self,
        *,
        archive: Archive,
        jobs: Jobs,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._archive = archive
        self._jobs = jobs
        self._monotonic = monotonic

    def preview(self, dataset: Dataset) -> ArchiveReport:
        """Return what would be archived now."""
        cut = self._cut(dataset)
        if cut is None:
            return ArchiveReport(rows=0, cut=None)
        rows = sum(map(len, self._batches(dataset, cut)))
        missed = self._archive.count(dataset, cut, missing=rows)
        note = judge_archive(missed, dataset)
        return ArchiveReport(rows=0 if note else rows, cut=cut, note=note)

    def __call__(self, dataset: Dataset) -> ArchiveReport:
        """Archive everything that may be; return what it was."""
        judged = self.preview(dataset)
        if judged.cut is None or judged.note is not None:
            return judged
        rows = sum(self._move(dataset, judged.cut))
        return ArchiveReport(rows=rows, cut=judged.cut)

    def run_shift(self, dataset: Dataset) -> timedelta | None:
        """Archive for a few seconds; return when to continue, if there is more.

        Raises `Conflict` if rows that were missing for so long have to stay.
        """
        began = self._monotonic()
        judged = self.preview(dataset)
        if judged.cut is None:
            return None
        if judged.note is not None:
            raise Conflict(f"dataset {dataset.name}: {judged.note}")
        # all rows were read to judge them: worth it only for as long a move
        took = self._monotonic() - began
        end = self._monotonic() + max(SHIFT.total_seconds(), took)
        for moved in self._move(dataset, judged.cut):
            # a shift that has moved nothing would be repeated for ever
            if moved and self._monotonic() > end:
                return BREAK
        return None

    def _cut(self, dataset: Dataset) -> ArchiveCut | None:
        if dataset.archive is None:
            return None
        sightings = self._archive.sightings(dataset)
        return find_cut(sightings, after=dataset.archive.after, now=self._jobs.now())

    def _move(self, dataset: Dataset, cut: ArchiveCut) -> Iterator[int]:
        for keys in self._batches(dataset, cut):
            yield self._archive.move(dataset, cut, keys)
        self._archive.forget(dataset, cut)

    def _batches(self, dataset: Dataset, cut: ArchiveCut) -> Iterator[Sequence[Key]]:
        after = None
        while keys := self._archive.expired(dataset, cut, after=after, limit=ROW_BATCH):
            yield keys
            after = keys[-1]
