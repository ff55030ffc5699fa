"""Cron expressions in a time zone, with one rule for changes of the clock.

The hour field alone decides. With `*` or `*/n` there, real time counts: every instant
whose wall time matches is a fire, so that `*/15 * * * *` fires every quarter of an hour
that really passes. With any other hour field, each wall time fires once: in a doubled
hour at its first occurrence; what a gap leaves out becomes one fire at the gap's end.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELD_COUNT = 5
# hours that come by real time
EVERY_HOUR = re.compile(r"\*(/\d+)?")
# where the search for the next change of the clock stops: every zone that changes it
# does so within a year
CLOCK_HORIZON = timedelta(days=400)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
# leap years repeat their weekdays after 28 years, 40 around a century without one
LONGEST_PAUSE_START = datetime(2000, 1, 1)  # noqa: DTZ001 (wall time)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """Five fields, or a macro such as `@daily`; raises `ValueError` otherwise."""

    text: str

    def __post_init__(self) -> None:
        if len(self.fields.split()) != FIELD_COUNT:
            macros = ", ".join(MACROS)
            raise ValueError(
                "must have five fields (minute, hour, day, month, weekday), "
                f"or be one of {macros}"
            )
        try:
            comes = next(CronSim(self.fields, LONGEST_PAUSE_START), None)
        except CronSimError as error:
            raise ValueError(
                f"{error} in {self.text!r}".replace("Bad", "bad")
            ) from None
        if comes is None:
            raise ValueError(f"{self.text!r} names a date that never comes")

    @property
    def fields(self) -> str:
        return MACROS.get(self.text.strip().lower(), self.text)

    @property
    def in_words(self) -> str:
        return CronSim(self.fields, LONGEST_PAUSE_START).explain()

    def fires_after(self, instant: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """Yield the fires later than an instant, in order, in UTC."""
        hours = self.fields.split()[1]
        if EVERY_HOUR.fullmatch(hours):
            return self._by_real_time(instant.astimezone(UTC), zone)
        return self._by_wall_time(instant.astimezone(UTC), zone)

    def _by_real_time(self, instant: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        start = instant
        while True:
            end = next_clock_change(start, zone)
            offset = utc_offset(start, zone)
            # a fire at the start of a period belongs to it
            for wall in self._walls_after(start + offset - SECOND):
                fire = wall.replace(tzinfo=UTC) - offset
                if fire >= end:
                    break
                if fire > instant:
                    yield fire
            start = end

    def _by_wall_time(self, instant: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        latest = instant
        for wall in self._walls_after(instant + utc_offset(instant, zone)):
            fire = first_occurrence(wall, zone)
            # several times that one gap leaves out are one fire
            if fire > latest:
                latest = fire
                yield fire

    def _walls_after(self, wall: datetime) -> Iterator[datetime]:
        return CronSim(self.fields, wall.replace(tzinfo=None))


def utc_offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()


def first_occurrence(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant of a wall time, or the end of the gap it falls in."""
    before = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if before.astimezone(zone).replace(tzinfo=None) == wall:
        return before
    after = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return bisect_clock_change(after, before, zone)


def next_clock_change(instant: datetime, zone: ZoneInfo) -> datetime:
    """Return the next instant at which a zone's offset changes, at most the horizon."""
    offset = utc_offset(instant, zone)
    horizon = instant + CLOCK_HORIZON
    while instant < horizon:
        later = instant + DAY
        if utc_offset(later, zone) != offset:
            return bisect_clock_change(instant, later, zone)
        instant = later
    return instant


def bisect_clock_change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Return the first second with the offset of `after`."""
    offset = utc_offset(after, zone)
    while after - before > SECOND:
        middle = before + (after - before) // 2
        if utc_offset(middle, zone) == offset:
            after = middle
        else:
            before = middle
    return after.replace(microsecond=0)


def next_fires(
    expression: CronExpression, instant: datetime, zone: ZoneInfo, *, count: int
) -> list[datetime]:
    return list(islice(expression.fires_after(instant, zone), count))
