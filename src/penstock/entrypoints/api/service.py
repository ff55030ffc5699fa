"""Everything that an endpoint can use, built once for a process."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

from penstock import __version__
from penstock.domain.dataset import Dataset
from penstock.domain.lanes import Lane
from penstock.entrypoints.api.answers import Answers
from penstock.entrypoints.api.colleagues import Alone
from penstock.entrypoints.api.errands import Errands
from penstock.entrypoints.api.lanes import Lanes
from penstock.entrypoints.api.looks import Looks
from penstock.entrypoints.api.metrics import Metrics
from penstock.entrypoints.api.progress import Gauges
from penstock.entrypoints.api.rates import Rates
from penstock.entrypoints.api.watch import Watch
from penstock.flow.edit_records import EditRecords
from penstock.flow.search_records import SearchRecords
from penstock.flow.serve_records import ServeRecords
from penstock.ports import Served, Verifier
from penstock.wiring import Penstock

Outcome = TypeVar("Outcome")

# the lane of the request that is answered
LANE: ContextVar[Lane] = ContextVar("lane", default=Lane.READS)


@dataclass(kw_only=True)
class Api:
    penstock: Penstock
    served: Served
    records: ServeRecords
    search: SearchRecords
    edits: EditRecords
    answers: Answers
    watch: Watch
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

    def dataset(self, name: str) -> Dataset:
        return self.records.dataset(name)

    def edition(self, dataset: Dataset) -> str:
        """Tell apart what another declaration of a dataset would answer."""
        known = self._editions.get(dataset.name)
        if known is None:
            fields = [(each.name, str(each.type)) for each in dataset.fields]
            told = repr([__version__, fields, dataset.key, dataset.filter])
            known = blake2b(told.encode(), digest_size=8).hexdigest()
            self._editions[dataset.name] = known
        return known

    def stop(self) -> None:
        self.is_stopping = True

    def close(self) -> None:
        """Let nobody wait for news any more."""
        self.is_closing = self.watch.is_closing = True

    async def in_thread(self, work: Callable[[], Outcome]) -> Outcome:
        """Do what waits for a store without making others wait.

        A thread of the request's own lane does it; see `Lanes.run` for what is raised.
        """
        return await self.lanes.run(LANE.get(), work)
