"""What is told of an import that goes on: how far it is, how fast, how long still."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, TypeAlias

from rich.filesize import decimal as in_bytes

from penstock.domain.budget import Budget
from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, ImportId, Shards
from penstock.domain.source import CsvSource
from penstock.entrypoints.cli.extent import Extent
from penstock.wiring import Penstock

Clock: TypeAlias = Callable[[], float]

RATE_OVER = 5.0
# a packed file is done all at once, so its pace shows only over a longer time
PACE_OVER = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """An import at one moment."""

    done: int
    total: int
    # both of them with their unit
    extent: str
    told: str
    left: timedelta | None


class Gauge(Protocol):
    """Something that reads the figures of an import; each reading tells the pace."""

    def __call__(self, known: Import, shards: Shards) -> Figures: ...


def gauge_for(penstock: Penstock, dataset: Dataset, import_id: ImportId) -> Gauge:
    """Return what fits the source: a provider is asked, and a file is read."""
    if isinstance(dataset.source, CsvSource):
        return FileGauge(Extent(penstock.stores.jobs, import_id))
    return RequestGauge(penstock.budget(dataset))


@dataclass(slots=True)
class Speed:
    """How much a second over the last few seconds."""

    over: float = RATE_OVER
    clock: Clock = time.monotonic
    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def after(self, done: int) -> float:
        now = self.clock()
        self.samples.append((now, done))
        while now - self.samples[0][0] > self.over:
            self.samples.popleft()
        then, before = self.samples[0]
        return (done - before) / (now - then) if now > then else 0.0


class RequestGauge(Gauge):
    """Shards, pages and requests, beside what the budget allows."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._speed = Speed()

    def __call__(self, known: Import, shards: Shards) -> Figures:
        rate = self._speed.after(known.counts.requests)
        finished = shards.total - shards.open
        return Figures(
            done=finished,
            total=shards.total,
            extent=f"{finished:,}/{shards.total:,} shards",
            told=self._describe(known, rate),
            left=time_left(known, shards, rate),
        )

    def _describe(self, known: Import, speed: float) -> str:
        counts, budget = known.counts, self._budget
        limit = f" of {budget.fastest:g}" if budget.limits else ""
        told = f"{counts.pages:,} pages {counts.seen:,} records {speed:.1f}{limit}/s"
        return told + trouble(known)


class FileGauge(Gauge):
    """Bytes and rows."""

    def __init__(self, extent: Extent, clock: Clock = time.monotonic) -> None:
        self._extent = extent
        self._rows = Speed(clock=clock)
        self._bytes = Speed(clock=clock)
        self._pace = Speed(over=PACE_OVER, clock=clock)

    def __call__(self, known: Import, shards: Shards) -> Figures:
        del shards
        done, total = self._extent.look()
        pace = self._pace.after(done)
        return Figures(
            done=done,
            total=total,
            extent=f"{in_bytes(done)} of {in_bytes(total)}",
            told=self._describe(known, done) + trouble(known),
            left=timedelta(seconds=round((total - done) / pace)) if pace else None,
        )

    def _describe(self, known: Import, done: int) -> str:
        rows = known.counts.seen
        speed, rate = self._bytes.after(done), self._rows.after(rows)
        if not rate:
            return f"{rows:,} rows"
        return f"{rows:,} rows  {in_bytes(int(speed))}/s {rate:,.0f} rows/s"


def time_left(known: Import, shards: Shards, speed: float) -> timedelta | None:
    """Guess from the finished shards what the open ones will take."""
    finished = shards.done + shards.failed + shards.split
    if not finished or not speed:
        return None
    requests = known.counts.requests / finished * shards.open
    return timedelta(seconds=round(requests / speed))


def trouble(known: Import) -> str:
    bad = f"  {known.counts.quarantined:,} bad" if known.counts.quarantined else ""
    return bad + (f"  {known.rescues} rescued" if known.rescues else "")
