"""Show how an import goes on: bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from penstock.domain.budget import Budget
from penstock.domain.job import Import, Shards

LINE_EVERY = 2.0
RATE_OVER = 5.0


class Show(Protocol):
    """Something that is told the state of an import now and then."""

    def __call__(self, known: Import, shards: Shards) -> None: ...


@dataclass(slots=True)
class Speed:
    """Requests a second over the last few seconds."""

    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def after(self, requests: int) -> float:
        now = time.monotonic()
        self.samples.append((now, requests))
        while now - self.samples[0][0] > RATE_OVER:
            self.samples.popleft()
        then, before = self.samples[0]
        return (requests - before) / (now - then) if now > then else 0.0


def time_left(known: Import, shards: Shards, speed: float) -> timedelta | None:
    """Guess from the finished shards what the open ones will take."""
    finished = shards.done + shards.failed + shards.split
    if not finished or not speed:
        return None
    requests = known.counts.requests / finished * shards.open
    return timedelta(seconds=round(requests / speed))


def describe(known: Import, speed: float, budget: Budget) -> str:
    counts = known.counts
    limit = f"/{budget.per_second:g}" if budget.limits else ""
    told = (
        f"{counts.pages:,} pages  {counts.seen:,} records  "
        f"{speed:.1f}{limit} requests/s"
    )
    if counts.quarantined:
        told += f"  {counts.quarantined:,} bad"
    if known.rescues:
        told += f"  {known.rescues} rescued"
    return told


@contextmanager
def progress(budget: Budget, *, quiet: bool) -> Iterator[Show]:
    """Yield what shows progress in the way that fits where we are."""
    if quiet:
        yield show_nothing
        return
    console = Console(stderr=True)
    if console.is_terminal:
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} shards"),
            TextColumn("{task.fields[told]}"),
            TextColumn("ETA {task.fields[left]}"),
            console=console,
        ) as bars:
            yield bar(bars, budget)
    else:
        yield lines(budget)


def show_nothing(known: Import, shards: Shards) -> None:
    del known, shards


def bar(bars: Progress, budget: Budget) -> Show:
    speed = Speed()
    task = bars.add_task("import", total=None, told="", left="-")

    def show(known: Import, shards: Shards) -> None:
        rate = speed.after(known.counts.requests)
        left = time_left(known, shards, rate)
        bars.update(
            task,
            description=f"{known.dataset} {known.mode}",
            total=shards.total,
            completed=shards.total - shards.open,
            told=describe(known, rate, budget),
            left="-" if left is None else str(left),
        )

    return show


def lines(budget: Budget) -> Show:
    speed = Speed()
    told_at = time.monotonic() - LINE_EVERY

    def show(known: Import, shards: Shards) -> None:
        nonlocal told_at
        rate = speed.after(known.counts.requests)
        now = time.monotonic()
        if now - told_at < LINE_EVERY and shards.open:
            return
        told_at = now
        left = time_left(known, shards, rate)
        finished = shards.total - shards.open
        eta = "" if left is None or not shards.open else f"  ETA {left}"
        print(  # noqa: T201 (progress is what the command line shows)
            f"{known.dataset} {known.mode}: {finished:,}/{shards.total:,} shards  "
            f"{describe(known, rate, budget)}{eta}",
            file=sys.stderr,
            flush=True,
        )

    return show
