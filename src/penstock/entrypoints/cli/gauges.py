"""What is told of an import that goes on: how far it is, how fast, how long still."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias

from rich.filesize import decimal as in_bytes

from penstock.domain.budget import Budget
from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, ImportId, Shards
from penstock.domain.progress import (
    PACE_OVER,
    RATE_OVER,
    REQUESTS_OVER,
    Clock,
    Speed,
    time_left,
)
from penstock.domain.source import CsvSource
from penstock.domain.waiting import Waiting, WaitReason
from penstock.entrypoints.extent import Extent
from penstock.entrypoints.waiting_text import describe_waiting
from penstock.wiring import Penstock

# says what an import waits for
Explain: TypeAlias = Callable[[Import], Waiting | None]


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
        extent = Extent(penstock.stores.jobs, import_id)
        return FileGauge(extent, penstock.explain_waiting)
    return RequestGauge(penstock.budget(dataset), penstock.explain_waiting)


class RequestGauge(Gauge):
    """Shards, pages and requests, beside what the budget allows."""

    def __init__(
        self, budget: Budget, explain: Explain, clock: Clock = time.monotonic
    ) -> None:
        self._limit = limit_of(budget)
        self._explain = explain
        self._requests = Speed(over=REQUESTS_OVER, clock=clock)
        self._pages = Speed(clock=clock)

    def __call__(self, known: Import, shards: Shards) -> Figures:
        rate = self._requests.after(known.counts.requests)
        # those that failed have ended, but brought nothing
        done = shards.done + shards.split
        lost = f", {shards.failed:,} failed" if shards.failed else ""
        return Figures(
            done=done,
            total=shards.total,
            extent=f"{done:,}/{shards.total:,} shards{lost}",
            told=self._describe(known, rate),
            left=time_left(known, shards, rate),
        )

    def _describe(self, known: Import, rate: float) -> str:
        counts = known.counts
        told = f"{counts.pages:,} pages {counts.seen:,} records"
        if self._requests.span >= RATE_OVER:
            told += f" {rate:.1f}/s"
        told += self._limit + trouble(known)
        is_still = not self._pages.after(counts.pages)
        return told + (why_waiting(known, self._explain) if is_still else "")


def why_waiting(known: Import, explain: Explain) -> str:
    waiting = explain(known)
    # whoever shows this brings workers of its own, which may still be starting
    if waiting is None or waiting.reason is WaitReason.NO_WORKER:
        return ""
    return f"  waiting: {describe_waiting(waiting)}"


def limit_of(budget: Budget) -> str:
    """Say what is allowed: for a moment a burst is faster than the rate."""
    if not budget.limits:
        return ""
    burst = f", burst {budget.burst}" if budget.burst > 1 else ""
    return f" (limit {', '.join(map(str, budget.limits))}{burst})"


class FileGauge(Gauge):
    """Bytes and rows."""

    def __init__(
        self, extent: Extent, explain: Explain, clock: Clock = time.monotonic
    ) -> None:
        self._extent = extent
        self._explain = explain
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
            return f"{rows:,} rows{why_waiting(known, self._explain)}"
        return f"{rows:,} rows  {in_bytes(int(speed))}/s {rate:,.0f} rows/s"


def trouble(known: Import) -> str:
    bad = f"  {known.counts.quarantined:,} bad" if known.counts.quarantined else ""
    return bad + (f"  {known.rescues} rescued" if known.rescues else "")
