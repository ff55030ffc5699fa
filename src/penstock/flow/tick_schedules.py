"""Begin the imports whose time has come, and note why others are not begun."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from penstock.domain.dataset import Dataset
from penstock.domain.events import FiresSkipped, ScheduleFired, ScheduleStopped
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Import, ImportId, Mode
from penstock.domain.scheduling.fires import (
    DueFires,
    FireDecision,
    ScheduleState,
    SkippedFires,
    SkipReason,
    decide_fires,
    due_fires,
    next_run,
    previous_fire,
)
from penstock.domain.scheduling.schedule import (
    AfterTrigger,
    Schedule,
    ScheduleDeclaration,
)
from penstock.domain.source import CsvSource
from penstock.errors import Conflict, DatasetGone, Misconfigured
from penstock.flow.plan import Plan
from penstock.ports import Emit, Redact, Stores
from penstock.ports.idempotency import ImportSpec
from penstock.ports.schedules import (
    FireRequest,
    ScheduleChange,
    ScheduleStatus,
    StoredSchedule,
)
from penstock.ports.tracing import NO_TRACER, Tracer

# schedules that one tick decides
BATCH = 100
# the shortest and the longest time between two ticks: new schedules are found after it
MIN_PAUSE = timedelta(milliseconds=200)
MAX_PAUSE = timedelta(seconds=5)
# while a schedule waits for the end of an import
PENDING_PAUSE = timedelta(seconds=1)
# when a schedule whose fields cannot be read is looked at again
BROKEN_INTERVAL = timedelta(minutes=1)

# a schedule, if its fields can be read, and what is wrong with it
ParseSchedule: TypeAlias = Callable[
    [ScheduleDeclaration], tuple[Schedule | None, str | None]
]


class ImportUnfinished(Exception):
    """Another import of the kind has begun meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginImport:
    """Decides what an import that begins by itself covers, and whether it can."""

    plan: Plan
    stores: Stores
    declaration: Callable[[Dataset], str]
    find_files: Callable[[Dataset], object]
    tracer: Tracer = NO_TRACER

    def mode(self, dataset: Dataset, declared: Mode | None) -> Mode:
        """Return the declared mode; or delta where it is possible, else full."""
        if declared is not None:
            return declared
        has_delta = dataset.delta is not None
        if has_delta and self.stores.records.watermark(dataset) is not None:
            return Mode.DELTA
        return Mode.FULL

    def spec(self, dataset: Dataset, requested: ImportScope) -> ImportSpec:
        """Return what to store; raises `Misconfigured` if that cannot be imported."""
        scope = self.plan.scope(dataset, requested)
        if isinstance(dataset.source, CsvSource):
            # only checks that they exist: scanning them may take an hour
            self.find_files(dataset)
        else:
            self.plan.axes(dataset)
        return ImportSpec(
            scope=scope,
            declaration=self.declaration(dataset),
            approve=refuse_unfinished,
            traceparent=self.tracer.traceparent(),
        )


