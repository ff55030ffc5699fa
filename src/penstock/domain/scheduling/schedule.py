"""A schedule: which dataset is imported, when, and what happens to each fire."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import NewType, TypeAlias
from zoneinfo import ZoneInfo

from penstock.domain.dataset import DatasetName
from penstock.domain.formats import EPOCH, MICROSECOND
from penstock.domain.jobs import Mode
from penstock.domain.scheduling.cron import CronExpression
from penstock.domain.scheduling.exception_windows import ExceptionWindow

ScheduleName = NewType("ScheduleName", str)

# fires after one another, between which the longest pause is found: more than a week's
COMPARED_FIRES = 9

UTC_ZONE = ZoneInfo("UTC")


class Overlap(StrEnum):
    """What happens to a fire while an import of its dataset and mode is unfinished."""

    SKIP = "skip"
    # one fire waits for the end of that import
    QUEUE = "queue"
    # that import is cancelled
    CANCEL = "cancel"


class CatchUp(StrEnum):
    """Which of the fires that no scheduler saw are made up for."""

    NONE = "none"
    LATEST = "latest"
    # only of backfills, each of which has a time range of its own
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class CronTrigger:
    expression: CronExpression
    zone: ZoneInfo

    def fires_after(self, instant: datetime) -> Iterator[datetime]:
        return self.expression.fires_after(instant, self.zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalTrigger:
    """Multiples of an interval since the UTC epoch: restarts do not shift them."""

    interval: timedelta

    def fires_after(self, instant: datetime) -> Iterator[datetime]:
        number = (instant - EPOCH) // self.interval + 1
        return (EPOCH + n * self.interval for n in itertools.count(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceTrigger:
    at: datetime

    def fires_after(self, instant: datetime) -> Iterator[datetime]:
        return iter([self.at.astimezone(UTC)] if self.at > instant else [])


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterTrigger:
    """Fires when each of these datasets has a newer proven import."""

    datasets: tuple[DatasetName, ...]

    def fires_after(self, instant: datetime) -> Iterator[datetime]:
        """Yield nothing: such fires depend on imports, not on the clock."""
        del instant
        return iter(())


Trigger: TypeAlias = CronTrigger | IntervalTrigger | OnceTrigger | AfterTrigger


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDeclaration:
    """A schedule as it is stored: its fields as they are written, in JSON's types."""

    name: ScheduleName
    dataset: DatasetName
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    name: ScheduleName
    dataset: DatasetName
    trigger: Trigger
    # none: delta where it is declared and has a watermark, else full
    mode: Mode | None = None
    # of the exceptions
    zone: ZoneInfo = UTC_ZONE
    jitter: timedelta = timedelta()
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.LATEST
    # how many fires are caught up at most with `all`
    catch_up_max: int = 10
    # older fires are not caught up
    catch_up_age: timedelta | None = None
    exceptions: tuple[ExceptionWindow, ...] = ()
    # so many failures in a row pause it
    pause_after: int | None = None
    # as declared; an operator's pause is not part of the declaration
    paused: bool = False
    # its full imports may have more duplicates than the dataset declares
    accept_duplicates: bool = False

    @property
    def delay(self) -> timedelta:
        """How much later than its fires this schedule runs, the same each time."""
        digest = blake2b(self.name.encode(), digest_size=8).digest()
        share = int.from_bytes(digest) / 2**64
        return self.jitter * share // MICROSECOND * MICROSECOND

    def exception_at(self, fire: datetime) -> ExceptionWindow | None:
        """Return the window in which a fire falls, if any."""
        return next(
            (window for window in self.exceptions if window.contains(fire, self.zone)),
            None,
        )


def import_interval(schedules: Iterable[Schedule], now: datetime) -> timedelta | None:
    """Return how often a dataset is imported by its schedules; None if only once.

    Of a schedule with irregular fires its longest pause counts, so that a dataset of
    working days is not late on a Sunday.
    """
    pauses = (longest_pause(schedule.trigger, now) for schedule in schedules)
    return min((pause for pause in pauses if pause is not None), default=None)


def longest_pause(trigger: Trigger, now: datetime) -> timedelta | None:
    fires = itertools.islice(trigger.fires_after(now), COMPARED_FIRES)
    pairs = itertools.pairwise(fires)
    return max((later - earlier for earlier, later in pairs), default=None)
