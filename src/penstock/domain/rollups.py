"""Sums per minute of what an import and its provider did, and their series.

A series is a sum that only grows within its minute, so samples of several processes,
and minutes of an hour, are added. Times are sums of microseconds.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

MINUTE = timedelta(minutes=1)
# more than a chart can show
MAX_BUCKETS = 500


class SubjectKind(StrEnum):
    DATASET = "dataset"
    BUDGET = "budget"


class Subject(NamedTuple):
    """What a series is about."""

    kind: SubjectKind
    name: str


class Sample(NamedTuple):
    """What one process adds to a series."""

    subject: Subject
    series: str
    value: int


# upper bounds of the latency of requests, in milliseconds; a slower one is in the last
LATENCY_BOUNDS = (25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)
SLOWER = "latency_slower"
LATENCY_SERIES = (*(f"latency_{bound}ms" for bound in LATENCY_BOUNDS), SLOWER)
# requests by class of status; none: there was no complete response
REQUEST_SERIES = tuple(
    f"requests_{status}" for status in ("1xx", "2xx", "3xx", "4xx", "5xx", "none")
)
# of `Counts`
RECORD_SERIES = (
    "seen",
    "inserted",
    "updated",
    "unchanged",
    "deleted",
    "quarantined",
    "dropped",
    "duplicates",
)
SERIES: Mapping[SubjectKind, Sequence[str]] = {
    SubjectKind.DATASET: (
        *REQUEST_SERIES,
        # requests with status 429, and jobs put back after an error
        "throttled",
        "retried",
        "latency_us",
        *LATENCY_SERIES,
        "pages",
        *RECORD_SERIES,
    ),
    SubjectKind.BUDGET: ("tokens", "waited_us", "closures"),
}


def request_series(status: int | None) -> str:
    return "requests_none" if status is None else f"requests_{status // 100}xx"


def latency_series(took: timedelta) -> str:
    """Return the series that counts requests of such a latency."""
    milliseconds = took / timedelta(milliseconds=1)
    return LATENCY_SERIES[bisect_left(LATENCY_BOUNDS, milliseconds)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupWindow:
    """Whole minutes, in buckets of equally many; the last one may be shorter."""

    since: datetime
    until: datetime
    bucket_length: timedelta

    def __post_init__(self) -> None:
        if self.until <= self.since or self.bucket_length < MINUTE:
            raise ValueError(f"not a time with buckets: {self!r}")

    @property
    def buckets(self) -> int:
        return -((self.since - self.until) // self.bucket_length)


def window_of(since: datetime, until: datetime, *, buckets: int) -> RollupWindow:
    """Return the whole minutes around a time, in at most so many buckets."""
    since = since.replace(second=0, microsecond=0)
    until = max(end_of_minute(until), since + MINUTE)
    minutes = (until - since) // MINUTE
    return RollupWindow(
        since=since, until=until, bucket_length=MINUTE * -(-minutes // buckets)
    )


def last_window(until: datetime, length: timedelta, *, buckets: int) -> RollupWindow:
    """Return the time of such a length that ends with the minute of `until`."""
    until = end_of_minute(until)
    return window_of(until - length, until, buckets=buckets)


def end_of_minute(at: datetime) -> datetime:
    begin = at.replace(second=0, microsecond=0)
    return begin if begin == at else begin + MINUTE


def latency_quantile(
    series: Mapping[str, Sequence[int]], bucket: int, share: float
) -> timedelta | None:
    """Estimate below which latency a share of the requests was; None without any.

    Within its step of the histogram a latency is taken as evenly distributed; one that
    is slower than all steps counts as the slowest.
    """
    counts = [series[name][bucket] for name in LATENCY_SERIES]
    rest = share * sum(counts)
    if not rest:
        return None
    lower = 0
    for bound, count in zip(LATENCY_BOUNDS, counts, strict=False):
        if rest <= count:
            milliseconds = lower + (bound - lower) * rest / count
            return timedelta(milliseconds=milliseconds)
        rest -= count
        lower = bound
    return timedelta(milliseconds=lower)
