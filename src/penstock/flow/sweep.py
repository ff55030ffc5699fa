"""Tidy up behind workers: dead letters, imports nobody closed, indexes to build."""

import time
from collections.abc import Callable, Mapping

from penstock.domain.dataset import Dataset
from penstock.domain.events import WorkerFailed
from penstock.errors import StoreRefused, StoreUnavailable
from penstock.flow.finish import Finish
from penstock.ports import Declarations, Emit, Stores

# after so many seconds
TEND_AGAIN = 60.0
TIDY_AGAIN = 3600.0


class Sweep:
    def __init__(
        self,
        *,
        datasets: Mapping[str, Dataset],
        declarations: Declarations,
        stores: Stores,
        finish: Finish,
        emit: Emit,
        tidy_spool: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._datasets = datasets
        self._declarations = declarations
        self._schema = stores.schema
        self._jobs = stores.jobs
        self._imports = stores.imports
        self._finish = finish
        self._tidy_spool = tidy_spool
        self._emit = emit
        self._monotonic = monotonic
        # datasets whose tables could not be tended, and when to try again
        self._tend_at: dict[str, float] = {}
        self._tidy_at = monotonic()

    def __call__(self) -> None:
        """Fail jobs that kill their workers, close what only lacks its closing, keep
        the tables fast and the spool empty.
        """  # noqa: D205 (one sentence that needs two lines)
        for import_id in self._jobs.sweep():
            known = self._imports.peek(import_id)
            # how it ends is for those to say who know what it was planned under
            if self._declarations.get(known.dataset) == known.declaration:
                self._finish(self._datasets[known.dataset], import_id)
        for dataset in self._datasets.values():
            self._tend(dataset)
        now = self._monotonic()
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_AGAIN
            self._tidy_spool()

    def _tend(self, dataset: Dataset) -> None:
        """Keep a table fast; where that fails it is slow, and tried again later."""
        now = self._monotonic()
        if now < self._tend_at.get(dataset.name, now):
            return
        try:
            self._schema.tend(dataset)
        except (StoreRefused, StoreUnavailable) as error:
            self._tend_at[dataset.name] = now + TEND_AGAIN
            told = f"the table of {dataset.name} could not be tended: {error}"
            self._emit(WorkerFailed(worker="sweep", error=told))
