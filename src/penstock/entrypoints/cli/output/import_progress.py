"""Progress of a running import: done, rate and remaining time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias

from rich.filesize import decimal as in_bytes

from penstock.domain.budget import Budget
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Import, ImportId, Shards
from penstock.domain.progress import (
    PACE_WINDOW,
    RATE_WINDOW,
    REQUESTS_WINDOW,
    Clock,
    RateMeter,
    estimate_time_left,
)
from penstock.domain.source import CsvSource
from penstock.domain.waiting import Waiting, WaitReason
from penstock.entrypoints.file_progress import FileProgress
from penstock.entrypoints.waiting_text import describe_waiting
from penstock.wiring import Container

# explains what an import waits for
Explain: TypeAlias = Callable[[Import], Waiting | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressFigures:
    """The progress of an import at one moment."""

    done: int
    total: int
    # both as text with their unit
    extent: str
    text: str
    left: timedelta | None


class ProgressGauge(Protocol):
    """Computes the figures of an import; rates come from successive calls."""

    def __call__(self, import_: Import, shards: Shards) -> ProgressFigures: ...


def gauge_for(
    penstock: Container, dataset: Dataset, import_id: ImportId
) -> ProgressGauge:
    """Return the gauge for the source: bytes of files, or requests."""
    if isinstance(dataset.source, CsvSource):
        files = FileProgress(penstock.stores.jobs, import_id)
        return ByteProgress(files, penstock.explain_waiting)
    return RequestProgress(penstock.budget(dataset), penstock.explain_waiting)


class RequestProgress(ProgressGauge):
    """Shards, pages and requests, with the limits of the budget."""

    def __init__(
        self, budget: Budget, explain: Explain, clock: Clock = time.monotonic
    ) -> None:
        self._limit = describe_limit(budget)
        self._explain = explain
        self._requests = RateMeter(over=REQUESTS_WINDOW, clock=clock)
        self._pages = RateMeter(clock=clock)

    def __call__(self, import_: Import, shards: Shards) -> ProgressFigures:
        rate = self._requests.after(import_.counts.requests)
        # failed shards have ended, but are not done
        done = shards.done + shards.split
        failed = f", {shards.failed:,} failed" if shards.failed else ""
        return ProgressFigures(
            done=done,
            total=shards.total,
            extent=f"{done:,}/{shards.total:,} shards{failed}",
            text=self._describe(import_, rate),
            left=estimate_time_left(import_, shards, rate),
        )

    def _describe(self, import_: Import, rate: float) -> str:
        counts = import_.counts
        text = f"{counts.pages:,} pages {counts.seen:,} records"
        if self._requests.span >= RATE_WINDOW:
            text += f" {rate:.1f}/s"
        text += self._limit + describe_problems(import_)
        is_stalled = not self._pages.after(counts.pages)
        return text + (why_waiting(import_, self._explain) if is_stalled else "")


def why_waiting(import_: Import, explain: Explain) -> str:
    waiting = explain(import_)
    # the command that shows this starts workers itself; they may not be ready yet
    if waiting is None or waiting.reason is WaitReason.NO_WORKER:
        return ""
    return f"  waiting: {describe_waiting(waiting)}"


def describe_limit(budget: Budget) -> str:
    """Describe rate and burst: for a moment a burst is faster than the rate."""
    if not budget.limits:
        return ""
    burst = f", burst {budget.burst}" if budget.burst > 1 else ""
    return f" (limit {', '.join(map(str, budget.limits))}{burst})"


class ByteProgress(ProgressGauge):
    """Bytes and rows."""

    def __init__(
        self, files: FileProgress, explain: Explain, clock: Clock = time.monotonic
    ) -> None:
        self._files = files
        self._explain = explain
        self._rows = RateMeter(clock=clock)
        self._bytes = RateMeter(clock=clock)
        self._pace = RateMeter(over=PACE_WINDOW, clock=clock)

    def __call__(self, import_: Import, shards: Shards) -> ProgressFigures:
        del shards
        done, total = self._files.read()
        pace = self._pace.after(done)
        return ProgressFigures(
            done=done,
            total=total,
            extent=f"{in_bytes(done)} of {in_bytes(total)}",
            text=self._describe(import_, done) + describe_problems(import_),
            left=timedelta(seconds=round((total - done) / pace)) if pace else None,
        )

    def _describe(self, import_: Import, done: int) -> str:
        rows = import_.counts.seen
        speed, rate = self._bytes.after(done), self._rows.after(rows)
        if not rate:
            return f"{rows:,} rows{why_waiting(import_, self._explain)}"
        return f"{rows:,} rows  {in_bytes(int(speed))}/s {rate:,.0f} rows/s"


def describe_problems(import_: Import) -> str:
    bad = f"  {import_.counts.quarantined:,} bad" if import_.counts.quarantined else ""
    return bad + (f"  {import_.rescues} rescued" if import_.rescues else "")
