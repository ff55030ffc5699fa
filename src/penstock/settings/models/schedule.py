"""The [schedules.*] tables, and the schedules that the API creates."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Annotated, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, PlainValidator
from typing_extensions import override

from penstock.domain.dataset import DatasetName
from penstock.domain.jobs import Mode
from penstock.domain.scheduling.cron import CronExpression, first_occurrence
from penstock.domain.scheduling.exception_windows import ExceptionWindow
from penstock.domain.scheduling.schedule import (
    UTC_ZONE,
    AfterTrigger,
    CatchUp,
    CronTrigger,
    IntervalTrigger,
    OnceTrigger,
    Overlap,
    Schedule,
    ScheduleName,
    Trigger,
)
from penstock.settings import units
from penstock.settings.models.base import (
    Duration,
    DurationOrNone,
    Text,
    Texts,
    TomlModel,
    as_list,
)
from penstock.settings.validation_errors import InvalidValue, Problem, did_you_mean

TRIGGERS = ("cron", "every", "at", "after")
MIN_INTERVAL = timedelta(seconds=1)
MAX_CATCH_UP = 1_000
MAX_FAILURES = 1_000
# of a single fire; arithmetic with dates ends soon after
MIN_YEAR, MAX_YEAR = 1970, 9000
# fires whose distances are compared with the jitter
COMPARED_FIRES = 200
COMPARED_SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def as_cron(value: object) -> CronExpression:
    if not isinstance(value, str):
        raise InvalidValue("must be text such as '*/15 * * * *'")
    try:
        return CronExpression(value)
    except ValueError as error:
        raise InvalidValue(str(error)) from None


def as_interval(value: object) -> timedelta:
    interval = units.parse_duration(value)
    if interval < MIN_INTERVAL:
        raise InvalidValue(f"{value!r} is shorter than a second")
    return interval


def as_moment(value: object) -> datetime:
    """Parse a date and time; without an offset it is a wall time of the time zone."""
    try:
        moment = (
            value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        )
    except ValueError:
        form = "a date and time such as '2026-12-24T18:00:00'"
        raise InvalidValue(f"{value!r} is not {form}") from None
    if not MIN_YEAR <= moment.year <= MAX_YEAR:
        raise InvalidValue(f"is not between the years {MIN_YEAR} and {MAX_YEAR}")
    return moment


def as_zone(value: object) -> ZoneInfo:
    try:
        return ZoneInfo(str(value))
    except (LookupError, ValueError, OSError):
        # hundreds of names, so only read where one is wrong
        from zoneinfo import available_timezones

        suggestion = did_you_mean(str(value), available_timezones())
        if not suggestion.startswith("did you"):
            suggestion = "write one such as 'Europe/Berlin'"
        raise InvalidValue(f"{value!r} is no time zone; {suggestion}") from None


def as_window(value: object) -> ExceptionWindow:
    try:
        return ExceptionWindow.parse(str(value))
    except ValueError as error:
        raise InvalidValue(str(error)) from None


Cron: TypeAlias = Annotated[CronExpression, PlainValidator(as_cron)]
Interval: TypeAlias = Annotated[timedelta, PlainValidator(as_interval)]
Zone: TypeAlias = Annotated[ZoneInfo, PlainValidator(as_zone)]
Window: TypeAlias = Annotated[ExceptionWindow, PlainValidator(as_window)]


class ScheduleTable(TomlModel):
    dataset: Text
    cron: Cron | None = None
    every: Interval | None = None
    at: Annotated[datetime, PlainValidator(as_moment)] | None = None
    after: Annotated[Texts, Field(min_length=1)] | None = None
    mode: Annotated[Mode, Field(strict=False)] | None = None
    timezone: Zone = UTC_ZONE
    jitter: DurationOrNone = timedelta()
    overlap: Annotated[Overlap, Field(strict=False)] = Overlap.SKIP
    catch_up: Annotated[CatchUp, Field(strict=False)] = CatchUp.LATEST
    catch_up_max: Annotated[int, Field(ge=1, le=MAX_CATCH_UP)] = 10
    catch_up_age: Duration | None = None
    # `except` is a word of Python
    exceptions: Annotated[list[Window], BeforeValidator(as_list)] = Field(
        default_factory=list, alias="except"
    )
    pause_after: Annotated[int, Field(ge=1, le=MAX_FAILURES)] | None = None
    paused: bool = False
    accept_duplicates: bool = False

    @override
    def rules(self) -> Iterator[Problem]:
        given = [name for name in TRIGGERS if getattr(self, name) is not None]
        if not given:
            message = "says when it fires; add one of cron, every, at, after"
            yield (), f"nothing {message}"
        for name in given[1:]:
            yield (name,), f"a schedule has one trigger, and {given[0]} is given"
        if len(given) == 1:
            yield from self.time_rules(given[0])
        yield from self.catch_up_rules()
        if self.accept_duplicates and self.mode not in {None, Mode.FULL}:
            message = f'has no meaning with mode = "{self.mode}"'
            yield ("accept_duplicates",), f"{message}, whose rows may replace others"

    def time_rules(self, trigger: str) -> Iterator[Problem]:
        has_zone = "timezone" in self.model_fields_set
        if has_zone and trigger in {"every", "after"} and not self.exceptions:
            message = f"has no meaning with {trigger}, which counts real time"
            yield ("timezone",), f"{message}; remove it"
        if self.at is not None and self.at.tzinfo is not None and has_zone:
            yield ("timezone",), "has no meaning for a time with its offset; remove it"
        shortest = self.shortest_distance()
        if self.jitter and shortest is None:
            yield ("jitter",), f"has no meaning with {trigger}; remove it"
        elif shortest is not None and self.jitter * 2 > shortest:
            limit = units.format_duration(shortest / 2)
            yield ("jitter",), f"is longer than half of what is between fires, {limit}"

    def shortest_distance(self) -> timedelta | None:
        """Return the shortest time between fires; None if they do not repeat."""
        if self.every is not None:
            return self.every
        if self.cron is None:
            return None
        fires = islice(self.cron.fires_after(COMPARED_SINCE, UTC_ZONE), COMPARED_FIRES)
        return min(later - earlier for earlier, later in pairwise(fires))

    def catch_up_rules(self) -> Iterator[Problem]:
        is_all = self.catch_up is CatchUp.ALL
        if is_all and self.mode is not Mode.BACKFILL:
            message = "each fire of other modes imports what the latest does"
            yield ("catch_up",), f'is for mode = "backfill"; {message}'
        if is_all and self.overlap is not Overlap.QUEUE:
            message = "or a range could be left out while another is imported"
            yield ("overlap",), f'must be "queue" with catch_up = "all", {message}'
        if "catch_up_max" in self.model_fields_set and not is_all:
            yield ("catch_up_max",), 'has no meaning without catch_up = "all"'
        if self.catch_up is CatchUp.NONE and self.catch_up_age is not None:
            yield ("catch_up_age",), 'has no meaning with catch_up = "none"'
        if self.mode is Mode.BACKFILL and (self.at or self.after):
            message = "imports what is between two fires; use cron or every"
            yield ("mode",), f"backfill {message}"


def build_schedule(name: str, table: ScheduleTable) -> Schedule:
    return Schedule(
        name=ScheduleName(name),
        dataset=DatasetName(table.dataset),
        trigger=build_trigger(table),
        mode=table.mode,
        zone=table.timezone,
        jitter=table.jitter,
        overlap=table.overlap,
        catch_up=table.catch_up,
        catch_up_max=table.catch_up_max,
        catch_up_age=table.catch_up_age,
        exceptions=tuple(table.exceptions),
        pause_after=table.pause_after,
        paused=table.paused,
        accept_duplicates=table.accept_duplicates,
    )


def build_trigger(table: ScheduleTable) -> Trigger:
    zone = table.timezone
    if table.cron is not None:
        return CronTrigger(expression=table.cron, zone=zone)
    if table.every is not None:
        return IntervalTrigger(interval=table.every)
    if table.at is not None:
        if table.at.tzinfo is not None:
            return OnceTrigger(at=table.at.astimezone(UTC))
        return OnceTrigger(at=first_occurrence(table.at, zone))
    return AfterTrigger(datasets=tuple(map(DatasetName, table.after or ())))
