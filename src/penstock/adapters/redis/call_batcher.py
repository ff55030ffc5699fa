"""Batch the calls of concurrent threads into one."""

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.errors import StoreUnavailable

Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class Waiter(Generic[Request, Result]):
    """One thread in the queue."""

    request: Request
    turn: threading.Event = field(default_factory=threading.Event)
    # one result, once there is one
    results: list[Result] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return bool(self.results) or self.error is not None

    def outcome(self) -> Result:
        """Return the result, or raise the error of the call.

        Each thread raises its own copy: an error raised by two threads would have the
        traceback of both.
        """
        if self.error is None:
            return self.results[0]
        if isinstance(self.error, Exception):
            raise copy.copy(self.error) from self.error
        raise StoreUnavailable("the thread that made the call was ended")


class CallBatcher(Generic[Request, Result]):
    """One call at a time; requests that arrive meanwhile share the next one.

    Nothing is requested that no thread waits for. The thread at the head of the queue
    makes the call, for itself and those after it, and wakes the next head: no thread
    works for others longer than for itself.
    """

    def __init__(
        self, call: Callable[[Sequence[Request]], Sequence[Result]], *, most: int
    ) -> None:
        self._call = call
        self._most = most
        self._lock = threading.Lock()
        self._line: deque[Waiter[Request, Result]] = deque()
        self._is_busy = False

    def __call__(self, request: Request) -> Result:
        waiter: Waiter[Request, Result] = Waiter(request)
        with self._lock:
            self._line.append(waiter)
            has_to_wait, self._is_busy = self._is_busy, True
        if has_to_wait:
            waiter.turn.wait()
        if not waiter.is_done:
            self._run_batch()
        return waiter.outcome()

    def _run_batch(self) -> None:
        with self._lock:
            count = min(self._most, len(self._line))
            batch = [self._line.popleft() for _ in range(count)]
        try:
            results = self._call([waiter.request for waiter in batch])
            for waiter, result in zip(batch, results, strict=True):
                waiter.results.append(result)
        except BaseException as error:  # no waiter may wait for ever
            for waiter in batch:
                waiter.error = error
            raise
        finally:
            self._wake_next(batch)

    def _wake_next(self, batch: Sequence[Waiter[Request, Result]]) -> None:
        with self._lock:
            head = self._line[0] if self._line else None
            self._is_busy = head is not None
        for waiter in batch:
            waiter.turn.set()
        if head is not None:
            head.turn.set()
