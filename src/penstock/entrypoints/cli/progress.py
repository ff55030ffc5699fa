"""Show how an import goes on: bars on a terminal, plain lines elsewhere."""

import dataclasses
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from penstock.domain.events import Event, JobPostponed
from penstock.domain.job import Import, Shards
from penstock.entrypoints.cli.gauges import Gauge
from penstock.errors import StoreTooSlow, StoreUnavailable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

LINE_EVERY = 2.0
# how a log names the event, and what it says of a store
POSTPONED = '"event": "job_postponed"'
STORE_CODES = frozenset({StoreTooSlow.code, StoreUnavailable.code})
# below this many columns the figures need the place of the bar
NARROW = 120


class Show(Protocol):
    """Something that is told the state of an import now and then."""

    def __call__(self, known: Import, shards: Shards) -> None: ...

    def say(self, text: str) -> None:
        """Tell something beside the state."""
        ...


@contextmanager
def progress(gauge: Gauge, *, quiet: bool) -> Iterator[Show]:
    """Yield what shows progress in the way that fits where we are."""
    if quiet:
        yield Silence()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        is_narrow = console.width < NARROW
        columns = [
            TextColumn("{task.description}"),
            TextColumn("{task.fields[extent]}"),
            TextColumn("ETA {task.fields[left]}"),
            TextColumn("{task.fields[told]}"),
        ]
        bar = [] if is_narrow else [SpinnerColumn(), BarColumn(bar_width=28)]
        with Progress(*bar, *columns, console=console) as bars:
            yield Bar(bars, gauge)
    else:
        yield Lines(console, gauge)


class PageRetries:
    """What is said of pages that are tried again because a store was slow or away."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()

    def listen(self, event: Event) -> None:
        if isinstance(event, JobPostponed):
            self._add(dataclasses.asdict(event))

    def read_log(self, lines: Iterable[str]) -> None:
        """Take the same events from what other processes have logged."""
        for line in lines:
            if POSTPONED in line:
                with suppress(ValueError):
                    self._add(json.loads(line))

    def _add(self, postponed: Mapping[str, Any]) -> None:
        if postponed["code"] in STORE_CODES:
            self._lines.append(
                f"a page of job {postponed['job']}, shard {postponed['shard']}, was "
                f"not stored: {postponed['message']}; trying again "
                f"(attempt {postponed['snoozes'] + 1})"
            )

    def take(self) -> Iterator[str]:
        """Yield what was not said yet."""
        while self._lines:
            yield self._lines.popleft()


class Silence(Show):
    """Nothing, for those who want only the result."""

    def __call__(self, known: Import, shards: Shards) -> None: ...

    def say(self, text: str) -> None: ...


class Bar(Show):
    """One bar, with what else is known beside it."""

    def __init__(self, bars: "Progress", gauge: Gauge) -> None:
        self._bars = bars
        self._gauge = gauge
        self._task = bars.add_task("import", total=0, extent="", told="", left="-")

    def __call__(self, known: Import, shards: Shards) -> None:
        now = self._gauge(known, shards)
        self._bars.update(
            self._task,
            description=f"{known.dataset} {known.mode}",
            total=now.total,
            completed=now.done,
            extent=now.extent,
            told=now.told,
            left="-" if now.left is None else str(now.left),
        )

    def say(self, text: str) -> None:
        self._bars.console.print(text, markup=False)


class Lines(Show):
    """A plain line every few seconds, for logs and pipes."""

    def __init__(self, console: "Console", gauge: Gauge) -> None:
        self._console = console
        self._gauge = gauge
        self._told_at = time.monotonic() - LINE_EVERY

    def __call__(self, known: Import, shards: Shards) -> None:
        figures = self._gauge(known, shards)
        now = time.monotonic()
        if now - self._told_at < LINE_EVERY and shards.open:
            return
        self._told_at = now
        is_over = figures.left is None or not shards.open
        eta = "" if is_over else f"  ETA {figures.left}"
        self.say(f"{known.dataset} {known.mode}: {figures.extent}  {figures.told}{eta}")

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
