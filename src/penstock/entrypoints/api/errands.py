"""Work that takes longer than a client should wait, or than a question may take."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from penstock.domain.events import RequestFailed
from penstock.errors import Overloaded
from penstock.ports import Emit

Outcome = TypeVar("Outcome")

THREADS = 8


class Errands:
    """Threads of their own, so that no question waits for an errand."""

    def __init__(self, emit: Emit, *, threads: int = THREADS) -> None:
        self._emit = emit
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="errand")
        # whoever works on one looks at it now and then
        self.halt = threading.Event()
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place(self, kind: str, *, most: int) -> Iterator[None]:
        """Hold one of a few places; raises `Overloaded` if all are taken."""
        if self._taken[kind] >= most:
            raise Overloaded(kind)
        self._taken[kind] += 1
        try:
            yield
        finally:
            self._taken[kind] -= 1

    async def run(self, work: Callable[[], Outcome]) -> Outcome:
        """Do an errand for whose end a client waits."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, work)

    def later(self, work: Callable[[], None], *, trace_id: str) -> None:
        """Do an errand for which nobody waits; what goes wrong is told."""
        done = self._workers.submit(work)
        done.add_done_callback(partial(self._tell, trace_id))

    def _tell(self, trace_id: str, done: Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            told = f"{type(error).__name__}: {error}"
            self._emit(RequestFailed(trace_id=trace_id, error=told, where="errand"))

    def close(self) -> None:
        self.halt.set()
        self._workers.shutdown(wait=False, cancel_futures=True)
