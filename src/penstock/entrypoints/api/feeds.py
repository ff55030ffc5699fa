"""One read of what changed for all who wait for the same."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from penstock.domain.dataset import Dataset
from penstock.domain.lanes import Lane
from penstock.entrypoints.api.lanes import Lanes
from penstock.entrypoints.api.looks import heard
from penstock.entrypoints.api.watch import Watch
from penstock.ports.serving import Change, Reads

Reading: TypeAlias = asyncio.Task[Sequence[Change]]


class Feeds:
    """A change wakes all who follow a dataset at once, and most want the same of it."""

    def __init__(self, reads: Reads, watch: Watch, lanes: Lanes) -> None:
        self._reads = reads
        self._watch = watch
        self._lanes = lanes
        self._under_way: dict[object, Reading] = {}

    async def read(
        self, dataset: Dataset, *, after: int, limit: int
    ) -> Sequence[Change]:
        """Return what changed after an entry, no less than is known here."""
        # a read that began before a change was known may be without it
        state = self._watch.known(dataset.name)
        known = (state.history, state.position)
        name = (dataset.name, after, limit, known)
        reading = self._under_way.get(name)
        if reading is None:
            find = partial(self._reads.changes, dataset, after=after, limit=limit)
            reading = asyncio.ensure_future(
                self._lanes.run(Lane.READS, find, dataset=dataset.name)
            )
            self._under_way[name] = reading
            reading.add_done_callback(partial(self._end, name))
        return await asyncio.shield(reading)

    def _end(self, name: object, done: Reading) -> None:
        del self._under_way[name]
        heard(done)
