"""Facets of a field: its most frequent values, or ranges of values."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeAlias

from penstock.domain.dataset import FieldType
from penstock.domain.search.search_query import MAX_FACET_VALUES

# types with meaningful distances between values
RANGED_TYPES = frozenset(
    {
        *(FieldType.INT, FieldType.FLOAT, FieldType.DECIMAL),
        *(FieldType.DATE, FieldType.TIMESTAMP),
    }
)
MAX_RANGES = 10
STEPS = (1, 2, 5)
# lengths of time ranges in months
MONTHS = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000, 12000)
SPANS = (
    *(timedelta(seconds=each) for each in (1, 5, 15, 30)),
    *(timedelta(minutes=each) for each in (1, 5, 15, 30)),
    *(timedelta(hours=each) for each in (1, 3, 6, 12)),
    *(timedelta(days=each) for each in (1, 2, 7, 14)),
)
DAY = timedelta(days=1)
# a Monday, the origin of spans
START = datetime(2001, 1, 1, tzinfo=UTC)
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)

Number: TypeAlias = int | float


@dataclass(frozen=True, slots=True)
class FacetRange:
    """The values from `start` up to, not including, `end`."""

    start: object
    end: object
    rows: int


def is_ranged(kind: FieldType, distinct: int) -> bool:
    """Return whether there are so many values that ranges are shown instead."""
    return kind in RANGED_TYPES and distinct > MAX_FACET_VALUES


def build_ranges(counted: Mapping[object, int]) -> Sequence[FacetRange]:
    """Divide values of one type into a few ranges with round bounds."""
    values: list[Any] = [*counted]
    values.sort()
    edges = [*round_edges(values[0], values[-1])]
    ranges = []
    at = 0
    for start, end in pairwise(edges):
        rows = 0
        while at < len(values) and values[at] < end:
            rows += counted[values[at]]
            at += 1
        ranges.append(FacetRange(start, end, rows))
    # the last day of the calendar has no bound after it
    remaining = sum(counted[value] for value in values[at:])
    last = ranges[-1]
    return [*ranges[:-1], replace(last, rows=last.rows + remaining)]


def round_edges(first: object, last: object) -> Iterator[object]:
    """Yield round bounds from at or before the first value to after the last."""
    if isinstance(first, datetime) and isinstance(last, datetime):
        return time_edges(first, last)
    if isinstance(first, date) and isinstance(last, date):
        days = time_edges(midnight(first), midnight(last), min_span=DAY)
        return (day.date() for day in days)
    if isinstance(first, Decimal) and isinstance(last, Decimal):
        # round bounds have few digits
        edges = number_edges(float(first), float(last))
        return (Decimal(repr(edge)) for edge in edges)
    if isinstance(first, int | float) and isinstance(last, int | float):
        return number_edges(first, last)
    raise TypeError(f"there are no ranges of {type(first).__name__}")


def number_edges(first: Number, last: Number) -> Iterator[Number]:
    is_whole = isinstance(first, int) and isinstance(last, int)
    step, digits = choose_step(first, last, is_whole=is_whole)
    at = first // step
    while True:
        edge = at * step
        yield int(edge) if is_whole else clamp(round(edge, digits))
        if edge > last:
            return
        at += 1


def choose_step(first: Number, last: Number, *, is_whole: bool) -> tuple[Number, int]:
    """Return a round step that gives a few ranges, and its decimal digits."""
    # the distance of two floats may overflow, but half of it cannot
    half = max(last / 2 - first / 2, abs(last) * 1e-12, 1e-300)
    power = 0 if is_whole else math.floor(math.log10(half)) - 2
    while True:
        for step in STEPS:
            size = step * 10**power
            if half / size < MAX_RANGES / 2:
                return size, max(-power, 0)
        power += 1


def clamp(number: Number) -> Number:
    """Return a finite float: an edge may exceed the largest one."""
    largest = sys.float_info.max
    return max(-largest, min(number, largest))


def time_edges(
    first: datetime, last: datetime, *, min_span: timedelta = SPANS[0]
) -> Iterator[datetime]:
    span = last - first
    for step in SPANS:
        if step >= min_span and span / step < MAX_RANGES:
            yield from span_edges(first, last, step)
            return
    months = (last.year - first.year) * 12 + last.month - first.month
    yield from month_edges(
        first,
        last,
        next(step for step in MONTHS if months / step < MAX_RANGES),
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
