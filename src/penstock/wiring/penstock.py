"""All that an entry point can ask for."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.domain.axes import FileAxis
from penstock.domain.budget import Budget, without_limit
from penstock.domain.dataset import Dataset
from penstock.domain.job import Import
from penstock.domain.source import CsvSource
from penstock.flow.audit import Audit
from penstock.flow.claims import Claims, Worker
from penstock.flow.duplicates import FindDuplicates
from penstock.flow.explain_waiting import ExplainWaiting
from penstock.flow.finish import Finish
from penstock.flow.import_shard import ImportShard, Patience
from penstock.flow.plan import DryRun, Plan
from penstock.flow.replay import ReplayQuarantine
from penstock.flow.retry import RetryJobs
from penstock.flow.sample import Sample
from penstock.flow.start_import import StartImport
from penstock.flow.sweep import Sweep
from penstock.flow.tidy_spool import TidySpool
from penstock.flow.work import Desk, Terms, Work
from penstock.ports import Declarations, Emit, Host, Source, StillHere, Stores
from penstock.ports.uploads import Uploads
from penstock.settings import Settings, fingerprint
from penstock.wiring.host import host_of, new_worker_id
from penstock.wiring.transforms import load_transform

if TYPE_CHECKING:
    from penstock.adapters.csv.survey import FileSurvey
    from penstock.adapters.http.client import Client

# to one host, and as many as a worker may have threads
MOST_CONNECTIONS = 64


@dataclass(frozen=True)
class Penstock:
    """Everything an entry point can ask for, built once for a process."""

    settings: Settings
    stores: Stores
    emit: Emit

    @cached_property
    def plan(self) -> Plan:
        return Plan(
            datasets=self.settings.datasets,
            imports=self.stores.imports,
            records=self.stores.records,
            survey=self._survey,
            emit=self.emit,
        )

    def _survey(self, files: Dataset, still_here: StillHere) -> FileAxis:
        return self._surveyor(files, still_here)

    @staticmethod
    def _find_files(dataset: Dataset) -> None:
        from penstock.adapters.csv.survey import find_files

        find_files(dataset)

    def _first_of(self, files: Dataset) -> FileAxis:
        return self._surveyor.first(files)

    @property
    def _surveyor(self) -> "FileSurvey":
        # what reads files is loaded with the first of them
        from penstock.adapters.csv.survey import FileSurvey

        return FileSurvey(self.emit)

    @cached_property
    def dry_run(self) -> DryRun:
        return DryRun(self.plan, self.stores.records)

    @cached_property
    def finish(self) -> Finish:
        return Finish(imports=self.stores.imports, emit=self.emit)

    @cached_property
    def sweep(self) -> Sweep:
        return Sweep(
            datasets=self.settings.datasets,
            declarations=self.declarations(self.settings.datasets),
            stores=self.stores,
            finish=self.finish,
            tidy_spool=self.tidy_spool,
            emit=self.emit,
        )

    @cached_property
    def tidy_spool(self) -> TidySpool:
        return TidySpool(
            datasets=self.settings.datasets, stores=self.stores, uploads=self.uploads
        )

    @cached_property
    def audit(self) -> Audit:
        return Audit(imports=self.stores.imports, jobs=self.stores.jobs)

    @cached_property
    def sample(self) -> Sample:
        return Sample(
            stores=self.stores,
            plan=self.plan,
            first=self._first_of,
            host=host_of(threading.Event()),
        )

    @cached_property
    def replay(self) -> ReplayQuarantine:
        return ReplayQuarantine(records=self.stores.records)

    @cached_property
    def duplicates(self) -> FindDuplicates:
        return FindDuplicates(imports=self.stores.imports, records=self.stores.records)

    @cached_property
    def retry(self) -> RetryJobs:
        return RetryJobs(
            imports=self.stores.imports,
            jobs=self.stores.jobs,
            is_declared=self.is_declared,
        )

    @cached_property
    def explain_waiting(self) -> ExplainWaiting:
        return ExplainWaiting(
            stores=self.stores,
            datasets=self.settings.datasets,
            budget=self.budget,
            attempts=self.settings.attempts,
        )

    @cached_property
    def start_import(self) -> StartImport:
        return StartImport(
            plan=self.plan,
            stores=self.stores,
            uploads=self.uploads,
            datasets=self.settings.datasets,
            declaration=self.declaration,
            redact=self.settings.redact,
            find_files=self._find_files,
            new_planner=new_worker_id,
        )

    @cached_property
    def uploads(self) -> Uploads:
        from penstock.adapters.csv.uploads import SpooledUploads

        return SpooledUploads()

    def is_declared(self, known: Import) -> bool:
        """Say whether an import was planned under a declaration that still holds."""
        dataset = self.settings.dataset(known.dataset)
        return known.declaration == self.declaration(dataset)

    def declaration(self, dataset: Dataset) -> str:
        """Return the digest by which an unfinished import is recognised."""
        return fingerprint(dataset, redact=self.settings.redact)

    def declarations(self, names: Iterable[str]) -> Declarations:
        return {name: self.declaration(self.settings.dataset(name)) for name in names}

    def budget(self, dataset: Dataset) -> Budget:
        """Return the budget of a dataset; without one it can still be closed."""
        name = dataset.source.budget
        if name is None:
            return without_limit(f"dataset:{dataset.name}")
        return self.settings.budgets[name]

    @property
    def budgets(self) -> Mapping[str, Budget]:
        """The declared budgets, and the nameless ones of datasets without."""
        used = map(self.budget, self.settings.datasets.values())
        return {**self.settings.budgets, **{each.name: each for each in used}}

    def not_stopped(self, names: Iterable[str]) -> list[str]:
        """Leave out datasets whose budget waits for an operator."""
        return [
            name for name in names if self.stopped(self.settings.dataset(name)) is None
        ]

    def stopped(self, dataset: Dataset) -> str | None:
        """Say why the budget of a dataset waits for an operator, if it does."""
        if not dataset.source.is_budgeted:
            return None
        return self.stores.budgets.state(self.budget(dataset)).stopped

    def source(self, dataset: Dataset) -> Source:
        if isinstance(dataset.source, CsvSource):
            from penstock.adapters.csv.source import CsvPages

            return CsvPages(dataset)
        from penstock.adapters.http.source import HttpPages

        return HttpPages(
            dataset,
            stop_on=self.budget(dataset).stop_on,
            redact=self.settings.redact,
            edition=f"{self.declaration(dataset)} {__version__}",
            transform=load_transform(self.settings, dataset),
            client=self._client,
        )

    @cached_property
    def _client(self) -> "Client":
        from penstock.adapters.http.client import Client

        # one pool for all datasets and threads: those of one provider share connections
        return Client(connections=MOST_CONNECTIONS)

    def desks(self, names: Mapping[str, Dataset], host: Host) -> Mapping[str, Desk]:
        """Set up all that is needed to work these datasets; threads share it."""
        return {name: self._desk(dataset, host) for name, dataset in names.items()}

    def claims(self, worker: Worker, host: Host) -> Claims:
        return Claims(worker, ledger=self.stores.ledger, host=host)

    def work(self, desks: Mapping[str, Desk], claims: Claims, host: Host) -> Work:
        terms = Terms(
            lease=self.settings.lease,
            attempts=self.settings.attempts,
            redact=self.settings.redact,
        )
        return Work(
            claims,
            desks=desks,
            stores=self.stores,
            terms=terms,
            finish=self.finish,
            host=host,
            emit=self.emit,
        )

    def _desk(self, dataset: Dataset, host: Host) -> Desk:
        budget = self.budget(dataset)
        return Desk(
            dataset=dataset,
            declaration=self.declaration(dataset),
            budget=budget.name,
            import_shard=ImportShard(
                dataset,
                source=self.source(dataset),
                budget=budget,
                stores=self.stores,
                patience=Patience(
                    lease=self.settings.lease,
                    longest_wait=self.settings.longest_wait,
                    request=dataset.source.timeout,
                    commit=self.settings.commit_timeout,
                ),
                host=host,
                emit=self.emit,
            ),
        )
