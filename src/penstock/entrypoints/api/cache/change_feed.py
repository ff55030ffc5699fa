"""Reads of the change feed, shared by all clients that wait for the same changes."""

from collections.abc import Sequence
from functools import partial

from penstock.domain.dataset import Dataset
from penstock.entrypoints.api.cache.dataset_versions import DatasetVersionPoller
from penstock.entrypoints.api.concurrency.lanes import Lanes
from penstock.entrypoints.api.concurrency.single_flight import SingleFlight
from penstock.entrypoints.api.concurrency.thread_shares import Lane
from penstock.ports.record_access import Change, RecordReader


class ChangeFeedReader:
    """A change wakes all followers of a dataset at once, and most read the same."""

    def __init__(
        self, reads: RecordReader, versions: DatasetVersionPoller, lanes: Lanes
    ) -> None:
        self._reads = reads
        self._versions = versions
        self._lanes = lanes
        self._in_flight: SingleFlight[Sequence[Change]] = SingleFlight()

    async def read(
        self, dataset: Dataset, *, after: int, limit: int
    ) -> Sequence[Change]:
        """Return the changes after an entry, with all that this process knows of."""
        # a read that started before a change was known may miss it
        state = self._versions.cached(dataset.name)
        version = (state.history, state.position)
        read = partial(self._reads.changes, dataset, after=after, limit=limit)
        return await self._in_flight.run(
            partial(self._lanes.run, Lane.READS, read, dataset=dataset.name),
            key=(dataset.name, after, limit, version),
        )
