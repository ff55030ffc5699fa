"""Periodic cleanup: dead letters, imports left open, table maintenance, the spool."""

import time
from collections.abc import Callable, Mapping

from penstock.domain.dataset import Dataset
from penstock.domain.events import WorkerFailed
from penstock.errors import StoreRefused, StoreUnavailable
from penstock.flow.finish_import import FinishImport
from penstock.ports import Declarations, Emit, Stores

# in seconds
MAINTENANCE_RETRY_INTERVAL = 60.0
SPOOL_INTERVAL = 3600.0


class Sweep:
    def __init__(
        self,
        *,
        datasets: Mapping[str, Dataset],
        declarations: Declarations,
        stores: Stores,
        finish: FinishImport,
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
        self._clean_spool = tidy_spool
        self._emit = emit
        self._monotonic = monotonic
        # dataset -> when to retry its failed maintenance
        self._maintain_at: dict[str, float] = {}
        self._clean_at = monotonic()

    def __call__(self) -> None:
        """Fail jobs that kill their workers, close finished imports, maintain tables,
        clean the spool.
        """  # noqa: D205 (one sentence that needs two lines)
        for import_id in self._jobs.sweep():
            import_ = self._imports.peek(import_id)
            # only a process with the same declaration may close it
            if self._declarations.get(import_.dataset) == import_.declaration:
                self._finish(self._datasets[import_.dataset], import_id)
        for dataset in self._datasets.values():
            self._maintain(dataset)
        now = self._monotonic()
        if now >= self._clean_at:
            self._clean_at = now + SPOOL_INTERVAL
            self._clean_spool()

    def _maintain(self, dataset: Dataset) -> None:
        """Maintain a table; after an error it stays slow until a later retry."""
        now = self._monotonic()
        if now < self._maintain_at.get(dataset.name, now):
            return
        try:
            self._schema.maintain(dataset)
        except (StoreRefused, StoreUnavailable) as error:
            self._maintain_at[dataset.name] = now + MAINTENANCE_RETRY_INTERVAL
            error_text = f"the table of {dataset.name} could not be maintained: {error}"
            self._emit(WorkerFailed(worker="sweep", error=error_text))
