"""The threads of one worker process."""

import gc
import math
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from types import FrameType

from penstock import __version__
from penstock.domain.dataset import Dataset
from penstock.domain.events import WorkerFailed, WorkerStarted, WorkerStopped
from penstock.entrypoints.worker.planner import ImportPlanner
from penstock.entrypoints.worker.scheduler import schedules_task
from penstock.errors import Misconfigured, PenstockError
from penstock.flow.job_claimer import JobClaimer, Worker
from penstock.flow.work import Work
from penstock.ports import WorkNotifier
from penstock.ports.workers import WorkerAnnouncement
from penstock.wiring import (
    Container,
    build_maintenance,
    build_runtime,
    new_worker_id,
)

# seconds between two checks for a notification while idle
LISTEN_INTERVAL = 0.05
# the shortest pause of an idle thread between two polls, in seconds
MIN_IDLE_PAUSE = 0.25
# how long a thread pauses after an error, in seconds
ERROR_PAUSE = 1.0
# the longest pause with --until-idle, which exits when nothing is left, in seconds
MAX_PAUSE_UNTIL_IDLE = 1.0
# how often a worker process announces itself, and how long that is valid
PRESENCE_INTERVAL = timedelta(seconds=5)
PRESENCE_TIMEOUT = timedelta(seconds=15)
# the file descriptor of standard input
STDIN = 0
# Rows are allocated by the thousand and have no reference cycles: with Python's
# default threshold, garbage collection is a fifth of the work of a page.
GC_THRESHOLD = 50_000


@contextmanager
def stop_on_signals(halt: threading.Event) -> Iterator[None]:
    """Set `halt` on SIGTERM or Ctrl-C; a second signal ends the process at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        signal.signal(number, signal.SIG_DFL)
        # a handler may interrupt this thread while it holds the lock of the event:
        # setting it here could deadlock
        threading.Thread(target=halt.set, daemon=True).start()

    previous = {
        number: signal.signal(number, stop)
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def stop_with_parent(halt: threading.Event) -> threading.Event:
    """Return an event that the parent sets to start us; set `halt` when it exits.

    The first bytes on standard input set it. The pipe closes with the parent process,
    also if that was killed.
    """
    start = threading.Event()

    def listen() -> None:
        # not `sys.stdin`, whose lock must be free when Python exits; input that cannot
        # be read has ended
        with suppress(OSError):
            while os.read(STDIN, 1024):
                start.set()
        halt.set()
        start.set()

    threading.Thread(target=listen, name="parent-watch", daemon=True).start()
    return start


def work_in_threads(
    penstock: Container,
    datasets: Mapping[str, Dataset],
    *,
    threads: int,
    halt: threading.Event,
    region: str | None = None,
    until_idle: bool = False,
    with_scheduler: bool = False,
) -> int:
    """Run jobs until `halt` is set or nothing is left; return how many ran."""
    gc.set_threshold(GC_THRESHOLD)
    # nearly all objects by now live as long as the process: modules, declarations
    gc.freeze()
    runtime = build_runtime(halt)
    dataset_runtimes = penstock.dataset_runtimes(datasets, runtime)
    worker = Worker(owner=new_worker_id(), region=region)
    claimer = penstock.claims(worker, runtime)
    loop = WorkerLoop(penstock, list(datasets), claimer, threads=threads, halt=halt)
    planner = ImportPlanner(penstock, halt)
    scheduled = [schedules_task(penstock, planner)] if with_scheduler else []
    maintenance = build_maintenance(penstock, [planner.task, *scheduled])
    loop.emit_started()
    loop.attempt(loop.announce)
    workers = []
    for number in range(threads):
        work = penstock.work(dataset_runtimes, claimer, runtime)
        workers.append(
            threading.Thread(
                target=loop.run,
                args=(work, until_idle),
                name=f"work-{number}",
                daemon=True,
            )
        )
    for thread in workers:
        thread.start()
    # threads may be busy for days: the main thread announces and maintains meanwhile
    for thread in workers:
        while thread.is_alive():
            loop.attempt(loop.announce)
            loop.attempt(maintenance)
            # a join without timeout would delay signal handlers
            thread.join(0.2)
    maintenance.close()
    planner.close()
    if until_idle and not halt.is_set():
        loop.attempt(penstock.sweep)
        penstock.flush_samples()
    # else the worker is listed until its announcement expires
    with suppress(PenstockError):
        penstock.stores.workers.remove(worker.owner)
    loop.emit_stopped()
    if loop.fatal is not None:
        raise loop.fatal
    return loop.worked


def sleep_until_notified(
    seconds: float, *, notifier: WorkNotifier, seen_count: int, halt: threading.Event
) -> None:
    """Sleep until a new notification or `halt`, but not longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while notifier.notification_count == seen_count and time.monotonic() < deadline:
        if halt.wait(LISTEN_INTERVAL):
            return


