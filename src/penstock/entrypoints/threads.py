"""Run the threads of one worker process."""

import gc
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from types import FrameType

from penstock.domain.dataset import Dataset
from penstock.domain.events import WorkerFailed
from penstock.errors import Misconfigured, PenstockError
from penstock.flow.claims import Worker
from penstock.flow.work import Work
from penstock.ports import Bell
from penstock.wiring import Penstock, host_of, new_worker_id

# how often a sleeper listens for the bell, in seconds
LISTEN_EVERY = 0.05
# an idle thread asks no sooner than this, in seconds, whatever is said to be due
SHORTEST_REST = 0.25
# how long a thread rests after the store failed it
REST = 1.0
# whoever is to stop when nothing is left looks so often, in seconds, whether that is so
LONGEST_UNTIL_IDLE = 1.0
SWEEP_EVERY = 2.0
# how often a worker process says that it is there, and how long it is believed
PRESENCE_INTERVAL = timedelta(seconds=10)
PRESENCE_LASTS = timedelta(seconds=30)
# the number of the standard input
STDIN = 0
# Rows come and go by the thousand, and no circle is among them: looking for one as
# often as Python does by itself is a fifth of the work of a page.
COLLECT_AFTER = 50_000


@contextmanager
def stop_on_signals(halt: threading.Event) -> Iterator[None]:
    """Turn SIGTERM and Ctrl-C into the wish to stop; a second one stops at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        signal.signal(number, signal.SIG_DFL)
        # a handler interrupts its own thread anywhere, also where that holds the lock
        # of the event: setting it here could wait for ourselves
        threading.Thread(target=halt.set, daemon=True).start()

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def on_leash(halt: threading.Event) -> threading.Event:
    """Follow whoever started us: return what says to begin, and stop with them.

    The first bytes of our input say it. A pipe closes with the process that holds it,
    also with one that was killed.
    """
    begin = threading.Event()

    def listen() -> None:
        # not by the buffer of `sys.stdin`, which nobody may hold when Python ends; what
        # cannot be read has ended
        with suppress(OSError):
            while os.read(STDIN, 1024):
                begin.set()
        halt.set()
        begin.set()

    threading.Thread(target=listen, name="leash", daemon=True).start()
    return begin


def work_in_threads(
    penstock: Penstock,
    datasets: Mapping[str, Dataset],
    *,
    threads: int,
    halt: threading.Event,
    region: str | None = None,
    until_idle: bool = False,
) -> int:
    """Work until told to stop, or until nothing is left; return the jobs worked."""
    gc.set_threshold(COLLECT_AFTER)
    # nearly all that is there by now stays: modules, declarations
    gc.freeze()
    host = host_of(halt)
    desks = penstock.desks(datasets, host)
    worker = Worker(owner=new_worker_id(), region=region)
    claims = penstock.claims(worker, host)
    shift = Shift(penstock, list(datasets), worker, halt=halt)
    shift.attempt(shift.announce)
    hands = []
    for number in range(threads):
        work = penstock.work(desks, claims, host)
        hands.append(
            threading.Thread(
                target=shift.run,
                args=(work, until_idle),
                name=f"work-{number}",
                daemon=True,
            )
        )
    for hand in hands:
        hand.start()
    # threads may be busy for days: tidying up is for whoever waits for them
    for hand in hands:
        while hand.is_alive():
            shift.attempt(shift.announce)
            shift.attempt(shift.sweep)
            # a join without timeout would keep signals from being seen
            hand.join(0.2)
    if until_idle and not halt.is_set():
        shift.attempt(penstock.sweep)
    # who is not seen to have ended is believed to be there a while
    with suppress(PenstockError):
        penstock.stores.workers.remove(worker.owner)
    if shift.broken is not None:
        raise shift.broken
    return shift.worked


def sleep(seconds: float, *, bell: Bell, rings: int, halt: threading.Event) -> None:
    """Sleep so long, or until the bell rings again, or until told to stop."""
    deadline = time.monotonic() + seconds
    while bell.rings == rings and time.monotonic() < deadline:
        if halt.wait(LISTEN_EVERY):
            return


class Shift:
    """What the threads of one process have in common."""

    def __init__(
        self,
        penstock: Penstock,
        datasets: list[str],
        worker: Worker,
        *,
        halt: threading.Event,
    ) -> None:
        self._penstock = penstock
        self._datasets = datasets
        self._worker = worker
        self._declarations = penstock.declarations(datasets)
        self._announced_at = -math.inf
        self._halt = halt
        self._bell = penstock.stores.bell
        self._lock = threading.Lock()
        self._swept_at = time.monotonic()
        self.worked = 0
        self.broken: Exception | None = None

    def run(self, work: Work, until_idle: bool) -> None:  # noqa: FBT001 (a thread's)
        while not self._halt.is_set():
            rings = self._bell.rings
            busy = self.attempt(work)
            if busy:
                with self._lock:
                    self.worked += 1
                continue
            if until_idle and self.attempt(self._is_idle):
                return
            longest = LONGEST_UNTIL_IDLE if until_idle else float("inf")
            self.attempt(partial(self._rest, work, rings, longest=longest))

    def attempt(self, action: Callable[[], bool | None]) -> bool:
        """Do something that the store may fail; nothing kills a thread but a fault
        that an operator has to mend.
        """  # noqa: D205 (one sentence that needs two lines)
        try:
            return bool(action())
        except Misconfigured as error:
            self.broken = error
            self._halt.set()
        except Exception as error:  # noqa: BLE001 (the top of a worker thread)
            told = str(error)
            if not isinstance(error, PenstockError):
                told = f"{type(error).__name__}: {told}"
            emit = self._penstock.emit
            emit(WorkerFailed(worker=threading.current_thread().name, error=told))
            self._halt.wait(REST)
        return False

    def _rest(self, work: Work, rings: int, *, longest: float) -> bool:
        """Sleep until something may be due, or until the bell rings."""
        longest = min(work.rest(self._bell.patience).total_seconds(), longest)
        # spread, so that those who fell asleep together do not ask together
        spread = 0.5 + random.random() / 2  # noqa: S311 (no secret)
        rest = max(longest, SHORTEST_REST) * spread
        sleep(rest, bell=self._bell, rings=rings, halt=self._halt)
        return True

    def announce(self) -> None:
        """Say now and then that this process is there."""
        now = time.monotonic()
        if now - self._announced_at >= PRESENCE_INTERVAL.total_seconds():
            # also where it fails: the store has better to do than to be asked again
            self._announced_at = now
            self._penstock.stores.workers.announce(
                self._worker.owner,
                region=self._worker.region,
                declarations=self._declarations,
                lasting=PRESENCE_LASTS,
            )

    def sweep(self) -> None:
        if time.monotonic() - self._swept_at >= SWEEP_EVERY:
            self._swept_at = time.monotonic()
            self._penstock.sweep()

    def _is_idle(self) -> bool:
        # what waits for an operator is not waited for here
        open_to_us = self._penstock.not_stopped(self._datasets)
        left = self._penstock.stores.jobs.outstanding(
            declarations=self._penstock.declarations(open_to_us),
            region=self._worker.region,
        )
        return left == 0
