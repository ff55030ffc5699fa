"""Weekly windows in which a schedule does not fire: `Mon-Fri 08:00-10:00`."""

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Self
from zoneinfo import ZoneInfo

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = r"[A-Za-z]{3}"
WINDOW = re.compile(
    rf"((?P<days>{DAY}(-{DAY})?(,{DAY}(-{DAY})?)*)\s+)?"
    r"(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)"
)
MIDNIGHT_AT_THE_END = "24:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionWindow:
    """A part of each of its days, by wall time; one that ends earlier than it begins
    ends on the next day.
    """  # noqa: D205 (one sentence that needs two lines)

    text: str
    # Monday is 0
    days: frozenset[int]
    start: time
    # exclusive; midnight is the end of the day
    end: time

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a window; raises `ValueError` with the form that is expected."""
        match = WINDOW.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f"{text!r} is not a window such as 'Mon-Fri 08:00-10:00' or "
                "'22:00-02:00'"
            )
        end = match["end"]
        window = cls(
            text=text,
            days=parse_days(match["days"]),
            start=parse_time(match["start"]),
            end=time() if end == MIDNIGHT_AT_THE_END else parse_time(end),
        )
        if window.start == window.end and window.end != time():
            raise ValueError(f"{text!r} ends when it begins")
        return window

    def contains(self, instant: datetime, zone: ZoneInfo) -> bool:
        wall = instant.astimezone(zone)
        clock, weekday = wall.time(), wall.weekday()
        if self.start < self.end:
            return weekday in self.days and self.start <= clock < self.end
        day_before = (wall.date() - timedelta(days=1)).weekday()
        begins_today = weekday in self.days and clock >= self.start
        return begins_today or (day_before in self.days and clock < self.end)


def parse_days(text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset(range(len(WEEKDAYS)))
    days: set[int] = set()
    for term in text.split(","):
        first, _, last = term.lower().partition("-")
        unknown = [day for day in (first, last or first) if day not in WEEKDAYS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not one of {', '.join(WEEKDAYS)}")
        start, end = WEEKDAYS.index(first), WEEKDAYS.index(last or first)
        # Fri-Mon goes over the end of the week
        days.update((start + n) % 7 for n in range((end - start) % 7 + 1))
    return frozenset(days)


def parse_time(text: str) -> time:
    try:
        return time.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time of day such as 08:00") from None
