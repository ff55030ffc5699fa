"""What happens to the fires of a schedule: begun, waiting, skipped or missed."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby, islice, takewhile

from penstock.domain.scheduling.schedule import CatchUp, Overlap, Schedule

# a fire that is begun within this time is not late
ON_TIME = timedelta(minutes=1)
# fires that one tick decides, so that a year of missed seconds holds up nobody else
MAX_FIRES = 1_000
# how far back the previous fire is looked for: from frequent schedules to those of a
# leap day
LOOKBACKS = (
    timedelta(seconds=2),
    timedelta(minutes=2),
    timedelta(hours=3),
    timedelta(days=8),
    timedelta(days=400),
    timedelta(days=50 * 366),
)


class FireOutcome(StrEnum):
    STARTED = "started"
    # for the end of another import
    WAITING = "waiting"
    SKIPPED = "skipped"
    # nobody was there in time
    MISSED = "missed"


class SkipReason(StrEnum):
    OVERLAP = "overlap"
    PAUSED = "paused"
    EXCEPTION = "exception"
    TOO_OLD = "too_old"
    NO_SCHEDULER = "no_scheduler"
    BROKEN = "broken"
    # the import could not begin
    REFUSED = "refused"


MISSED_REASONS = frozenset({SkipReason.TOO_OLD, SkipReason.NO_SCHEDULER})


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFires:
    """Fires in a row that did not begin an import, for one reason."""

    first: datetime
    last: datetime
    count: int
    reason: SkipReason

    @property
    def outcome(self) -> FireOutcome:
        if self.reason in MISSED_REASONS:
            return FireOutcome.MISSED
        return FireOutcome.SKIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """Where a schedule stands when its fires are decided."""

    # all fires up to here have been decided
    considered_until: datetime
    # a fire that waits for the end of another import
    waiting: datetime | None = None
    # an import of its dataset and mode is unfinished
    is_running: bool = False
    # why no fire begins an import: paused, or broken
    stopped: SkipReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueFires:
    """Fires that are due, the oldest first."""

    fires: Sequence[datetime]
    # false: there may be more than one tick decides
    is_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FireDecision:
    considered_until: datetime
    skipped: tuple[SkippedFires, ...] = ()
    # begins an import
    start: datetime | None = None
    # after the unfinished import was cancelled
    cancel_running: bool = False
    # waits for the end of the unfinished import
    wait: datetime | None = None


def due_fires(schedule: Schedule, *, after: datetime, now: datetime) -> DueFires:
    """Return the fires later than `after` whose time has come."""
    latest = now - schedule.delay
    fires = takewhile(lambda fire: fire <= latest, schedule.trigger.fires_after(after))
    due = list(islice(fires, MAX_FIRES))
    return DueFires(fires=due, is_all=len(due) < MAX_FIRES)


def next_run(schedule: Schedule, after: datetime) -> datetime | None:
    """Return when the first fire later than `after` runs; None if none is left."""
    fire = next(schedule.trigger.fires_after(after), None)
    return None if fire is None else fire + schedule.delay


def previous_fire(schedule: Schedule, fire: datetime) -> datetime:
    """Return the fire before a fire, as if the schedule had always existed."""
    for span in LOOKBACKS:
        earlier = takewhile(
            lambda each: each < fire, schedule.trigger.fires_after(fire - span)
        )
        latest = deque(earlier, maxlen=1)
        if latest:
            return latest[0]
    raise ValueError(f"schedule {schedule.name!r} has no fire before {fire}")


def decide_fires(
    schedule: Schedule, state: ScheduleState, due: DueFires, *, now: datetime
) -> FireDecision:
    """Decide the due fires; each is begun, waits, or has a reason why not."""
    unchanged = FireDecision(considered_until=state.considered_until)
    if state.waiting is not None and state.stopped is not None:
        # the waiting fire is decided before what came after it
        waiting = group_skipped([(state.waiting, state.stopped)])
        return replace(unchanged, skipped=waiting)
    if state.waiting is not None and not state.is_running:
        return replace(unchanged, start=state.waiting)
    if not due.fires:
        return unchanged
    catches_up_all = schedule.catch_up is CatchUp.ALL
    if catches_up_all and state.waiting is not None and state.stopped is None:
        # later ranges come after it
        return unchanged

    reasons = [
        (fire, state.stopped or late_reason(schedule, fire, due, now=now))
        for fire in due.fires
    ]
    skipped: list[tuple[datetime, SkipReason]] = []
    for fire, reason in reasons:
        if reason is None:
            begun = decide_overlap(schedule, state, fire)
            return replace(begun, skipped=(*group_skipped(skipped), *begun.skipped))
        skipped.append((fire, reason))
    return FireDecision(considered_until=due.fires[-1], skipped=group_skipped(skipped))


def late_reason(
    schedule: Schedule, fire: datetime, due: DueFires, *, now: datetime
) -> SkipReason | None:
    """Return why a due fire begins no import, whatever else is running."""
    if schedule.exception_at(fire) is not None:
        return SkipReason.EXCEPTION
    place = len(due.fires) - bisect_left(due.fires, fire)
    max_fires = schedule.catch_up_max if schedule.catch_up is CatchUp.ALL else 1
    if not due.is_all or place > max_fires:
        return SkipReason.NO_SCHEDULER
    age = now - fire - schedule.delay
    return None if age <= ON_TIME else refuse_late(schedule, age, now=now)


def refuse_late(
    schedule: Schedule, age: timedelta, *, now: datetime
) -> SkipReason | None:
    """Return why a late fire is not caught up."""
    if schedule.catch_up is CatchUp.NONE:
        return SkipReason.NO_SCHEDULER
    if schedule.catch_up_age is not None and age > schedule.catch_up_age:
        return SkipReason.TOO_OLD
    # nor at a time when it would not have been begun
    is_excepted = schedule.exception_at(now) is not None
    return SkipReason.EXCEPTION if is_excepted else None


def decide_overlap(
    schedule: Schedule, state: ScheduleState, fire: datetime
) -> FireDecision:
    decision = FireDecision(considered_until=fire)
    if not state.is_running:
        return replace(decision, start=fire)
    if schedule.overlap is Overlap.CANCEL:
        return replace(decision, start=fire, cancel_running=True)
    if schedule.overlap is Overlap.QUEUE and state.waiting is None:
        return replace(decision, wait=fire)
    return replace(decision, skipped=group_skipped([(fire, SkipReason.OVERLAP)]))


def group_skipped(
    fires: Sequence[tuple[datetime, SkipReason]],
) -> tuple[SkippedFires, ...]:
    """Join fires in a row that have the same reason."""
    groups = []
    for reason, members in groupby(fires, key=lambda pair: pair[1]):
        times = [fire for fire, _ in members]
        groups.append(
            SkippedFires(
                first=times[0], last=times[-1], count=len(times), reason=reason
            )
        )
    return tuple(groups)