def refuse_unfinished(import_: Import, _: object) -> None:
    raise ImportUnfinished(import_.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickSchedules:
    datasets: Mapping[str, Dataset]
    stores: Stores
    parse: ParseSchedule
    begin_import: BeginImport
    redact: Redact
    emit: Emit
    # plans a stored import in the background
    plan_import: Callable[[ImportId], None]
    # when this process started, by the database's clock
    started_at: datetime

    def __call__(self) -> timedelta:
        """Decide what is due; return when to look again."""
        fires = self.stores.fires
        now = self.stores.jobs.now()
        for stored in fires.due(limit=BATCH):
            self._tick(stored, now)
        upcoming = fires.upcoming()
        longest = PENDING_PAUSE if upcoming.has_pending else MAX_PAUSE
        wait = longest if upcoming.wait is None else min(upcoming.wait, longest)
        return max(wait, MIN_PAUSE)

    def _tick(self, stored: StoredSchedule, now: datetime) -> None:
        schedule, problem = self.parse(stored.declaration)
        is_foreign = stored.declared_at is not None and (
            stored.declared_at > self.started_at
        )
        if problem is not None and is_foreign:
            # declared for the datasets of a process that started later
            return
        current = self._with_status(stored, schedule, problem)
        if schedule is None:
            change = replace(unchanged(current), next_run_at=now + BROKEN_INTERVAL)
            self.stores.fires.record(stored, change)
            return
        decided = self._decide(current, schedule, now)
        if decided is not None and decided != unchanged(stored):
            self._record(stored, decided)

    def _with_status(
        self, stored: StoredSchedule, schedule: Schedule | None, problem: str | None
    ) -> StoredSchedule:
        """Return a schedule as it is now: broken, whole again, or failing too often."""
        status, note = stored.status, stored.note
        if status is ScheduleStatus.PAUSED:
            return stored
        if problem is not None:
            status, note = ScheduleStatus.BROKEN, self.redact(problem)
        elif schedule is not None and self._fails(stored, schedule):
            count = schedule.pause_after
            status, note = ScheduleStatus.PAUSED, f"{count} imports in a row failed"
        elif status is ScheduleStatus.BROKEN:
            status, note = ScheduleStatus.ACTIVE, None
        if status is not stored.status and status is not ScheduleStatus.ACTIVE:
            self.emit(
                ScheduleStopped(
                    schedule=stored.name,
                    dataset=stored.declaration.dataset,
                    status=status,
                    reason=note or "",
                )
            )
        return replace(stored, status=status, note=note)

    def _fails(self, stored: StoredSchedule, schedule: Schedule) -> bool:
        count = schedule.pause_after
        if count is None:
            return False
        results = self.stores.fires.results(stored, limit=count)
        return len(results) == count and not any(results)

    def _decide(
        self, stored: StoredSchedule, schedule: Schedule, now: datetime
    ) -> ScheduleChange | None:
        """Begin an import if one is due; else return what is to be recorded."""
        dataset = self.datasets.get(schedule.dataset)
        mode, running = None, None
        if dataset is not None and stored.status is ScheduleStatus.ACTIVE:
            mode = self.begin_import.mode(dataset, schedule.mode)
            running = self.stores.fires.unfinished(dataset.name, mode)
        state = ScheduleState(
            considered_until=stored.considered_until,
            waiting=stored.waiting,
            is_running=running is not None,
            stopped=stop_reason(stored.status),
        )
        due = self._due(schedule, stored, now)
        decision = decide_fires(schedule, state, due, now=now)
        change = describe_change(stored, schedule, decision)
        if decision.start is None or dataset is None or mode is None:
            return change
        if decision.cancel_running and running is not None:
            reason = f"schedule {schedule.name!r} began another (overlap = cancel)"
            self.stores.imports.cancel(running, reason=reason)
        return self._begin(stored, schedule, dataset, change, decision.start, mode)

    def _due(
        self, schedule: Schedule, stored: StoredSchedule, now: datetime
    ) -> DueFires:
        if not isinstance(schedule.trigger, AfterTrigger):
            return due_fires(schedule, after=stored.considered_until, now=now)
        parents = schedule.trigger.datasets
        ended = self.stores.fires.newest_proven(parents)
        is_due = all(
            parent in ended and ended[parent] > stored.considered_until
            for parent in parents
        )
        return DueFires(fires=[max(ended.values())] if is_due else [], is_all=True)

    def _begin(
        self,
        stored: StoredSchedule,
        schedule: Schedule,
        dataset: Dataset,
        change: ScheduleChange,
        fire: datetime,
        mode: Mode,
    ) -> ScheduleChange | None:
        requested = scope_now(schedule, mode)
        if mode is Mode.BACKFILL:
            since = previous_fire(schedule, fire)
            requested = ImportScope(mode=mode, since=since, until=fire)
        try:
            with self.begin_import.tracer.span("begin import") as span:
                if span.is_recording:
                    span.set("penstock.dataset", dataset.name)
                    span.set("penstock.schedule", schedule.name)
                spec = self.begin_import.spec(dataset, requested)
                request = FireRequest(fire_at=fire, spec=spec)
                started = self.stores.fires.begin(stored, change, dataset, request)
        except ImportUnfinished:
            # the next tick meets it
            return None
        except (Misconfigured, Conflict, DatasetGone) as error:
            refused = SkippedFires(
                first=fire, last=fire, count=1, reason=SkipReason.REFUSED
            )
            skipped = (*change.skipped, refused)
            detail = self.redact(str(error))
            return replace(change, skipped=skipped, detail=detail)
        if started is None:
            return None
        self._emit_skipped(stored, change)
        self.emit(
            ScheduleFired(
                schedule=schedule.name,
                dataset=dataset.name,
                import_id=started.id,
                fire_at=fire,
            )
        )
        self.plan_import(started.id)
        return None

    def _record(self, stored: StoredSchedule, change: ScheduleChange) -> None:
        if self.stores.fires.record(stored, change):
            self._emit_skipped(stored, change)

    def _emit_skipped(self, stored: StoredSchedule, change: ScheduleChange) -> None:
        for skipped in change.skipped:
            self.emit(
                FiresSkipped(
                    schedule=stored.name,
                    dataset=stored.declaration.dataset,
                    reason=skipped.reason,
                    first=skipped.first,
                    last=skipped.last,
                    count=skipped.count,
                    detail=change.detail,
                )
            )


def scope_now(schedule: Schedule, mode: Mode) -> ImportScope:
    """Return the scope of an import without bounds of its own."""
    is_full = mode is Mode.FULL
    return ImportScope(
        mode=mode, accept_duplicates=is_full and schedule.accept_duplicates
    )


def stop_reason(status: ScheduleStatus) -> SkipReason | None:
    if status is ScheduleStatus.PAUSED:
        return SkipReason.PAUSED
    return SkipReason.BROKEN if status is ScheduleStatus.BROKEN else None


def describe_change(
    stored: StoredSchedule, schedule: Schedule, decision: FireDecision
) -> ScheduleChange:
    waiting = decision.wait or stored.waiting
    decided = {decision.start, *(group.first for group in decision.skipped)}
    if stored.waiting in decided and decision.wait is None:
        waiting = None
    next_run_at = next_run(schedule, decision.considered_until)
    is_broken = stored.status is ScheduleStatus.BROKEN
    is_over = (
        next_run_at is None
        and waiting is None
        and not isinstance(schedule.trigger, AfterTrigger)
    )
    return ScheduleChange(
        considered_until=decision.considered_until,
        next_run_at=next_run_at,
        waiting=waiting,
        status=ScheduleStatus.ENDED if is_over else stored.status,
        note=stored.note,
        skipped=decision.skipped,
        detail=stored.note if decision.skipped and is_broken else None,
    )


def unchanged(stored: StoredSchedule) -> ScheduleChange:
    return ScheduleChange(
        considered_until=stored.considered_until,
        next_run_at=stored.next_run_at,
        waiting=stored.waiting,
        status=stored.status,
        note=stored.note,
    )
