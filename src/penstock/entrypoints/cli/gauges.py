"""What is told of an import that goes on: how far it is, how fast, how long still."""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from rich.filesize import decimal as in_bytes

from penstock.domain.budget import Budget
from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, ImportId, JobStatus, Shards
from penstock.domain.progress import (
    PACE_OVER,
    RATE_OVER,
    REQUESTS_OVER,
    Clock,
    Speed,
    time_left,
)
from penstock.domain.source import CsvSource
from penstock.entrypoints.extent import Extent
from penstock.ports import JobFilter, Jobs
from penstock.wiring import Penstock

# jobs that are asked why they wait; they are begun in the order of their ids
LOOKED_AT = 20


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
    waiting = Waiting(
        penstock.stores.jobs, import_id, attempts=penstock.settings.attempts
    )
    return RequestGauge(penstock.budget(dataset), waiting)


class RequestGauge(Gauge):
    """Shards, pages and requests, beside what the budget allows."""

    def __init__(
        self, budget: Budget, waiting: "Waiting", clock: Clock = time.monotonic
    ) -> None:
        self._limit = limit_of(budget)
        self._waiting = waiting
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
        why = self._waiting.reason() if is_still else None
        return told if why is None else f"{told}  waiting: {why}"


def limit_of(budget: Budget) -> str:
    """Say what is allowed: for a moment a burst is faster than the rate."""
    if not budget.limits:
        return ""
    burst = f", burst {budget.burst}" if budget.burst > 1 else ""
    return f" (limit {', '.join(map(str, budget.limits))}{burst})"


class Waiting:
    """Why the jobs of an import do not go on, if they have met an error."""

    def __init__(self, jobs: Jobs, import_id: ImportId, *, attempts: int) -> None:
        self._jobs = jobs
        self._import_id = import_id
        self._attempts = attempts

    def reason(self) -> str | None:
        for status in (JobStatus.PENDING, JobStatus.LEASED):
            wanted = JobFilter(status=status, import_id=self._import_id)
            for job in self._jobs.find(wanted, after=None, limit=LOOKED_AT):
                # a page that came since has set them back
                if job.attempts and job.errors:
                    attempt = f"attempt {job.attempts} of {self._attempts}"
                    return f"{job.errors[-1].message} ({attempt})"
        return None


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
