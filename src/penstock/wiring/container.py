"""The use cases and their adapters, built from settings."""

import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.domain.budget import Budget, unlimited_budget
from penstock.domain.dataset import Dataset
from penstock.domain.events import ScheduleConflict, UpstreamResponded
from penstock.domain.jobs import Import, ImportId
from penstock.domain.page_reuse import reader_edition
from penstock.domain.redaction import Redactor
from penstock.domain.scaling import Allowance, Demand, find_demand
from penstock.domain.scheduling.schedule import Schedule, ScheduleDeclaration
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.source import CsvSource
from penstock.flow.apply_retention import ApplyRetention
from penstock.flow.archive_rows import ArchiveRows
from penstock.flow.audit import Audit
from penstock.flow.clean_spool import CleanSpool
from penstock.flow.deliver_hooks import DeliverHook
from penstock.flow.explain_waiting import ExplainWaiting
from penstock.flow.find_duplicates import FindDuplicates
from penstock.flow.finish_import import FinishImport
from penstock.flow.first_import import CheckFirstImport
from penstock.flow.flush_samples import FlushSamples, FoldSamples
from penstock.flow.import_shard import ImportShard, Timeouts
from penstock.flow.job_claimer import JobClaimer, Worker
from penstock.flow.log_action import LogAction
from penstock.flow.plan import DryRun, Plan
from penstock.flow.plan_lease import ClaimPlan
from penstock.flow.preview_file import PreviewFile
from penstock.flow.replay_quarantine import ReplayQuarantine
from penstock.flow.retry_jobs import RetryJobs
from penstock.flow.run_schedule import RunSchedule
from penstock.flow.sample_page import SamplePage
from penstock.flow.start_import import StartImport
from penstock.flow.sweep import Sweep
from penstock.flow.tick_schedules import BeginImport, TickSchedules
from penstock.flow.work import DatasetRuntime, Work, WorkPolicy
from penstock.ports import (
    Declarations,
    Emit,
    KeepAlive,
    Redact,
    Runtime,
    ScannedSlices,
    Source,
    Stores,
)
from penstock.ports.file_format import FileFormats
from penstock.ports.tracing import Tracer
from penstock.ports.uploads import Uploads
from penstock.settings import Settings, declaration_digest
from penstock.settings.schedules import parse_schedule
from penstock.settings.validation_errors import spell
from penstock.wiring.hooks import build_hook_target
from penstock.wiring.process_identity import has_ended, new_worker_id
from penstock.wiring.runtime import build_runtime
from penstock.wiring.traces import build_tracer
from penstock.wiring.user_functions import load_transform

if TYPE_CHECKING:
    from penstock.adapters.csv.file_scanner import FileScanner
    from penstock.adapters.http.client import HttpClient

# to one host: as many as a worker may have threads
MAX_CONNECTIONS = 64
# due jobs that an autoscaler is told of
MAX_COUNTED_JOBS = 10_000


