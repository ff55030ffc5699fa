"""Threads for work that takes longer than a query may take."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from penstock.domain.events import RequestFailed
from penstock.errors import Overloaded, PenstockError, StoreTimeout
from penstock.ports import Emit
from penstock.ports.tracing import NO_TRACER, Tracer

Outcome = TypeVar("Outcome")

# for tasks that a client waits for
THREADS = 6
# for uploads, each for as long as the file is sent
FILE_THREADS = 4
# for plans, each of which may take an hour
PLAN_THREADS = 2
# each thread uses a connection now and then, and so does the maintenance thread
CONNECTIONS = THREADS + FILE_THREADS + PLAN_THREADS + 1
# tasks that wait for a thread; more are refused
MAX_WAITING = 16
# seconds that a client waits for a task
TASK_TIMEOUT = 30.0
# seconds that the end of a process waits for periodic work
JOIN_TIMEOUT = 10.0


class BackgroundExecutor:
    """Separate thread pools, so that no query waits for a long task.

    No task that a client waits for waits for a plan or for an upload.
    """

    def __init__(
        self, emit: Emit, *, threads: int = THREADS, tracer: Tracer = NO_TRACER
    ) -> None:
        self._tracer = tracer
        self._emit = emit
        self._max_open = threads + MAX_WAITING
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="background")
        self._files = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="file")
        self._planners = ThreadPoolExecutor(PLAN_THREADS, thread_name_prefix="plan")
        # long tasks check it now and then
        self.halt = threading.Event()
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()
        # tasks that run or wait for a thread, and the names of such plans
        self._open = 0
        self._planned: set[object] = set()
        self._periodic: list[threading.Thread] = []

    @contextmanager
    def slot(self, kind: str, *, limit: int) -> Iterator[None]:
        """Occupy one of a few slots; raises `Overloaded` if all are taken."""
        if self._taken[kind] >= limit:
            raise Overloaded(f"{kind} (a process has {limit})")
        self._taken[kind] += 1
        try:
            yield
        finally:
            self._taken[kind] -= 1

    async def run(
        self, work: Callable[[], Outcome], *, longest: float = TASK_TIMEOUT
    ) -> Outcome:
        """Run a task that a client waits for.

        Raises `Overloaded` if the queue is full, and `StoreTimeout` if it takes too
        long; a task that has started continues without its client.
        """
        with self._lock:
            if self._open >= self._max_open:
                raise Overloaded("background tasks")
            self._open += 1
        done = self._workers.submit(self._tracer.carry(work))
        done.add_done_callback(self._release)
        return await wait_for(done, longest)

    async def run_for_file(
        self, work: Callable[[], Outcome], *, longest: float | None = None
    ) -> Outcome:
        """Run a task for an uploaded file; at most `FILE_THREADS` of them run."""
        return await wait_for(self._files.submit(self._tracer.carry(work)), longest)

    def submit_once(
        self, work: Callable[[], None], *, trace_id: str, name: object = None
    ) -> None:
        """Run a task that nobody waits for, unless one of its name is in progress.

        Errors are emitted as events.
        """
        with self._lock:
            if name in self._planned:
                return
            if name is not None:
                self._planned.add(name)
        done = self._planners.submit(work)
        done.add_done_callback(partial(self._end, name, trace_id))

    def run_periodically(
        self,
        work: Callable[[], None],
        *,
        every: float,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Run something now, and again every so many seconds, until `close`."""

        def run() -> None:
            self._repeat(work, every)
            then()

        thread = threading.Thread(target=run, name="periodic", daemon=True)
        self._periodic.append(thread)
        thread.start()

    def close(self) -> None:
        self.halt.set()
        for pool in (self._workers, self._files, self._planners):
            pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for periodic work after `close`, before the stores are closed."""
        for thread in self._periodic:
            thread.join(JOIN_TIMEOUT)

    def _release(self, _: Future[Any]) -> None:
        with self._lock:
            self._open -= 1

    def _end(self, name: object, trace_id: str, done: Future[None]) -> None:
        with self._lock:
            self._planned.discard(name)
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._report(error, trace_id)

    def _repeat(self, work: Callable[[], None], every: float) -> None:
        while not self.halt.is_set():
            try:
                work()
            except PenstockError:
                # a store is unreachable for now
                pass
            except Exception as error:  # noqa: BLE001 (reported, and tried again)
                self._report(error, trace_id="")
            self.halt.wait(every)

    def _report(self, error: BaseException, trace_id: str) -> None:
        text = f"{type(error).__name__}: {error}"
        self._emit(RequestFailed(trace_id=trace_id, error=text, where="background"))


async def wait_for(done: Future[Outcome], seconds: float | None) -> Outcome:
    """Wait for a thread; a task that has not started in time never starts."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await asyncio.wrap_future(done)
    except TimeoutError:
        if not limit.expired():
            raise
        raise StoreTimeout(f"the task takes longer than {seconds:g} s") from None
