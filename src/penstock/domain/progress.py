"""How fast an import goes on, and how long it will still take."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from penstock.domain.job import Import, Shards

Clock: TypeAlias = Callable[[], float]

RATE_OVER = 5.0
# a burst makes requests seem faster than they may go on, the less the longer one looks
REQUESTS_OVER = 30.0
# a packed file is done all at once, so its pace shows only over a longer time
PACE_OVER = 60.0


@dataclass(slots=True)
class Speed:
    """How much a second over the last few seconds."""

    over: float = RATE_OVER
    clock: Clock = time.monotonic
    samples: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def span(self) -> float:
        """The seconds that it is measured over."""
        return self.samples[-1][0] - self.samples[0][0] if self.samples else 0.0

    @property
    def is_measured(self) -> bool:
        """Whether there is more than one look to tell it by."""
        return len(self.samples) > 1

    def after(self, done: int) -> float:
        now = self.clock()
        self.samples.append((now, done))
        while now - self.samples[0][0] > self.over:
            self.samples.popleft()
        then, before = self.samples[0]
        return (done - before) / (now - then) if now > then else 0.0


def time_left(known: Import, shards: Shards, speed: float) -> timedelta | None:
    """Guess from the finished shards what the open ones will take.

    Those that failed have cost requests, but alone they tell nothing of the others.
    """
    brought = shards.done + shards.split
    if not (brought and known.counts.pages and speed):
        return None
    finished = brought + shards.failed
    requests = known.counts.requests / finished * shards.open
    return timedelta(seconds=round(requests / speed))
