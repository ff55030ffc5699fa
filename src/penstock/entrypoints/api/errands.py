"""Work that takes longer than a client should wait, or than a question may take."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from penstock.domain.events import RequestFailed
from penstock.errors import Overloaded, PenstockError, StoreTooSlow
from penstock.ports import Emit

Outcome = TypeVar("Outcome")

# for whatever a client waits
THREADS = 6
# for files that clients send, each as long as it comes
FILES = 4
# for plans, each of which may take an hour
PLANNERS = 2
# each of them asks a store now and then, and so does whoever looks after things
CONNECTIONS = THREADS + FILES + PLANNERS + 1
# errands that wait for a thread; more are refused
MOST_WAITING = 16
# seconds that a client waits for one
LONGEST = 30.0


class Errands:
    """Threads of their own, so that no question waits for an errand.

    And none that a client waits for waits for a plan, or for a file on its way.
    """

    def __init__(self, emit: Emit, *, threads: int = THREADS) -> None:
        self._emit = emit
        self._most = threads + MOST_WAITING
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="errand")
        self._files = ThreadPoolExecutor(FILES, thread_name_prefix="file")
        self._planners = ThreadPoolExecutor(PLANNERS, thread_name_prefix="plan")
        # whoever works on one looks at it now and then
        self.halt = threading.Event()
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()
        # errands under way or waiting for a thread, and the names of plans that are
        self._open = 0
        self._planned: set[object] = set()

    @contextmanager
    def place(self, kind: str, *, most: int) -> Iterator[None]:
        """Hold one of a few places; raises `Overloaded` if all are taken."""
        if self._taken[kind] >= most:
            raise Overloaded(f"{kind} (a process has {most})")
        self._taken[kind] += 1
        try:
            yield
        finally:
            self._taken[kind] -= 1

    async def run(
        self, work: Callable[[], Outcome], *, longest: float = LONGEST
    ) -> Outcome:
        """Do an errand for whose end a client waits.

        Raises `Overloaded` if many others wait, and `StoreTooSlow` if it takes too
        long; it then goes on without its client, once it has begun.
        """
        with self._lock:
            if self._open >= self._most:
                raise Overloaded("errands")
            self._open += 1
        done = self._workers.submit(work)
        done.add_done_callback(self._leave)
        return await in_time(done, longest)

    async def keep_file(
        self, work: Callable[[], Outcome], *, longest: float | None = None
    ) -> Outcome:
        """Do what has to be done for a file; there are places for `FILES` of them."""
        return await in_time(self._files.submit(work), longest)

    def later(
        self, work: Callable[[], None], *, trace_id: str, name: object = None
    ) -> None:
        """Do an errand for which nobody waits, unless one of its name is under way.

        What goes wrong is told.
        """
        with self._lock:
            if name in self._planned:
                return
            if name is not None:
                self._planned.add(name)
        done = self._planners.submit(work)
        done.add_done_callback(partial(self._end, name, trace_id))

    def now_and_then(self, work: Callable[[], None], *, every: float) -> None:
        """Do something at once, and again after so many seconds, until the end."""
        thread = threading.Thread(
            target=self._go_on, args=(work, every), name="caretaker", daemon=True
        )
        thread.start()

    def close(self) -> None:
        self.halt.set()
        for pool in (self._workers, self._files, self._planners):
            pool.shutdown(wait=False, cancel_futures=True)

    def _leave(self, _: Future[Any]) -> None:
        with self._lock:
            self._open -= 1

    def _end(self, name: object, trace_id: str, done: Future[None]) -> None:
        with self._lock:
            self._planned.discard(name)
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._tell(error, trace_id)

    def _go_on(self, work: Callable[[], None], every: float) -> None:
        while not self.halt.is_set():
            try:
                work()
            except PenstockError:
                # a store is away, and will be back some time
                pass
            except Exception as error:  # noqa: BLE001 (the next time may be better)
                self._tell(error, trace_id="")
            self.halt.wait(every)

    def _tell(self, error: BaseException, trace_id: str) -> None:
        told = f"{type(error).__name__}: {error}"
        self._emit(RequestFailed(trace_id=trace_id, error=told, where="errand"))


async def in_time(done: Future[Outcome], longest: float | None) -> Outcome:
    """Wait for a thread; one that has not begun in time does not begin."""
    limit = asyncio.timeout(longest)
    try:
        async with limit:
            return await asyncio.wrap_future(done)
    except TimeoutError:
        if not limit.expired():
            raise
        raise StoreTooSlow(f"the errand takes longer than {longest:g} s") from None
