"""Find out what an import waits for, from the ledger, the budgets and the workers."""

from collections.abc import Callable, Mapping

from penstock.domain.budget import Budget, BudgetState
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Import, ImportStatus, WorkerId
from penstock.domain.waiting import (
    DepartedWorker,
    LiveWorker,
    Waiting,
    WaitReason,
    explain_waiting,
)
from penstock.errors import StoreUnavailable
from penstock.ports import Stores


class ExplainWaiting:
    def __init__(
        self,
        *,
        stores: Stores,
        datasets: Mapping[str, Dataset],
        budget: Callable[[Dataset], Budget],
        attempts: int,
        has_ended: Callable[[WorkerId], bool] = lambda _: False,
    ) -> None:
        self._stores = stores
        self._datasets = datasets
        self._budget = budget
        self._attempts = attempts
        # whether it is known that the process of a worker no longer runs
        self._has_ended = has_ended

    def __call__(self, import_: Import) -> Waiting | None:
        """Return what an import waits for; None if it makes progress, or has ended."""
        # None if the dataset is no longer declared
        dataset = self._datasets.get(import_.dataset)
        if import_.status is ImportStatus.DONE and dataset is not None:
            return self._explain_indexes(import_, dataset)
        if import_.status not in {ImportStatus.PLANNING, ImportStatus.RUNNING}:
            return None
        try:
            budget = None if dataset is None else self._budget_state(dataset)
        except StoreUnavailable as error:
            return Waiting(reason=WaitReason.STORE_AWAY, detail=str(error))
        live = self._stores.workers.live()
        ended = [worker for worker in live if self._has_ended(worker.id)]
        return explain_waiting(
            import_,
            self._stores.jobs.waiting_facts(import_.id),
            budget=budget,
            workers=[worker for worker in live if worker not in ended],
            departed=lambda: [
                *self._stores.workers.departed(),
                *map(describe_ended, ended),
            ],
            region=None if dataset is None else dataset.region,
            attempts=self._attempts,
        )

    def _explain_indexes(self, import_: Import, dataset: Dataset) -> Waiting | None:
        newest = self._stores.imports.newest(dataset.name)
        if newest is None or newest.id != import_.id:
            return None
        if not self._stores.schema.lacks_indexes(dataset):
            return None
        return Waiting(
            reason=WaitReason.BUILDING_INDEXES,
            detail=f"the indexes of {dataset.name!r} are being built; "
            "until then lists and searches are slow",
            since=import_.finished_at,
        )

    def _budget_state(self, dataset: Dataset) -> BudgetState | None:
        if not dataset.source.is_budgeted:
            return None
        return self._stores.budgets.state(self._budget(dataset))


def describe_ended(worker: LiveWorker) -> DepartedWorker:
    return DepartedWorker(
        id=worker.id,
        region=worker.region,
        declarations=worker.declarations,
        seen_at=worker.seen_at,
        departed_at=worker.seen_at or worker.started_at,
    )
