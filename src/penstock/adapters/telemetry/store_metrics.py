"""Read the state of the stores as Prometheus gauges, when they are scraped."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from shutil import disk_usage

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from penstock.adapters.telemetry.metrics import task_label
from penstock.adapters.telemetry.store_gauges import MAX_COUNTED_JOBS, gauge
from penstock.domain.budget import Budget
from penstock.domain.jobs import Import, ImportStatus
from penstock.domain.scaling import Demand, OpenWork
from penstock.domain.scheduling.schedule import (
    Schedule,
    ScheduleDeclaration,
    import_interval,
)
from penstock.domain.waiting import Waiting
from penstock.errors import PenstockError
from penstock.ports import Stores
from penstock.ports.cancellation import time_limit
from penstock.ports.maintenance import TaskState
from penstock.ports.record_access import ReplicaState
from penstock.ports.schedules import ScheduleFilter, ScheduleStatus, StoredSchedule

# seconds between two reads, however often they are scraped
MIN_INTERVAL = 5.0
# for all of them: Prometheus waits 10 s by default
READ_TIMEOUT = timedelta(seconds=3)
# whether more running imports make progress is not looked up
MAX_EXPLAINED_IMPORTS = 20
MAX_SCHEDULES = 1_000
# a task that has been due for longer belongs to a process that does not run any more
MAX_OVERDUE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """Where the gauges come from."""

    stores: Stores
    budgets: Mapping[str, Budget]
    demand: Callable[[], Sequence[Demand]]
    # what an import waits for; none: it makes progress
    explain_waiting: Callable[[Import], Waiting | None]
    # none: it does not fit the datasets
    parse_schedule: Callable[[ScheduleDeclaration], Schedule | None]
    # what is stored on the disks of this host, by name
    places: Mapping[str, Path]
    # kinds of messages that this configuration sends
    messages: Sequence[str] = ()
    # counts the live rows by dataset, where that is quick
    rows: Callable[[], Mapping[str, int]] = dict
    # from which this process reads
    replicas: Callable[[], Sequence[ReplicaState]] = tuple


class StoreMetrics(Collector):
    """Gauges of the ledger and the budgets; those of a store that is away are left out.

    Every process exposes the same ones: an alert should take their maximum. Only the
    disks are those of its host, and the replicas its own.
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
            self._disks,
            self._budgets,
            self._jobs,
            self._processes,
            self._schedules,
            self._waiting,
            self._datasets,
            self._replicas,
            self._rows,
        )
        for read in groups:
            try:
                yield from [*read()]
            except (PenstockError, OSError):
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

    def _waiting(self) -> Iterator[Metric]:
        running = gauge("running_imports")
        waiting = gauge("waiting_imports")
        open_work = self._stores.workers.open_work(most=1)
        for dataset, count in Counter(work.dataset for work in open_work).items():
            running.add_metric([dataset], count)
        reasons: Counter[tuple[str, str]] = Counter()
        for work in open_work[-MAX_EXPLAINED_IMPORTS:]:
            found = self._facts.explain_waiting(
                self._stores.imports.peek(work.import_id)
            )
            if found is not None:
                reasons[work.dataset, found.reason] += 1
        for labels, count in reasons.items():
            waiting.add_metric(labels, count)
        yield from (running, waiting)

    def _datasets(self) -> Iterator[Metric]:
        imported = gauge("dataset_imported_timestamp_seconds")
        bad_rows = gauge("dataset_bad_rows")
        failed = gauge("dataset_import_failed")
        failed_jobs = gauge("failed_jobs")
        for summary in self._stores.schema.datasets.summaries():
            bad_rows.add_metric([summary.name], summary.bad_rows)
            newest = self._stores.imports.newest(summary.name)
            if newest is not None:
                is_failed = newest.status is ImportStatus.FAILED
                failed.add_metric([summary.name], is_failed)
                count = self._stores.jobs.count_failed(newest.id)
                failed_jobs.add_metric([summary.name], count)
            if summary.imported_at is not None:
                at = summary.imported_at.timestamp()
                imported.add_metric([summary.name], at)
        yield from (imported, bad_rows, failed, failed_jobs)

    def _rows(self) -> Iterator[Metric]:
        rows = gauge("dataset_rows")
        for name, count in self._facts.rows().items():
            rows.add_metric([name], count)
        yield rows

    def _schedules(self) -> Iterator[Metric]:
        by_status = gauge("schedules")
        overdue = gauge("schedule_overdue_seconds")
        intervals = gauge("dataset_interval_seconds")
        now = self._stores.jobs.now()
        counts: Counter[tuple[str, str]] = Counter()
        active: dict[str, list[Schedule]] = defaultdict(list)
        waits: dict[str, float] = defaultdict(float)
        for stored in self._stores.schedules.find(
            ScheduleFilter(), limit=MAX_SCHEDULES
        ):
            schedule = self._facts.parse_schedule(stored.declaration)
            if schedule is not None and schedule.paused:
                continue
            name = stored.declaration.dataset
            counts[name, stored.status] += 1
            if stored.status is ScheduleStatus.ACTIVE and schedule is not None:
                active[name].append(schedule)
                waits[name] = max(waits[name], seconds(overdue_by(stored, now)))
        for labels, count in counts.items():
            by_status.add_metric(labels, count)
        for dataset, wait in waits.items():
            overdue.add_metric([dataset], wait)
            interval = import_interval(active[dataset], now)
            if interval is not None:
                intervals.add_metric([dataset], seconds(interval))
        yield from (by_status, overdue, intervals)

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
        messages = gauge("outbox_messages")
        unsent = gauge("outbox_unsent_seconds")
        for kind in self._facts.messages:
            backlog = self._stores.outbox.backlog(kind)
            messages.add_metric([kind], backlog.messages)
            unsent.add_metric([kind], seconds(backlog.unsent_for))
        yield from (messages, unsent)

    def _maintenance(self) -> Iterator[Metric]:
        last_run = gauge("maintenance_last_run_timestamp_seconds")
        last_failure = gauge("maintenance_last_failure_timestamp_seconds")
        overdue = gauge("maintenance_overdue_seconds")
        failing = gauge("maintenance_failing_tasks")
        now = self._stores.jobs.now()
        runs: dict[str, list[datetime]] = defaultdict(list)
        failures: dict[str, list[datetime]] = defaultdict(list)
        waits: dict[str, list[timedelta]] = defaultdict(list)
        failed: Counter[str] = Counter()
        for task in self._stores.maintenance.tasks():
            # a one-off task is named by a number
            label = task.kind or task_label(task.name)
            if task.due_at is not None:
                wait = now - task.due_at if task.owner is None else timedelta()
                waits[label].append(wait)
                failed[label] += wait <= MAX_OVERDUE and has_failed(task)
            if task.last_run_at is not None:
                runs[label].append(task.last_run_at)
            if task.failed_at is not None:
                failures[label].append(task.failed_at)
        for metric, found in ((last_run, runs), (last_failure, failures)):
            for label, times in found.items():
                metric.add_metric([label], max(times).timestamp())
            yield metric
        for label, found_waits in waits.items():
            # of hosts and declarations that are gone nobody runs the tasks
            overdue.add_metric([label], seconds(min(found_waits)))
            failing.add_metric([label], failed[label])
        yield from (overdue, failing)

    def _replicas(self) -> Iterator[Metric]:
        in_rotation = gauge("replica_in_rotation")
        lag = gauge("replica_lag_bytes")
        for replica in self._facts.replicas():
            in_rotation.add_metric([replica.name], replica.is_in_rotation)
            if replica.lag is not None:
                lag.add_metric([replica.name], replica.lag)
        yield from (in_rotation, lag)

    def _disks(self) -> Iterator[Metric]:
        free = gauge("disk_free_bytes")
        size = gauge("disk_size_bytes")
        for name, path in self._facts.places.items():
            # a folder is created when it is first needed
            existing = next(each for each in (path, *path.parents) if each.exists())
            usage = disk_usage(existing)
            free.add_metric([name], usage.free)
            size.add_metric([name], usage.total)
        yield from (free, size)


def by_dataset(
    open_work: Sequence[OpenWork],
) -> Mapping[tuple[str, str], list[OpenWork]]:
    groups: dict[tuple[str, str], list[OpenWork]] = defaultdict(list)
    for work in open_work:
        groups[work.dataset, work.region or ""].append(work)
    return groups


def overdue_by(stored: StoredSchedule, now: datetime) -> timedelta | None:
    """Return how long a fire has been due; one that waits for an import is decided."""
    if stored.next_run_at is None or stored.waiting is not None:
        return None
    return now - stored.next_run_at


def has_failed(task: TaskState) -> bool:
    """Return whether the last run that has ended failed."""
    if task.failed_at is None or task.last_run_at is None:
        return False
    return task.failed_at >= task.last_run_at


def seconds(duration: timedelta | None) -> float:
    return 0.0 if duration is None else max(duration.total_seconds(), 0.0)
