"""The loop that carries all maintenance: named tasks, each claimed in the database.

Every process has such a loop with nearly the same tasks, and whichever claims a task
first runs it. Quick, slow and remote tasks have a thread each, so that nothing waits
for the build of an index or for another system.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from queue import SimpleQueue
from typing import Any, TypeAlias

from penstock.domain.events import MaintenanceDone, MaintenanceFailed
from penstock.domain.jobs import WorkerId
from penstock.errors import PenstockError, StoreUnavailable
from penstock.flow.flush_samples import FlushSamples
from penstock.ports import Emit, Maintenance, Redact
from penstock.ports.cancellation import CURRENT_TOKEN, CancelToken
from penstock.ports.maintenance import TaskClaim, TaskName, TaskProgress

# a process that has not renewed its claim for so long is gone, and another continues
CLAIM_TIME = timedelta(seconds=15)
RENEW_INTERVAL = timedelta(seconds=5)
# between two checks of what is due; new one-off tasks are found after the longest
MIN_PAUSE = timedelta(seconds=1)
MAX_PAUSE = timedelta(seconds=5)
JITTER = timedelta(milliseconds=200)
# when a one-off task is tried again after an error
RETRY_INTERVAL = timedelta(minutes=1)
ZERO = timedelta()

# works on a payload from where it was, and yields its progress after each small batch
OneOffTask: TypeAlias = Callable[
    [Mapping[str, Any], TaskProgress], Iterator[TaskProgress]
]


class TaskKind(Enum):
    """What a task may wait for; each kind has a thread of its own."""

    # for a moment
    QUICK = "maintenance"
    # for a long statement of the database
    SLOW = "slow-maintenance"
    # for systems that are none of ours
    REMOTE = "remote-maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceTask:
    """What is done periodically, by one of all processes that have a task so named.

    It may be interrupted anywhere, and run twice at the same time.
    """

    name: TaskName
    # from the end of a run to the next one
    interval: timedelta
    # returns when to run again, if not after the interval
    run: Callable[[], timedelta | None]
    # after an error; none: the interval
    retry_interval: timedelta | None = None
    kind: TaskKind = TaskKind.QUICK


class MaintenanceLoop:
    """The tasks of one process; it is called as often as its caller likes."""

    def __init__(
        self,
        runner: "TaskRunner",
        *,
        flush: FlushSamples | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._tasks = runner.tasks
        self._kinds = [*runner.one_off]
        self._store = runner.store
        self._flush = flush
        self._monotonic = monotonic
        self._jitter = jitter
        self._threads = {
            kind: TaskThread(kind.value, runner, monotonic=monotonic)
            for kind in TaskKind
        }
        self._check_at = monotonic()

    def __call__(self) -> None:
        """Renew the claims of what runs, and start what is due; waits for neither.

        A failed task is stored and emitted. Raises `StoreUnavailable` if the tasks
        cannot be read.
        """
        if self._flush is not None:
            self._flush.if_due()
        for thread in self._threads.values():
            thread.renew(self._store)
        if self._monotonic() >= self._check_at:
            self._check()

    def close(self, *, cancel: bool = False) -> None:
        """Let the running tasks end, and wait for them; or cancel their statements.

        What was cancelled is done again when its claim has expired.
        """
        for thread in self._threads.values():
            thread.stop()
            if cancel:
                thread.cancel()
        for thread in self._threads.values():
            thread.join()
        if self._flush is not None:
            self._flush()

    def _check(self) -> None:
        # set first: a failed check is not repeated at once
        self._schedule_check(MAX_PAUSE)
        idle = [thread for thread in self._threads.values() if thread.is_idle]
        names = [name for name in self._tasks if self._thread_of(name) in idle]
        waits = self._store.waits(
            names, kinds=self._kinds if self._threads[TaskKind.SLOW] in idle else []
        )
        due = sorted((wait, name) for name, wait in waits.items() if wait <= ZERO)
        for thread in idle:
            mine = [name for _, name in due if self._thread_of(name) is thread]
            if mine:
                thread.start(mine)
        later = [wait for wait in waits.values() if wait > ZERO]
        again = [self._tasks[name].interval for _, name in due if name in self._tasks]
        self._schedule_check(min([*later, *again, MAX_PAUSE]))

    def _schedule_check(self, pause: timedelta) -> None:
        # jitter, so that processes do not compete for the same task at the same moment
        pause = max(pause, MIN_PAUSE) + JITTER * self._jitter()
        self._check_at = self._monotonic() + pause.total_seconds()

    def _thread_of(self, name: TaskName) -> "TaskThread":
        task = self._tasks.get(name)
        return self._threads[TaskKind.SLOW if task is None else task.kind]


class TaskThread:
    """A thread that runs tasks one after the other."""

    def __init__(
        self, name: str, runner: "TaskRunner", *, monotonic: Callable[[], float]
    ) -> None:
        self._runner = runner
        self._monotonic = monotonic
        self._due: SimpleQueue[Sequence[TaskName]] = SimpleQueue()
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._claim: TaskClaim | None = None
        self._token = CancelToken()
        self._renew_at = 0.0
        self.is_idle = True

    def start(self, due: Sequence[TaskName]) -> None:
        if self._halt.is_set():
            return
        self.is_idle = False
        self._due.put(due)
        # only then: most commands end before anything is due
        if not self._thread.is_alive():
            self._thread.start()

    def renew(self, store: Maintenance) -> None:
        """Extend the claim of the task that runs now, if it is time."""
        claim = self._claim
        if claim is None or self._monotonic() < self._renew_at:
            return
        self._renew_at = self._monotonic() + RENEW_INTERVAL.total_seconds()
        # without effect if the task has ended meanwhile, or was claimed by another
        store.renew(claim, lasting=CLAIM_TIME)

    def stop(self) -> None:
        self._halt.set()
        # wakes the thread
        self._due.put([])

    def cancel(self) -> None:
        self._token.cancel()

    def join(self) -> None:
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        CURRENT_TOKEN.set(self._token)
        while not self._halt.is_set():
            for name in self._due.get():
                if not self._halt.is_set():
                    self._runner(name, self._halt.is_set, self._watch)
            self.is_idle = True

    def _watch(self, claim: TaskClaim | None) -> None:
        self._renew_at = self._monotonic() + RENEW_INTERVAL.total_seconds()
        self._claim = claim


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRunner:
    """Claims a task, runs it, and stores how that ended."""

    tasks: Mapping[TaskName, MaintenanceTask]
    # by kind
    one_off: Mapping[str, OneOffTask]
    store: Maintenance
    owner: WorkerId
    emit: Emit
    redact: Redact

    def __call__(
        self,
        name: TaskName,
        is_stopping: Callable[[], bool],
        watch: Callable[[TaskClaim | None], None],
    ) -> None:
        """Run a task if this process gets its claim; no error leaves this function."""
        # without a database there is no claim, or it expires: the task is run again,
        # and workers report that the database is away
        with suppress(StoreUnavailable):
            try:
                self._run(name, is_stopping, watch)
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 (the top of a thread)
                self._report(name, self.redact(describe(error)))

    def _run(
        self,
        name: TaskName,
        is_stopping: Callable[[], bool],
        watch: Callable[[TaskClaim | None], None],
    ) -> None:
        claim = self.store.claim(name, owner=self.owner, lasting=CLAIM_TIME)
        if claim is None:
            return
        watch(claim)
        started_at = time.monotonic()
        try:
            due_in, failure = self._attempt(claim, is_stopping)
        finally:
            watch(None)
        error = None if failure is None else self.redact(failure)
        is_mine = self.store.finish(claim, due_in=due_in, error=error)
        if is_mine and error is not None:
            self._report(name, error)
        elif is_mine:
            took = timedelta(seconds=time.monotonic() - started_at)
            self.emit(MaintenanceDone(task=name, worker=self.owner, took=took))

    def _report(self, name: TaskName, error: str) -> None:
        self.emit(MaintenanceFailed(task=name, worker=self.owner, error=error))

    def _attempt(
        self, claim: TaskClaim, is_stopping: Callable[[], bool]
    ) -> tuple[timedelta | None, str | None]:
        """Run a claimed task; return when it is due again, and its error."""
        task = self.tasks.get(claim.name)
        try:
            if task is None:
                return self._continue(claim, is_stopping), None
            return task.run() or task.interval, None
        except Exception as error:  # noqa: BLE001 (stored, and emitted)
            if task is None:
                return RETRY_INTERVAL, describe(error)
            return task.retry_interval or task.interval, describe(error)

    def _continue(
        self, claim: TaskClaim, is_stopping: Callable[[], bool]
    ) -> timedelta | None:
        """Work on a one-off task until it ends, is lost, or this process stops."""
        run = self.one_off[claim.kind or ""]
        for progress in run(claim.payload or {}, claim.progress):
            is_mine = self.store.renew(claim, lasting=CLAIM_TIME, progress=progress)
            if not is_mine or is_stopping():
                # another process continues
                return ZERO
        return None


def describe(error: Exception) -> str:
    """Return a message; with the class, if the error was not expected."""
    if isinstance(error, PenstockError):
        return str(error)
    return f"{type(error).__name__}: {error}"
