"""The rate of an import, and its estimated time left."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from penstock.domain.jobs import Import, Shards

Clock: TypeAlias = Callable[[], float]

RATE_WINDOW = 5.0
# a burst is faster than the sustained rate; a longer window evens it out
REQUESTS_WINDOW = 30.0
# a compressed file completes all at once, so its pace shows only over a longer time
PACE_WINDOW = 60.0


@dataclass(slots=True)
class RateMeter:
    """A rate per second over a sliding window."""

    over: float = RATE_WINDOW
    clock: Clock = time.monotonic
    samples: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def span(self) -> float:
        """The seconds between the first and the last sample."""
        return self.samples[-1][0] - self.samples[0][0] if self.samples else 0.0

    @property
    def is_measured(self) -> bool:
        """Whether there are samples enough for a rate."""
        return len(self.samples) > 1

    def after(self, done: int) -> float:
        """Add a sample of a running total; return the rate."""
        now = self.clock()
        self.samples.append((now, done))
        while now - self.samples[0][0] > self.over:
            self.samples.popleft()
        then, before = self.samples[0]
        return (done - before) / (now - then) if now > then else 0.0


def estimate_time_left(
    current: Import, shards: Shards, speed: float
) -> timedelta | None:
    """Estimate from the finished shards how long the open ones will take.

    Failed shards have cost requests, but there is no estimate from them alone.
    """
    completed = shards.done + shards.split
    if not (completed and current.counts.pages and speed):
        return None
    finished = completed + shards.failed
    requests = current.counts.requests / finished * shards.open

    return timedelta(seconds=round(requests / speed))