class WorkerLoop:
    """The state that the threads of one worker process share."""

    def __init__(
        self,
        penstock: Container,
        datasets: list[str],
        claimer: JobClaimer,
        *,
        threads: int,
        halt: threading.Event,
    ) -> None:
        self._penstock = penstock
        self._datasets = datasets
        self._claimer = claimer
        self._threads = threads
        self._declarations = penstock.declarations(datasets)
        self._announced_at = -math.inf
        self._halt = halt
        self._notifier = penstock.stores.notifier
        self._lock = threading.Lock()
        self.worked = 0
        self.fatal: Exception | None = None

    def run(self, work: Work, until_idle: bool) -> None:  # noqa: FBT001 (a thread's)
        while not self._halt.is_set():
            seen_count = self._notifier.notification_count
            if self.attempt(work):
                with self._lock:
                    self.worked += 1
                continue
            if until_idle and self.attempt(self._is_idle):
                return
            max_pause = MAX_PAUSE_UNTIL_IDLE if until_idle else math.inf
            self.attempt(partial(self._pause, work, seen_count, max_pause=max_pause))

    def attempt(self, action: Callable[[], bool | None]) -> bool:
        """Run an action and log its errors; only `Misconfigured` ends the worker."""
        try:
            return bool(action())
        except Misconfigured as error:
            self.fatal = error
            self._halt.set()
        except Exception as error:  # noqa: BLE001 (the top of a worker thread)
            message = str(error)
            if not isinstance(error, PenstockError):
                message = f"{type(error).__name__}: {message}"
            emit = self._penstock.emit
            emit(WorkerFailed(worker=self._claimer.worker.owner, error=message))
            self._halt.wait(ERROR_PAUSE)
        return False

    def _pause(self, work: Work, seen_count: int, *, max_pause: float) -> bool:
        """Sleep until something may be due, or until a notification."""
        longest = min(
            work.rest(self._notifier.poll_interval).total_seconds(), max_pause
        )
        # jitter, so that idle workers do not poll at the same time
        jitter = 0.5 + random.random() / 2  # noqa: S311 (no secret)
        pause = max(longest, MIN_IDLE_PAUSE) * jitter
        sleep_until_notified(
            pause, notifier=self._notifier, seen_count=seen_count, halt=self._halt
        )
        return True

    def emit_started(self) -> None:
        worker = self._claimer.worker
        self._penstock.emit(
            WorkerStarted(
                worker=worker.owner,
                region=worker.region,
                datasets=tuple(self._datasets),
                threads=self._threads,
                version=__version__,
            )
        )

    def emit_stopped(self) -> None:
        worker = self._claimer.worker.owner
        self._penstock.emit(WorkerStopped(worker=worker, jobs=self.worked))

    def announce(self) -> None:
        """Announce this process, at most once per interval."""
        now = time.monotonic()
        if now - self._announced_at >= PRESENCE_INTERVAL.total_seconds():
            # set first: a failed announcement is not retried before the next interval
            self._announced_at = now
            self._penstock.stores.workers.announce(
                self._describe(now), lasting=PRESENCE_TIMEOUT
            )

    def _describe(self, now: float) -> WorkerAnnouncement:
        worker, claimed_at = self._claimer.worker, self._claimer.claimed_at
        return WorkerAnnouncement(
            id=worker.owner,
            region=worker.region,
            declarations=self._declarations,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            threads=self._threads,
            idle=None if claimed_at is None else timedelta(seconds=now - claimed_at),
        )

    def _is_idle(self) -> bool:
        # jobs that wait for an operator are not waited for here
        runnable = self._penstock.not_stopped(self._datasets)
        left = self._penstock.stores.jobs.outstanding(
            declarations=self._penstock.declarations(runnable),
            region=self._claimer.worker.region,
        )
        # an import that is planned has work soon
        return left == 0 and not self._penstock.due_plans()
