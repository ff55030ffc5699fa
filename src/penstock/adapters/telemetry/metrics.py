"""Count events as Prometheus metrics.

Labels have few values, all declared or listed in the code: datasets, budgets, tasks,
codes and classes of status; never a job, a worker or a text.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Metric,
    PlatformCollector,
    ProcessCollector,
)
from typing_extensions import override

from penstock import __version__
from penstock.adapters.telemetry.database_metrics import DatabaseMetrics
from penstock.adapters.telemetry.specs import MetricSpec
from penstock.domain.events import (
    BudgetWasClosed,
    BudgetWasStopped,
    Event,
    FiresSkipped,
    HookDelivered,
    HookDeliveryFailed,
    HookMessageGivenUp,
    HookMessagesDropped,
    ImportFinished,
    ImportPlanned,
    JobClaimed,
    JobDone,
    JobFailed,
    JobPostponed,
    JobReleased,
    JobSplit,
    LeaseWasLost,
    MaintenanceDone,
    MaintenanceFailed,
    PageCommitted,
    ScheduleFired,
    ScheduleStopped,
    StatementWasSlow,
    StoreWasAway,
    TokenTaken,
    UpstreamResponded,
    WorkerFailed,
)
from penstock.ports.maintenance import TaskName

# seconds
REQUEST_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
WAIT_BUCKETS = (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60)
# of a request without a complete response
NO_STATUS = "none"
# what `Counts` has besides rows by outcome
TOTALS = frozenset({"pages", "requests", "seen"})


class EventRegistry(CollectorRegistry):
    """Leaves out when counters were created: a second series for each of them."""

    @override
    def collect(self) -> Iterator[Metric]:
        for family in super().collect():
            family.samples = [
                sample
                for sample in family.samples
                if not sample.name.endswith("_created")
            ]
            yield family


class EventMetrics:
    """A listener that counts; its metrics are in a registry of their own."""

    def __init__(self) -> None:
        self.registry = EventRegistry()
        # of statements and connections, which are no events: there are too many
        self.database = DatabaseMetrics(self.registry)
        self.specs: list[MetricSpec] = []
        self._add_import_metrics()
        self._add_request_metrics()
        self._add_job_metrics()
        self._add_schedule_metrics()
        self._add_process_metrics()
        self._listeners: Mapping[type[Event], Callable[[Any], None]] = {
            BudgetWasClosed: self._count_closure,
            BudgetWasStopped: self._count_stop,
            FiresSkipped: self._count_skipped,
            HookDelivered: self._count_hook("delivered"),
            HookDeliveryFailed: self._count_hook("failed"),
            HookMessageGivenUp: self._count_hook("given_up"),
            HookMessagesDropped: self._count_dropped,
            ImportFinished: self._count_finished,
            ImportPlanned: self._count_planned,
            JobClaimed: self._count_claim,
            JobDone: self._count_job_end("done"),
            JobFailed: self._count_job_end("failed"),
            JobPostponed: self._count_postponed,
            JobReleased: self._count_job_end("released"),
            JobSplit: self._count_job_end("split"),
            LeaseWasLost: self._count_job_end("lost"),
            MaintenanceDone: self._count_maintenance,
            MaintenanceFailed: self._count_maintenance_failure,
            PageCommitted: self._count_page,
            ScheduleFired: self._count_fire,
            ScheduleStopped: self._count_schedule_stop,
            StatementWasSlow: self._count_slow_statement,
            StoreWasAway: self._count_store_away,
            TokenTaken: self._count_token,
            UpstreamResponded: self._count_response,
            WorkerFailed: self._count_worker_failure,
        }

    def __call__(self, event: Event) -> None:
        listener = self._listeners.get(type(event))
        if listener is not None:
            listener(event)

    def describe_process(self) -> None:
        """Add metrics of the process itself, where no API has them already."""
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        info = Gauge("penstock_info", "Version", ["version"], registry=self.registry)
        info.labels(__version__).set(1)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        name = f"penstock_{name}"
        self.specs.append(MetricSpec(f"{name}_total", "counter", text, labels))
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, label: str, buckets: tuple[float, ...]
    ) -> Histogram:
        name = f"penstock_{name}"
        self.specs.append(MetricSpec(name, "histogram", text, (label,)))
        return Histogram(name, text, [label], buckets=buckets, registry=self.registry)

    def _add_import_metrics(self) -> None:
        self._planned = self._counter(
            "imports_planned", "Imports planned or resumed", "dataset", "mode"
        )
        self._finished = self._counter(
            "imports_finished", "Imports that ended", "dataset", "status"
        )
        self._pages = self._counter("pages", "Pages committed", "dataset")
        self._records = self._counter(
            "records", "Rows of committed pages by outcome", "dataset", "outcome"
        )

    def _add_request_metrics(self) -> None:
        self._responses = self._counter(
            "upstream_requests",
            "Requests to providers by class of status; none: no complete response",
            *("dataset", "status"),
        )
        self._response_seconds = self._histogram(
            "upstream_request_seconds",
            "Duration of requests to providers in seconds",
            "dataset",
            REQUEST_BUCKETS,
        )
        self._token_seconds = self._histogram(
            "token_wait_seconds",
            "Time that requests to providers waited for a token of their budget",
            "budget",
            WAIT_BUCKETS,
        )
        self._closures = self._counter(
            "budget_closures", "Pauses that providers asked for", "budget"
        )
        self._stops = self._counter(
            "budget_stops", "Budgets stopped until an operator opens them", "budget"
        )

    def _add_job_metrics(self) -> None:
        self._claims = self._counter("job_claims", "Jobs claimed", "dataset")
        self._rescues = self._counter(
            "job_rescues", "Jobs claimed after the lease of another ended", "dataset"
        )
        self._job_ends = self._counter(
            "job_ends", "How leases of jobs ended", "dataset", "outcome"
        )
        self._postponements = self._counter(
            "job_postponements", "Jobs put back, by reason", "dataset", "reason"
        )
        self._store_away = self._counter(
            "stores_away", "Results of jobs that had to wait for a store", "dataset"
        )

    def _add_schedule_metrics(self) -> None:
        self._fires = self._counter(
            "schedule_fires", "Imports begun by schedules", "dataset"
        )
        self._skipped = self._counter(
            "schedule_fires_skipped",
            "Fires of schedules that began no import",
            *("dataset", "reason"),
        )
        self._schedule_stops = self._counter(
            "schedule_stops", "Schedules paused or broken", "dataset", "status"
        )

    def _add_process_metrics(self) -> None:
        self._hooks = self._counter(
            "hook_deliveries", "Deliveries of messages to hooks", "hook", "outcome"
        )
        self._maintenance = self._counter(
            "maintenance_runs", "Runs of maintenance tasks", "task", "outcome"
        )
        self._maintenance_seconds = self._counter(
            "maintenance_seconds", "Time spent in maintenance tasks", "task"
        )
        self._slow_statements = self._counter(
            "slow_statements",
            "Statements of the database that took a second or longer",
            "statement",
        )
        self._worker_failures = self._counter(
            "worker_failures", "Unexpected errors of workers"
        )

    def _count_planned(self, event: ImportPlanned) -> None:
        self._planned.labels(event.dataset, event.mode).inc()

    def _count_finished(self, event: ImportFinished) -> None:
        self._finished.labels(event.dataset, event.status).inc()

    def _count_page(self, event: PageCommitted) -> None:
        self._pages.labels(event.dataset).inc()
        for outcome, count in asdict(event.counts).items():
            if count and outcome not in TOTALS:
                self._records.labels(event.dataset, outcome).inc(count)

    def _count_response(self, event: UpstreamResponded) -> None:
        status = NO_STATUS if event.status is None else f"{event.status // 100}xx"
        self._responses.labels(event.dataset, status).inc()
        self._response_seconds.labels(event.dataset).observe(event.took.total_seconds())

    def _count_token(self, event: TokenTaken) -> None:
        self._token_seconds.labels(event.budget).observe(event.waited.total_seconds())

    def _count_closure(self, event: BudgetWasClosed) -> None:
        self._closures.labels(event.budget).inc()

    def _count_stop(self, event: BudgetWasStopped) -> None:
        self._stops.labels(event.budget).inc()

    def _count_claim(self, event: JobClaimed) -> None:
        self._claims.labels(event.dataset).inc()
        if event.rescued:
            self._rescues.labels(event.dataset).inc()

    def _count_job_end(
        self, outcome: str
    ) -> Callable[[JobDone | JobFailed | JobReleased | JobSplit | LeaseWasLost], None]:
        def count(
            event: JobDone | JobFailed | JobReleased | JobSplit | LeaseWasLost,
        ) -> None:
            self._job_ends.labels(event.dataset, outcome).inc()

        return count

    def _count_postponed(self, event: JobPostponed) -> None:
        self._job_ends.labels(event.dataset, "postponed").inc()
        self._postponements.labels(event.dataset, event.code).inc()

    def _count_store_away(self, event: StoreWasAway) -> None:
        self._store_away.labels(event.dataset).inc()

    def _count_fire(self, event: ScheduleFired) -> None:
        self._fires.labels(event.dataset).inc()

    def _count_skipped(self, event: FiresSkipped) -> None:
        self._skipped.labels(event.dataset, event.reason).inc(event.count)

    def _count_schedule_stop(self, event: ScheduleStopped) -> None:
        self._schedule_stops.labels(event.dataset, event.status).inc()

    def _count_maintenance(self, event: MaintenanceDone) -> None:
        task = task_label(TaskName(event.task))
        self._maintenance.labels(task, "done").inc()
        self._maintenance_seconds.labels(task).inc(event.took.total_seconds())

    def _count_maintenance_failure(self, event: MaintenanceFailed) -> None:
        self._maintenance.labels(task_label(TaskName(event.task)), "failed").inc()

    def _count_slow_statement(self, event: StatementWasSlow) -> None:
        self._slow_statements.labels(event.statement).inc()

    def _count_hook(
        self, outcome: str
    ) -> Callable[[HookDelivered | HookDeliveryFailed | HookMessageGivenUp], None]:
        def count(
            event: HookDelivered | HookDeliveryFailed | HookMessageGivenUp,
        ) -> None:
            self._hooks.labels(event.hook, outcome).inc()

        return count

    def _count_dropped(self, event: HookMessagesDropped) -> None:
        self._hooks.labels(event.hook, "dropped").inc(event.count)

    def _count_worker_failure(self, event: WorkerFailed) -> None:
        del event
        self._worker_failures.inc()


def task_label(name: TaskName) -> str:
    """Return `indexes` of `indexes:poi:3f2a`: the rest has too many values."""
    return name.partition(":")[0]
