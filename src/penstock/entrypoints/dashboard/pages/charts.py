"""Charts over time, drawn as bars of SVG."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import isinf
from typing import NamedTuple

from penstock.domain.budget import Budget
from penstock.domain.formats import MICROSECOND
from penstock.domain.rollups import MINUTE, Subject, SubjectKind, last_window
from penstock.ports.rollups import Rollups

USAGE_LENGTH = timedelta(hours=1)
USAGE_BUCKETS = 60
# of the width of a bucket: the rest is a gap
BAR_SHARE = 0.8
# in percent of the height: a single request is still seen
MIN_HEIGHT = 2.0


class ChartBar(NamedTuple):
    """A bucket in which something happened; all in percent of the chart."""

    x: float
    width: float
    y: float
    height: float
    at: datetime
    value: int


class UsageChart(NamedTuple):
    """The requests that a budget has allowed in each minute of the last hour."""

    bars: Sequence[ChartBar]
    total: int
    # in one minute
    most: int
    # None: as many as one likes
    allowed: int | None
    # where the line of what is allowed is, in percent from the top
    allowed_y: float
    waited: timedelta


def draw_usage(rollups: Rollups, budget: Budget, now: datetime) -> UsageChart:
    """Draw what was used of a budget in the last hour against what it allows."""
    window = last_window(now, USAGE_LENGTH, buckets=USAGE_BUCKETS)
    series = rollups.read(Subject(SubjectKind.BUDGET, budget.name), window)
    tokens = series["tokens"]
    rate = budget.pacing_rate
    # one that is smaller than a request a minute is still one
    allowed = None if isinf(rate) else max(round(rate * 60), 1)
    most = max(tokens)
    top = max(most, allowed or 0, 1)
    return UsageChart(
        bars=[
            draw_bar(index, value / top, value, window.since + index * MINUTE)
            for index, value in enumerate(tokens)
            if value
        ],
        total=sum(tokens),
        most=most,
        allowed=allowed,
        allowed_y=round(100 - 100 * (allowed or 0) / top, 2),
        waited=sum(series["waited_us"]) * MICROSECOND,
    )


def draw_bar(index: int, share: float, value: int, at: datetime) -> ChartBar:
    bucket = 100 / USAGE_BUCKETS
    height = max(100 * share, MIN_HEIGHT)
    return ChartBar(
        x=round(index * bucket, 3),
        width=round(bucket * BAR_SHARE, 3),
        y=round(100 - height, 2),
        height=round(height, 2),
        at=at,
        value=value,
    )
