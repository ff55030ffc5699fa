"""Show the progress of an import: a bar on a terminal, plain lines elsewhere."""

import dataclasses
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from penstock.domain.events import Event, JobPostponed
from penstock.domain.jobs import Import, Shards
from penstock.entrypoints.cli.output.import_progress import ProgressGauge
from penstock.errors import StoreTimeout, StoreUnavailable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

LINE_INTERVAL = 2.0
# how the JSON log names the event, and its error codes that are about a store
POSTPONED_EVENT = '"event": "job_postponed"'
STORE_CODES = frozenset({StoreTimeout.code, StoreUnavailable.code})
# with fewer columns there is no room for a bar beside the figures
MIN_BAR_WIDTH = 120


class ProgressDisplay(Protocol):
    """Shows the state of an import whenever it is called."""

    def __call__(self, import_: Import, shards: Shards) -> None: ...

    def say(self, text: str) -> None:
        """Print a message beside the state."""
        ...


@contextmanager
def progress(gauge: ProgressGauge, *, quiet: bool) -> Iterator[ProgressDisplay]:
    """Yield the display that fits standard error: none, bar or lines."""
    if quiet:
        yield NoProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        is_narrow = console.width < MIN_BAR_WIDTH
        columns = [
            TextColumn("{task.description}"),
            TextColumn("{task.fields[extent]}"),
            TextColumn("ETA {task.fields[left]}"),
            TextColumn("{task.fields[figures]}"),
        ]
        bar = [] if is_narrow else [SpinnerColumn(), BarColumn(bar_width=28)]
        with Progress(*bar, *columns, console=console) as bars:
            yield ProgressBar(bars, gauge)
    else:
        yield ProgressLines(console, gauge)


class PageRetries:
    """Collects messages about pages retried because a store was slow or unavailable."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()

    def listen(self, event: Event) -> None:
        if isinstance(event, JobPostponed):
            self._add(dataclasses.asdict(event))

    def read_log(self, lines: Iterable[str]) -> None:
        """Read the same events from the log of other processes."""
        for line in lines:
            if POSTPONED_EVENT in line:
                with suppress(ValueError):
                    self._add(json.loads(line))

    def _add(self, event: Mapping[str, Any]) -> None:
        if event["code"] in STORE_CODES:
            self._lines.append(
                f"a page of job {event['job']}, shard {event['shard']}, was "
                f"not stored: {event['message']}; retrying "
                f"(attempt {event['snoozes'] + 1})"
            )

    def take(self) -> Iterator[str]:
        """Yield and remove the collected messages."""
        while self._lines:
            yield self._lines.popleft()


class NoProgress(ProgressDisplay):
    """Shows nothing, for `--json`."""

    def __call__(self, import_: Import, shards: Shards) -> None: ...

    def say(self, text: str) -> None: ...


class ProgressBar(ProgressDisplay):
    """A progress bar with figures beside it."""

    def __init__(self, bars: "Progress", gauge: ProgressGauge) -> None:
        self._bars = bars
        self._gauge = gauge
        self._task = bars.add_task("import", total=0, extent="", figures="", left="-")

    def __call__(self, import_: Import, shards: Shards) -> None:
        now = self._gauge(import_, shards)
        self._bars.update(
            self._task,
            description=f"{import_.dataset} {import_.mode}",
            total=now.total,
            completed=now.done,
            extent=now.extent,
            figures=now.text,
            left="-" if now.left is None else str(now.left),
        )

    def say(self, text: str) -> None:
        self._bars.console.print(text, markup=False)


class ProgressLines(ProgressDisplay):
    """Prints a line every few seconds, for logs and pipes."""

    def __init__(self, console: "Console", gauge: ProgressGauge) -> None:
        self._console = console
        self._gauge = gauge
        self._printed_at = time.monotonic() - LINE_INTERVAL

    def __call__(self, import_: Import, shards: Shards) -> None:
        figures = self._gauge(import_, shards)
        now = time.monotonic()
        if now - self._printed_at < LINE_INTERVAL and shards.open:
            return
        self._printed_at = now
        has_no_eta = figures.left is None or not shards.open
        eta = "" if has_no_eta else f"  ETA {figures.left}"
        self.say(
            f"{import_.dataset} {import_.mode}: {figures.extent}  {figures.text}{eta}"
        )

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
