"""What keeps the ledger and the tables in order: lost jobs, open imports, indexes."""

from collections.abc import Callable, Mapping

from penstock.domain.dataset import Dataset
from penstock.domain.events import WorkerFailed
from penstock.domain.jobs import WorkerId
from penstock.errors import StoreRefused, StoreUnavailable
from penstock.flow.finish_import import FinishImport
from penstock.ports import Declarations, Emit, Stores


class Sweep:
    """Its parts are tasks of the maintenance loop; a call does all of them at once."""

    def __init__(
        self,
        *,
        datasets: Mapping[str, Dataset],
        declarations: Declarations,
        stores: Stores,
        finish: FinishImport,
        emit: Emit,
        has_ended: Callable[[WorkerId], bool] = lambda _: False,
    ) -> None:
        self._datasets = datasets
        self._declarations = declarations
        self._schema = stores.schema
        self._jobs = stores.jobs
        self._plans = stores.plans
        self._imports = stores.imports
        self._finish = finish
        self._emit = emit
        # whether it is known that the process of a worker no longer runs
        self._has_ended = has_ended

    def __call__(self) -> None:
        """Do everything at once; a table that cannot be maintained is only slow."""
        self.expire_leases()
        self.finish_imports()
        for dataset in self._datasets.values():
            try:
                self._schema.maintain(dataset)
            except (StoreRefused, StoreUnavailable) as error:
                message = f"the table of {dataset.name} could not be maintained"
                self._emit(WorkerFailed(worker="sweep", error=f"{message}: {error}"))

    def expire_leases(self) -> None:
        """Let others have the jobs of workers whose processes no longer run."""
        owners = self._jobs.lease_owners()
        if ended := [owner for owner in owners if self._has_ended(owner)]:
            self._jobs.expire_leases(ended)

    def finish_imports(self) -> None:
        """Fail jobs that kill their workers, and end imports that nobody has ended."""
        settled = self._jobs.sweep()
        self._plans.fail_lost()
        for import_id in settled:
            import_ = self._imports.peek(import_id)
            # only a process with the same declaration may end it
            if self._declarations.get(import_.dataset) == import_.declaration:
                self._finish(self._datasets[import_.dataset], import_id)
