"""What is told of an import that goes on: how far it is, how fast, how long still."""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from rich.filesize import decimal as in_bytes

from penstock.domain.budget import Budget
from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, ImportId, Shards
from penstock.domain.progress import PACE_OVER, Clock, Speed, time_left
from penstock.domain.source import CsvSource
from penstock.entrypoints.extent import Extent
from penstock.wiring import Penstock


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


def trouble(known: Import) -> str:
    bad = f"  {known.counts.quarantined:,} bad" if known.counts.quarantined else ""
    return bad + (f"  {known.rescues} rescued" if known.rescues else "")
