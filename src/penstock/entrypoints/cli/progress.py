"""Show how an import goes on: bars on a terminal, plain lines elsewhere."""

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
# below this many columns the figures need the place of the bar
NARROW = 120


class Show(Protocol):
    """Something that is told the state of an import now and then."""

    def __call__(self, known: Import, shards: Shards) -> None: ...

    def say(self, text: str) -> None:
        """Tell something beside the state."""
        ...


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
    limit = f" of {budget.fastest:g}" if budget.limits else ""
    told = f"{counts.pages:,} pages {counts.seen:,} records {speed:.1f}{limit}/s"
    if counts.quarantined:
        told += f"  {counts.quarantined:,} bad"
    if known.rescues:
        told += f"  {known.rescues} rescued"
    return told


@contextmanager
def progress(budget: Budget, *, quiet: bool) -> Iterator[Show]:
    """Yield what shows progress in the way that fits where we are."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        yield Silence()
    elif console.is_terminal:
        is_narrow = console.width < NARROW
        columns = [
            TextColumn("{task.description}"),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} shards"),
            TextColumn("ETA {task.fields[left]}"),
            TextColumn("{task.fields[told]}"),
        ]
        bar = [] if is_narrow else [SpinnerColumn(), BarColumn(bar_width=28)]
        with Progress(*bar, *columns, console=console) as bars:
            yield Bar(bars, budget)
    else:
        yield Lines(console, budget)


class Silence(Show):
    """Nothing, for those who want only the result."""

    def __call__(self, known: Import, shards: Shards) -> None: ...

    def say(self, text: str) -> None: ...


class Bar(Show):
    """One bar of shards, with what else is known beside it."""

    def __init__(self, bars: Progress, budget: Budget) -> None:
        self._bars = bars
        self._budget = budget
        self._speed = Speed()
        self._task = bars.add_task("import", total=0, told="", left="-")

    def __call__(self, known: Import, shards: Shards) -> None:
        rate = self._speed.after(known.counts.requests)
        left = time_left(known, shards, rate)
        self._bars.update(
            self._task,
            description=f"{known.dataset} {known.mode}",
            total=shards.total,
            completed=shards.total - shards.open,
            told=describe(known, rate, self._budget),
            left="-" if left is None else str(left),
        )

    def say(self, text: str) -> None:
        self._bars.console.print(text, markup=False)


class Lines(Show):
    """A plain line every few seconds, for logs and pipes."""

    def __init__(self, console: Console, budget: Budget) -> None:
        self._console = console
        self._budget = budget
        self._speed = Speed()
        self._told_at = time.monotonic() - LINE_EVERY

    def __call__(self, known: Import, shards: Shards) -> None:
        rate = self._speed.after(known.counts.requests)
        now = time.monotonic()
        if now - self._told_at < LINE_EVERY and shards.open:
            return
        self._told_at = now
        left = time_left(known, shards, rate)
        finished = shards.total - shards.open
        eta = "" if left is None or not shards.open else f"  ETA {left}"
        self.say(
            f"{known.dataset} {known.mode}: {finished:,}/{shards.total:,} shards  "
            f"{describe(known, rate, self._budget)}{eta}"
        )

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
