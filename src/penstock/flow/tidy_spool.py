"""Remove files of the spool that no import reads any more."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, ImportStatus
from penstock.domain.parts import Slice
from penstock.domain.source import CsvSource
from penstock.ports import Stores, Uploads

# what is younger may belong to an import that is only about to be stored
KEPT = timedelta(days=1)
# so long a failed import can be taken up again with its own files
KEPT_FOR_RETRY = timedelta(days=30)
AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TidySpool:
    datasets: Mapping[str, Dataset]
    stores: Stores
    uploads: Uploads

    def __call__(self) -> None:
        for dataset in self.datasets.values():
            if isinstance(dataset.source, CsvSource):
                needed = partial(self._needed, dataset)
                self.uploads.remove_idle(dataset, age=KEPT, needed=needed)

    def _needed(self, dataset: Dataset) -> Iterator[str]:
        """Yield the names of files that an import may still read."""
        for status in (ImportStatus.PLANNING, ImportStatus.RUNNING):
            for known in self._all(dataset, status):
                yield from self._files(known)
        oldest = self.stores.jobs.now() - KEPT_FOR_RETRY
        for known in self._all(dataset, ImportStatus.FAILED):
            if known.finished_at is not None and known.finished_at < oldest:
                return
            yield from self._files(known)

    def _all(self, dataset: Dataset, status: ImportStatus) -> Iterator[Import]:
        before = None
        while some := self.stores.imports.recent(
            dataset=dataset.name, status=status, before=before, limit=AT_ONCE
        ):
            for known, _ in some:
                yield known
                before = known.id

    def _files(self, known: Import) -> Iterator[str]:
        for key in self.stores.imports.shard_keys(known.id):
            try:
                yield Slice.of_key(key).file
            except ValueError:
                # the dataset was no dataset of files then
                return
