"""An overview of rows by the values of a field: the most frequent, or ranges."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, TypeAlias

from penstock.domain.dataset import FieldType
from penstock.domain.queries.search import MOST_VALUES

# values that have an order in which distances mean something
RANGED = frozenset(
    {FieldType.INT, FieldType.FLOAT, FieldType.DATE, FieldType.TIMESTAMP}
)
MOST_RANGES = 10
STEPS = (1, 2, 5)
# the months after which a range of times ends, from the smallest on
MONTHS = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000, 12000)
SPANS = (
    *(timedelta(seconds=each) for each in (1, 5, 15, 30)),
    *(timedelta(minutes=each) for each in (1, 5, 15, 30)),
    *(timedelta(hours=each) for each in (1, 3, 6, 12)),
    *(timedelta(days=each) for each in (1, 2, 7, 14)),
)
DAY = timedelta(days=1)
# a Monday, from which spans are counted
START = datetime(2001, 1, 1, tzinfo=UTC)
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)

Number: TypeAlias = int | float


@dataclass(frozen=True, slots=True)
class Range:
    """Values from the first bound on, and before the last."""

    start: object
    end: object
    rows: int


def is_ranged(kind: FieldType, distinct: int) -> bool:
    """Say whether values are so many that only ranges of them tell something."""
    return kind in RANGED and distinct > MOST_VALUES


def ranges(counted: Mapping[object, int]) -> Sequence[Range]:
    """Divide values of one type into a few ranges with round bounds."""
    values: list[Any] = [*counted]
    values.sort()
    edges = [*edges_of(values[0], values[-1])]
    found = []
    at = 0
    for start, end in pairwise(edges):
        rows = 0
        while at < len(values) and values[at] < end:
            rows += counted[values[at]]
            at += 1
        found.append(Range(start, end, rows))
    # the last day of the calendar has no bound behind it
    left = sum(counted[value] for value in values[at:])
    return [*found[:-1], replace(found[-1], rows=found[-1].rows + left)]


def edges_of(first: object, last: object) -> Iterator[object]:
    """Yield round bounds, the first at or before a value, the last after another."""
    if isinstance(first, datetime) and isinstance(last, datetime):
        return time_edges(first, last)
    if isinstance(first, date) and isinstance(last, date):
        days = time_edges(midnight(first), midnight(last), least=DAY)
        return (each.date() for each in days)
    if isinstance(first, int | float) and isinstance(last, int | float):
        return number_edges(first, last)
    raise TypeError(f"there are no ranges of {type(first).__name__}")


def number_edges(first: Number, last: Number) -> Iterator[Number]:
    is_whole = isinstance(first, int) and isinstance(last, int)
    step, digits = step_for(first, last, is_whole=is_whole)
    at = first // step
    while True:
        edge = at * step
        yield int(edge) if is_whole else bounded(round(edge, digits))
        if edge > last:
            return
        at += 1


def step_for(first: Number, last: Number, *, is_whole: bool) -> tuple[Number, int]:
    """Return a round step of which a few lead to the end, and its digits."""
    # two numbers may be further apart than any is large, but not by half the way
    half = max(last / 2 - first / 2, abs(last) * 1e-12, 1e-300)
    power = 0 if is_whole else math.floor(math.log10(half)) - 2
    while True:
        for step in STEPS:
            size = step * 10**power
            if half / size < MOST_RANGES / 2:
                return size, max(-power, 0)
        power += 1


def bounded(number: Number) -> Number:
    """Return what can be written: two numbers may be further apart than any is."""
    largest = sys.float_info.max
    return max(-largest, min(number, largest))


def time_edges(
    first: datetime, last: datetime, *, least: timedelta = SPANS[0]
) -> Iterator[datetime]:
    span = last - first
    for step in SPANS:
        if step >= least and span / step < MOST_RANGES:
            yield from span_edges(first, last, step)
            return
    months = (last.year - first.year) * 12 + last.month - first.month
    yield from month_edges(
        first,
        last,
        next(each for each in MONTHS if months / each < MOST_RANGES),
    )


def span_edges(first: datetime, last: datetime, step: timedelta) -> Iterator[datetime]:
    at = first - min((first - START) % step, first - FIRST)
    while at <= last and at <= LAST - step:
        yield at
        at += step
    yield at
    if at <= last:
        yield LAST


def month_edges(first: datetime, last: datetime, step: int) -> Iterator[datetime]:
    at = (first.year * 12 + first.month - 1) // step * step
    while True:
        year, month = divmod(at, 12)
        if year > LAST.year:
            yield LAST
            return
        # there is no year 0
        edge = datetime(max(year, 1), month + 1, 1, tzinfo=UTC)
        yield edge
        if edge > last:
            return
        at += step


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
