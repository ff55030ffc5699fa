"""A schedule and its fires as JSON documents, the same in the CLI and the API."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice

from penstock.domain.scheduling.schedule import (
    AfterTrigger,
    CronTrigger,
    IntervalTrigger,
    OnceTrigger,
    Schedule,
)
from penstock.ports.schedules import Fire, StoredSchedule

# fires that are shown in advance
SHOWN_FIRES = 3
UNITS = {
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}


def describe_trigger(schedule: Schedule) -> str:
    """Write in words when a schedule fires."""
    match schedule.trigger:
        case CronTrigger(expression=expression, zone=zone):
            return f"{expression.in_words} ({zone.key})"
        case IntervalTrigger(interval=interval):
            return f"Every {count_units(interval)}"
        case OnceTrigger(at=at):
            return f"Once, at {at.astimezone(schedule.zone).isoformat()}"
        case AfterTrigger(datasets=datasets):
            return f"After a newer proven import of {' and '.join(datasets)}"


def count_units(interval: timedelta) -> str:
    """Write an interval in its largest unit: `15 minutes`, `90 minutes`, `hour`."""
    for noun, unit in UNITS.items():
        number, rest = divmod(interval, unit)
        if not rest:
            return noun if number == 1 else f"{number:,} {noun}s"
    return f"{interval.total_seconds():g} seconds"


def upcoming_fires(schedule: Schedule, after: datetime) -> list[dict[str, object]]:
    """Return the next fires in UTC and in the zone of the schedule, without jitter."""
    fires = islice(schedule.trigger.fires_after(after), SHOWN_FIRES)
    return [
        {
            "fire_at": fire,
            "local": fire.astimezone(schedule.zone).isoformat(),
            # the window in which it is skipped
            "exception": None
            if (window := schedule.exception_at(fire)) is None
            else window.text,
        }
        for fire in fires
    ]


def describe_schedule(
    stored: StoredSchedule, schedule: Schedule | None
) -> dict[str, object]:
    """Describe a stored schedule; it has no `Schedule` if its fields are invalid."""
    return {
        "name": stored.name,
        "dataset": stored.declaration.dataset,
        "origin": stored.origin.value,
        "fields": dict(stored.declaration.fields),
        "trigger": None if schedule is None else describe_trigger(schedule),
        "status": stored.status.value,
        "note": stored.note,
        "conflict": stored.conflict,
        "waiting": stored.waiting,
        "next_run_at": stored.next_run_at,
        "last_run_at": stored.last_run_at,
        "created_at": stored.created_at,
    }


def describe_fires(fires: Sequence[Fire]) -> list[dict[str, object]]:
    return [
        {
            "fire_id": fire.id,
            "fire_at": fire.fire_at,
            # of fires in a row that were skipped for one reason
            "last_fire_at": fire.last_fire_at,
            "count": fire.count,
            "requested": bool(fire.request),
            "outcome": fire.outcome.value,
            "reason": fire.reason,
            "detail": fire.detail,
            "import_id": fire.import_id,
            "import_status": None
            if fire.import_status is None
            else fire.import_status.value,
            "decided_at": fire.decided_at,
        }
        for fire in fires
    ]
