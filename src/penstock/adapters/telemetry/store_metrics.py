"""Read the state of the stores as Prometheus gauges, when they are scraped."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from penstock.adapters.telemetry.metrics import MetricSpec, task_label
from penstock.domain.budget import Budget
from penstock.domain.scaling import Demand, OpenWork
from penstock.errors import PenstockError
from penstock.ports import Stores
from penstock.ports.cancellation import time_limit

# seconds between two reads, however often they are scraped
MIN_INTERVAL = 5.0
# for all of them: Prometheus waits 10 s by default
READ_TIMEOUT = timedelta(seconds=3)
# due jobs of an import are counted up to this
MAX_COUNTED_JOBS = 10_000


def spec(name: str, text: str, *labels: str) -> MetricSpec:
    return MetricSpec(f"penstock_{name}", "gauge", text, labels)


GAUGES = {
    spec.name: spec
    for spec in (
        spec("store_reads_failed", "Groups of gauges that could not be read"),
        spec("budget_rate", "Sustained requests per second", "budget"),
        spec("budget_allowed_requests", "Requests of a limit", "budget", "window"),
        spec(
            "budget_used_requests", "Requests that a quota counts", "budget", "window"
        ),
        spec(
            "budget_remaining_requests",
            "Requests that a limit allows at once",
            "budget",
            "window",
        ),
        spec("budget_taken_requests", "Requests ever allowed", "budget"),
        spec("budget_closed_seconds", "Until a closed budget opens", "budget"),
        spec("budget_stopped", "1 if an operator has to open the budget", "budget"),
        spec(
            "due_jobs",
            f"Jobs that could be claimed, up to {MAX_COUNTED_JOBS:,} of an import",
            "dataset",
            "region",
        ),
        spec(
            "oldest_due_seconds",
            "Since when the oldest of them is due",
            "dataset",
            "region",
        ),
        spec("leased_jobs", "Jobs in work", "dataset", "region"),
        spec(
            "useful_jobs", "Jobs that can run before workers wait for budgets", "region"
        ),
        spec(
            "dataset_imported_timestamp_seconds",
            "When the last successful import ended",
            "dataset",
        ),
        spec("dataset_rows", "Live rows; only of serve", "dataset"),
        spec("dataset_bad_rows", "Open rows in quarantine", "dataset"),
        spec("live_workers", "Worker processes", "region"),
        spec("live_worker_threads", "Jobs that they can run", "region"),
        spec("outbox_messages", "Messages not sent or not confirmed", "kind"),
        spec(
            "maintenance_last_run_timestamp_seconds",
            "When a task of this kind ran last",
            "task",
        ),
        spec(
            "maintenance_last_failure_timestamp_seconds",
            "When a task of this kind failed last",
            "task",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """Where the gauges come from."""

    stores: Stores
    budgets: Mapping[str, Budget]
    demand: Callable[[], Sequence[Demand]]
    # kinds of messages that this configuration sends
    messages: Sequence[str] = ()
    # counts the live rows by dataset, where that is quick
    rows: Callable[[], Mapping[str, int]] = dict


class StoreMetrics(Collector):
    """Gauges of the ledger and the budgets; those of a store that is away are left out.

    Every process exposes the same ones: an alert should take their maximum.
    """

    def __init__(
        self, facts: StoreFacts, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._facts = facts
        self._stores = facts.stores
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._families: Sequence[Metric] = ()

    @override
    def collect(self) -> Iterable[Metric]:
        # of several scrapes at a time one reads
        with self._lock:
            now = self._clock()
            if self._read_at is None or now - self._read_at >= MIN_INTERVAL:
                with time_limit(READ_TIMEOUT):
                    self._families = [*self._read()]
                self._read_at = now
            return self._families

    def _read(self) -> Iterator[Metric]:
        away = gauge("store_reads_failed")
        failed = 0
        # what may be slow comes last: a count waits for a table that is locked
        groups = (
            self._budgets,
            self._jobs,
            self._processes,
            self._datasets,
            self._rows,
        )
        for read in groups:
            try:
                yield from [*read()]
            except PenstockError:
                failed += 1
        away.add_metric([], failed)
        yield away

    def _budgets(self) -> Iterator[Metric]:
        rate = gauge("budget_rate")
        allowed = gauge("budget_allowed_requests")
        used = gauge("budget_used_requests")
        remaining = gauge("budget_remaining_requests")
        taken = gauge("budget_taken_requests")
        closed = gauge("budget_closed_seconds")
        stopped = gauge("budget_stopped")
        for budget in self._facts.budgets.values():
            state = self._stores.budgets.state(budget)
            if budget.limits:
                rate.add_metric([budget.name], budget.per_second)
            for entry in state.limits:
                labels = [budget.name, entry.limit.window]
                allowed.add_metric(labels, entry.limit.requests)
                remaining.add_metric(labels, entry.remaining)
                if entry.limit.is_quota:
                    used.add_metric(labels, entry.limit.requests - entry.remaining)
            taken.add_metric([budget.name], state.taken)
            closed.add_metric([budget.name], seconds(state.closed_for))
            stopped.add_metric([budget.name], state.stopped is not None)
        yield from (rate, allowed, used, remaining, taken, closed, stopped)

    def _jobs(self) -> Iterator[Metric]:
        due = gauge("due_jobs")
        oldest = gauge("oldest_due_seconds")
        leased = gauge("leased_jobs")
        useful = gauge("useful_jobs")
        now = self._stores.jobs.now()
        open_work = self._stores.workers.open_work(most=MAX_COUNTED_JOBS)
        for labels, group in by_dataset(open_work).items():
            due.add_metric(labels, sum(work.due for work in group))
            leased.add_metric(labels, sum(work.leased for work in group))
            since = [work.oldest_at for work in group if work.oldest_at is not None]
            oldest.add_metric(labels, seconds(now - min(since)) if since else 0)
        for demand in self._facts.demand():
            useful.add_metric([demand.region or ""], demand.useful_jobs)
        yield from (due, oldest, leased, useful)

    def _datasets(self) -> Iterator[Metric]:
        imported = gauge("dataset_imported_timestamp_seconds")
        bad_rows = gauge("dataset_bad_rows")
        for summary in self._stores.schema.datasets.summaries():
            bad_rows.add_metric([summary.name], summary.bad_rows)
            if summary.imported_at is not None:
                at = summary.imported_at.timestamp()
                imported.add_metric([summary.name], at)
        yield from (imported, bad_rows)

    def _rows(self) -> Iterator[Metric]:
        rows = gauge("dataset_rows")
        for name, count in self._facts.rows().items():
            rows.add_metric([name], count)
        yield rows

    def _processes(self) -> Iterator[Metric]:
        workers = gauge("live_workers")
        threads = gauge("live_worker_threads")
        by_region: dict[str, list[int]] = defaultdict(list)
        for worker in self._stores.workers.live():
            by_region[worker.region or ""].append(worker.threads or 1)
        for region in by_region or {"": []}:
            workers.add_metric([region], len(by_region[region]))
            threads.add_metric([region], sum(by_region[region]))
        yield from (workers, threads)
        yield from self._maintenance()
        outbox = gauge("outbox_messages")
        for kind in self._facts.messages:
            outbox.add_metric([kind], len(self._stores.outbox.unsettled(kind)))
        yield outbox

    def _maintenance(self) -> Iterator[Metric]:
        last_run = gauge("maintenance_last_run_timestamp_seconds")
        last_failure = gauge("maintenance_last_failure_timestamp_seconds")
        runs: dict[str, list[datetime]] = defaultdict(list)
        failures: dict[str, list[datetime]] = defaultdict(list)
        for task in self._stores.maintenance.tasks():
            # a one-off task is named by a number
            label = task.kind or task_label(task.name)
            if task.last_run_at is not None:
                runs[label].append(task.last_run_at)
            if task.failed_at is not None:
                failures[label].append(task.failed_at)
        for metric, found in ((last_run, runs), (last_failure, failures)):
            for label, times in found.items():
                metric.add_metric([label], max(times).timestamp())
            yield metric


def by_dataset(
    open_work: Sequence[OpenWork],
) -> Mapping[tuple[str, str], list[OpenWork]]:
    groups: dict[tuple[str, str], list[OpenWork]] = defaultdict(list)
    for work in open_work:
        groups[work.dataset, work.region or ""].append(work)
    return groups


def seconds(duration: timedelta | None) -> float:
    return 0.0 if duration is None else max(duration.total_seconds(), 0.0)


def gauge(name: str) -> GaugeMetricFamily:
    found = GAUGES[f"penstock_{name}"]
    return GaugeMetricFamily(found.name, found.text, labels=found.labels)
