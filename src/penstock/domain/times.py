"""How instants are counted: microseconds since 1970, in UTC; days by their ordinal."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def plain_time(value: Any) -> object:
    """Return a number for a time or a day, and anything else as it is."""
    if isinstance(value, datetime):
        return (value - EPOCH) // MICROSECOND
    if isinstance(value, date):
        return value.toordinal()
    return value


def plain_times(column: Sequence[Any]) -> Sequence[Any]:
    """Return what `plain_time` gives for each, at half the cost where all are times."""
    if set(map(type, column)) == {datetime}:
        return [(value - EPOCH) // MICROSECOND for value in column]
    return [*map(plain_time, column)]
