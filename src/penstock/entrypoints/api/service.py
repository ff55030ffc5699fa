"""Everything that an endpoint can use, built once for a process."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.domain.dataset import Dataset
from penstock.domain.lanes import Lane
from penstock.domain.queries.cursor import Seal
from penstock.entrypoints.api.answers import Answers, record_tag
from penstock.entrypoints.api.colleagues import Alone
from penstock.entrypoints.api.declared import edition_of
from penstock.entrypoints.api.errands import Errands
from penstock.entrypoints.api.feeds import Feeds
from penstock.entrypoints.api.lanes import Lanes
from penstock.entrypoints.api.looks import Looks, heard
from penstock.entrypoints.api.metrics import Metrics
from penstock.entrypoints.api.progress import Gauges
from penstock.entrypoints.api.rates import Rates
from penstock.entrypoints.api.sizes import Sizes
from penstock.entrypoints.api.troubles import Troubles
from penstock.entrypoints.api.watch import Watch
from penstock.flow.edit_records import EditRecords
from penstock.flow.search_records import SearchRecords
from penstock.flow.serve_records import ServeRecords
from penstock.ports.access import Verifier
from penstock.ports.serving import Served
from penstock.wiring import Penstock

Outcome = TypeVar("Outcome")

# the lane of the request that is answered
LANE: ContextVar[Lane] = ContextVar("lane", default=Lane.READS)
# the dataset that it reads or changes
DATASET: ContextVar[str | None] = ContextVar("dataset", default=None)


@dataclass(kw_only=True)
class Api:
    penstock: Penstock
    served: Served
    records: ServeRecords
    search: SearchRecords
    edits: EditRecords
    answers: Answers
    watch: Watch
    feeds: Feeds
    sizes: Sizes
    troubles: Troubles
    lanes: Lanes
    rates: Rates
    # None where everybody here may ask
    verifier: Verifier | None
    metrics: Metrics
    colleagues: Alone
    errands: Errands
    gauges: Gauges
    looks: Looks = field(default_factory=Looks)
    # whoever sends requests here should send them elsewhere
    is_stopping: bool = False
    # whoever waits for news is to be sent away
    is_closing: bool = False
    _editions: dict[str, str] = field(default_factory=dict)
    _knows_seal: bool = False
    _asking_for_seal: asyncio.Task[Seal] | None = None

    def dataset(self, name: str) -> Dataset:
        return self.records.dataset(name)

    def edition(self, dataset: Dataset) -> str:
        """Tell apart what another declaration of a dataset would answer."""
        known = self._editions.get(dataset.name)
        if known is None:
            known = self._editions[dataset.name] = edition_of(dataset)
        return known

    def tag(self, dataset: Dataset, version: str) -> str:
        """Return the ETag of a record that is told whole."""
        return record_tag(version, self.edition(dataset))

    def stop(self) -> None:
        self.is_stopping = True

    def close(self) -> None:
        """Let nobody wait for news any more."""
        self.is_closing = True
        self.watch.close()

    async def know_seal(self) -> None:
        """See to it that the seal is known: to ask for it would keep all waiting."""
        if self._knows_seal:
            return
        if self._asking_for_seal is None or self._asking_for_seal.done():
            asking = asyncio.ensure_future(self.in_thread(lambda: self.records.seal))
            asking.add_done_callback(heard)
            self._asking_for_seal = asking
        await asyncio.shield(self._asking_for_seal)
        self._knows_seal = True

    async def in_thread(self, work: Callable[[], Outcome]) -> Outcome:
        """Do what waits for a store without making others wait.

        A thread of the request's own lane does it; see `Lanes.run` for what is raised.
        """
        return await self.lanes.run(LANE.get(), work, dataset=DATASET.get())
