"""Remove files of the spool that no import reads any more."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Import, ImportStatus
from penstock.domain.sharding.parts import Slice
from penstock.domain.source import CsvSource
from penstock.ports import Stores, Uploads

# a younger file may belong to an import that is about to be stored
MIN_FILE_AGE = timedelta(days=1)
# how long a failed import can be retried with its own files
FAILED_IMPORT_RETENTION = timedelta(days=30)
BATCH_SIZE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSpool:
    datasets: Mapping[str, Dataset]
    stores: Stores
    uploads: Uploads

    def __call__(self) -> None:
        for dataset in self.datasets.values():
            if isinstance(dataset.source, CsvSource):
                needed = partial(self._needed, dataset)
                self.uploads.remove_idle(dataset, age=MIN_FILE_AGE, needed=needed)

    def _needed(self, dataset: Dataset) -> Iterator[str]:
        """Yield the names of files that an import may still read."""
        for status in (ImportStatus.PLANNING, ImportStatus.RUNNING):
            for import_ in self._imports_in(dataset, status):
                yield from self._files(import_)
        oldest = self.stores.jobs.now() - FAILED_IMPORT_RETENTION
        for import_ in self._imports_in(dataset, ImportStatus.FAILED):
            if import_.finished_at is not None and import_.finished_at < oldest:
                return
            yield from self._files(import_)

    def _imports_in(self, dataset: Dataset, status: ImportStatus) -> Iterator[Import]:
        before = None
        while batch := self.stores.imports.recent(
            dataset=dataset.name, status=status, before=before, limit=BATCH_SIZE
        ):
            for import_, _ in batch:
                yield import_
                before = import_.id

    def _files(self, import_: Import) -> Iterator[str]:
        for key in self.stores.imports.shard_keys(import_.id):
            try:
                yield Slice.of_key(key).file
            except ValueError:
                # the dataset had another type of source then
                return