@dataclass(frozen=True)
class Container:
    """The use cases of a process, each built on first use."""

    settings: Settings
    stores: Stores
    emit: Emit
    # what the events of this process add up to
    flush_samples: FlushSamples

    @cached_property
    def tracer(self) -> Tracer:
        # built on first use: most commands trace nothing
        return build_tracer(self.settings, self.emit, os.environ)

    def flush_traces(self) -> None:
        """Send the spans that were not sent yet."""
        if "tracer" in vars(self):
            self.tracer.flush()

    @cached_property
    def plan(self) -> Plan:
        return Plan(
            datasets=self.settings.datasets,
            stores=self.stores,
            survey=self._scan_files,
            claim=ClaimPlan(
                plans=self.stores.plans,
                ledger=self.stores.ledger,
                length=self.settings.lease,
                new_owner=new_worker_id,
            ),
            emit=self.emit,
            check_first=CheckFirstImport(
                records=self.stores.records, source=self.source
            ),
            tracer=self.tracer,
        )

    def _scan_files(
        self, files: Dataset, still_here: KeepAlive, scanned: ScannedSlices
    ) -> FileAxis:
        return self._file_scanner(files, still_here, scanned)

    @staticmethod
    def _find_files(dataset: Dataset) -> None:
        from penstock.adapters.csv.file_scanner import find_files

        find_files(dataset)

    def _scan_first_file(self, files: Dataset) -> FileAxis:
        return self._file_scanner.first(files)

    @property
    def _file_scanner(self) -> "FileScanner":
        # imported only if a dataset has files
        from penstock.adapters.csv.file_scanner import FileScanner

        return FileScanner(self.emit)

    @cached_property
    def dry_run(self) -> DryRun:
        return DryRun(self.plan, self.stores.records)

    @cached_property
    def finish(self) -> FinishImport:
        return FinishImport(imports=self.stores.imports, emit=self.emit)

    @cached_property
    def sweep(self) -> Sweep:
        return Sweep(
            datasets=self.settings.datasets,
            declarations=self.declarations(self.settings.datasets),
            stores=self.stores,
            finish=self.finish,
            emit=self.emit,
            has_ended=has_ended,
        )

    @cached_property
    def clean_spool(self) -> CleanSpool:
        return CleanSpool(
            datasets=self.settings.datasets, stores=self.stores, uploads=self.uploads
        )

    @cached_property
    def hook_deliveries(self) -> Mapping[str, DeliverHook]:
        """What delivers the due messages of each hook."""
        return {
            name: DeliverHook(
                name,
                build_hook_target(self.settings, hook),
                outbox=self.stores.outbox,
                redact=self.settings.redact,
                emit=self.emit,
            )
            for name, hook in self.settings.hooks.items()
        }

    @cached_property
    def retention(self) -> ApplyRetention:
        return ApplyRetention(
            retention=self.stores.retention,
            claims=self.stores.claims,
            rollups=self.stores.rollups,
            actions=self.stores.actions,
            jobs=self.stores.jobs,
            policy=self.settings.retention,
        )

    @cached_property
    def fold_samples(self) -> FoldSamples:
        return FoldSamples(self.stores.rollups)

    @cached_property
    def archive(self) -> ArchiveRows:
        return ArchiveRows(archive=self.stores.archive, jobs=self.stores.jobs)

    @cached_property
    def audit(self) -> Audit:
        return Audit(imports=self.stores.imports, jobs=self.stores.jobs)

    @cached_property
    def sample(self) -> SamplePage:
        return SamplePage(
            stores=self.stores,
            plan=self.plan,
            first=self._scan_first_file,
            host=build_runtime(threading.Event()),
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
    def log_action(self) -> LogAction:
        return LogAction(self.stores.actions, self.emit)

    @cached_property
    def explain_waiting(self) -> ExplainWaiting:
        return ExplainWaiting(
            stores=self.stores,
            datasets=self.settings.datasets,
            budget=self.budget,
            attempts=self.settings.attempts,
            has_ended=has_ended,
        )

    def demand(self) -> Sequence[Demand]:
        """Return how many workers there is work for, by region."""
        stores = self.stores
        work = stores.workers.open_work(most=MAX_COUNTED_JOBS)
        allowances = {each.dataset: self._allowance(each.dataset) for each in work}
        return find_demand(work, allowances, now=stores.jobs.now())

    def _allowance(self, name: str) -> Allowance:
        dataset = self.settings.datasets.get(name)
        if dataset is None or not dataset.source.is_budgeted:
            return Allowance(budget=f"dataset:{name}", rate=math.inf, is_open=True)
        budget = self.budget(dataset)
        state = self.stores.budgets.state(budget)
        return Allowance(
            budget=budget.name,
            rate=budget.per_second,
            is_open=not state.stopped and not state.closed_for,
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
            attempts=self.settings.attempts,
            tracer=self.tracer,
        )

    @cached_property
    def begin_import(self) -> BeginImport:
        return BeginImport(
            plan=self.plan,
            stores=self.stores,
            declaration=self.declaration,
            find_files=self._find_files,
            tracer=self.tracer,
        )

    @cached_property
    def run_schedule(self) -> RunSchedule:
        return RunSchedule(
            datasets=self.settings.datasets,
            stores=self.stores,
            parse=self.parse_schedule,
            begin_import=self.begin_import,
            redact=self.settings.redact,
            emit=self.emit,
        )

    def declare_schedules(self) -> datetime:
        """Store the declared schedules; return when this process started to."""
        at = self.stores.jobs.now()
        declared = []
        for declaration in self.settings.schedules.values():
            schedule, _ = self.parse_schedule(declaration)
            if schedule is not None:
                declared.append((schedule, declaration))
        for name in self.stores.schedules.declare(declared, at=at):
            self.emit(ScheduleConflict(schedule=name))
        return at

    def parse_schedule(
        self, declaration: ScheduleDeclaration
    ) -> tuple[Schedule | None, str | None]:
        """Return a stored schedule, and why it does not fit the datasets."""
        schedule, problems = parse_schedule(
            declaration.name, declaration.fields, self.settings.datasets
        )
        sentences = [f"{spell(at)}: {message}".lstrip(": ") for at, message in problems]
        return schedule, "; ".join(sentences) or None

    def tick_schedules(
        self, plan_import: Callable[[ImportId], None], *, started_at: datetime
    ) -> TickSchedules:
        return TickSchedules(
            datasets=self.settings.datasets,
            stores=self.stores,
            parse=self.parse_schedule,
            begin_import=self.begin_import,
            redact=self.settings.redact,
            emit=self.emit,
            plan_import=plan_import,
            started_at=started_at,
        )

    @cached_property
    def preview_file(self) -> PreviewFile:
        from penstock.adapters.csv.preview import CsvPreviews

        return PreviewFile(previews=CsvPreviews(), records=self.stores.records)

    @cached_property
    def file_formats(self) -> FileFormats:
        from penstock.adapters.csv.file_format import CsvFileFormats

        return CsvFileFormats()

    @cached_property
    def uploads(self) -> Uploads:
        from penstock.adapters.csv.spool import SpooledUploads

        return SpooledUploads()

    def due_plans(self) -> Sequence[ImportId]:
        """Return the imports that nobody plans now, and that this process could."""
        declarations = self.declarations(self.settings.datasets)
        return self.stores.plans.due(declarations=declarations)

    def is_declared(self, import_: Import) -> bool:
        """Return whether the dataset is still declared as the import was planned."""
        dataset = self.settings.dataset(import_.dataset)
        return import_.declaration == self.declaration(dataset)

    def declaration(self, dataset: Dataset) -> str:
        """Return the digest of a declaration; imports resume only if it is the same."""
        return declaration_digest(dataset, redact=self._redact_declared)

    @cached_property
    def _redact_declared(self) -> Redact:
        # without guesses and tokens: a digest depends on the declaration alone
        return Redactor(self.settings.secrets)

    def declarations(self, names: Iterable[str]) -> Declarations:
        return {name: self.declaration(self.settings.dataset(name)) for name in names}

    def budget(self, dataset: Dataset) -> Budget:
        """Return the budget of a dataset; without one, an unlimited one of its own."""
        name = dataset.source.budget
        if name is None:
            return unlimited_budget(f"dataset:{dataset.name}")
        return self.settings.budgets[name]

    @property
    def budgets(self) -> Mapping[str, Budget]:
        """The declared budgets, and those of datasets without a declared one."""
        used = map(self.budget, self.settings.datasets.values())
        return {**self.settings.budgets, **{budget.name: budget for budget in used}}

    def not_stopped(self, names: Iterable[str]) -> list[str]:
        """Return the datasets whose budget is not stopped."""
        return [
            name for name in names if self.stopped(self.settings.dataset(name)) is None
        ]

    def stopped(self, dataset: Dataset) -> str | None:
        """Return why the budget of a dataset is stopped until an operator opens it."""
        if not dataset.source.is_budgeted:
            return None
        return self.stores.budgets.state(self.budget(dataset)).stopped

    def open_declarations(self) -> Declarations:
        """Return the datasets whose budget is open now."""
        return self.declarations(
            name
            for name, dataset in self.settings.datasets.items()
            if not dataset.source.is_budgeted or self._is_open(self.budget(dataset))
        )

    def _is_open(self, budget: Budget) -> bool:
        state = self.stores.budgets.state(budget)
        return state.stopped is None and state.closed_for is None

    def source(self, dataset: Dataset) -> Source:
        if isinstance(dataset.source, CsvSource):
            from penstock.adapters.csv.source import CsvSourceReader

            return CsvSourceReader(dataset)
        from penstock.adapters.http.source import HttpSourceReader

        def observe(status: int | None, took: timedelta) -> None:
            self.emit(UpstreamResponded(dataset=dataset.name, status=status, took=took))

        return HttpSourceReader(
            dataset,
            stop_on=self.budget(dataset).stop_on,
            redactor=self.settings.redact,
            edition=f"{self.declaration(dataset)} {reader_edition()}",
            transform=load_transform(self.settings, dataset),
            client=self._client.observed_by(observe, self.tracer),
        )

    @cached_property
    def _client(self) -> "HttpClient":
        from penstock.adapters.http.client import HttpClient

        # one pool for all datasets and threads, so that those of a provider share it
        return HttpClient(connections=MAX_CONNECTIONS)

    def dataset_runtimes(
        self, datasets: Mapping[str, Dataset], host: Runtime
    ) -> Mapping[str, DatasetRuntime]:
        """Build what is needed to run jobs of these datasets; threads share it."""
        return {
            name: self._dataset_runtime(dataset, host)
            for name, dataset in datasets.items()
        }

    def claims(self, worker: Worker, host: Runtime) -> JobClaimer:
        return JobClaimer(worker, ledger=self.stores.ledger, host=host)

    def work(
        self,
        dataset_runtimes: Mapping[str, DatasetRuntime],
        claimer: JobClaimer,
        host: Runtime,
    ) -> Work:
        policy = WorkPolicy(
            lease=self.settings.lease,
            attempts=self.settings.attempts,
            redact=self.settings.redact,
        )
        return Work(
            claimer,
            runtimes=dataset_runtimes,
            stores=self.stores,
            policy=policy,
            finish=self.finish,
            host=replace(host, tracer=self.tracer),
            emit=self.emit,
        )

    def _dataset_runtime(self, dataset: Dataset, host: Runtime) -> DatasetRuntime:
        budget = self.budget(dataset)
        return DatasetRuntime(
            dataset=dataset,
            declaration=self.declaration(dataset),
            budget=budget.name,
            import_shard=ImportShard(
                dataset,
                source=self.source(dataset),
                budget=budget,
                stores=self.stores,
                patience=Timeouts(
                    lease=self.settings.lease,
                    longest_wait=self.settings.longest_wait,
                    request=dataset.source.timeout,
                    commit=self.settings.commit_timeout,
                ),
                host=replace(host, tracer=self.tracer),
                emit=self.emit,
            ),
        )
