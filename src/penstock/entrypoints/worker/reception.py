"""End a worker of Celery that is connected and receives no messages any more.

Only its main process knows what it receives, and only the processes of its pool have
connections to the database: connections made before a fork would be shared by it.
"""

import math
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from mmap import mmap
from typing import Protocol

from penstock.domain.deafness import QueueState, deaf_after, is_deaf
from penstock.errors import TransportUnavailable

# the supervisor of the worker starts a new one
EXIT_DEAF = 1
# seconds between two looks at the consumer
WATCH_INTERVAL = 0.5
# seconds after which the process was not running itself: it was stopped, or its machine
MAX_WATCH_GAP = 5.0
# how long the main loop of a worker may take to notice that it has to stop, in seconds
STOP_TIMEOUT = 10.0
TIME = struct.Struct("d")


class SharedTime:
    """A time of the monotonic clock that a process shares with those it forks later.

    Without locks: the processor writes it at once.
    """

    def __init__(self) -> None:
        self._memory = mmap(-1, TIME.size)

    def get(self) -> float | None:
        (value,) = TIME.unpack_from(self._memory)
        return float(value) or None

    def set(self, value: float | None) -> None:
        TIME.pack_into(self._memory, 0, value or 0.0)


class SharedReception:
    """What the main process knows, and what the others have found."""

    def __init__(self) -> None:
        # since when the worker receives nothing although it could; none: it could not
        self.receptive_since = SharedTime()
        # the former, when the worker should have received messages since
        self.deaf_since = SharedTime()


class DeafnessCheck:
    """Compares what was received with what was sent; in a process with connections."""

    def __init__(
        self,
        reception: SharedReception,
        read_queues: Callable[[], Sequence[QueueState]],
        *,
        resend_after: timedelta,
    ) -> None:
        self._reception = reception
        self._read_queues = read_queues
        self._resend_after = resend_after
        self._checked_at = -math.inf

    def __call__(self) -> None:
        since, now = self._reception.receptive_since.get(), time.monotonic()
        if (
            since is None
            or now - since < deaf_after(self._resend_after).total_seconds()
            or now - self._checked_at < self._resend_after.total_seconds() / 2
        ):
            return
        self._checked_at = now
        try:
            queues = self._read_queues()
        except TransportUnavailable:
            # the worker connects again, for as long as it takes
            return
        receptive_for = timedelta(seconds=now - since)
        if is_deaf(receptive_for, queues, resend_after=self._resend_after):
            self._reception.deaf_since.set(since)


class Consumer(Protocol):
    """What receives messages for a worker."""

    def can_receive(self) -> bool: ...

    def stop(self, exit_code: int) -> None: ...

    def is_stopping(self) -> bool: ...

    def kill_pool(self) -> None: ...


class ReceptionWatch:
    """Observes the consumer in the main process of a worker, and ends it."""

    def __init__(
        self,
        reception: SharedReception,
        consumer: Consumer,
        *,
        # ends slices, says why; with the time without deliveries
        on_deaf: Callable[[timedelta], None],
        # how long slices take to end
        longest_slice: timedelta,
    ) -> None:
        self._reception = reception
        self._consumer = consumer
        self._on_deaf = on_deaf
        self._longest_slice = longest_slice
        self._received_at = -math.inf
        self._since: float | None = None
        self._thread = threading.Thread(
            target=self._watch, name="reception-watch", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def receive(self) -> None:
        """Note a delivery."""
        self._received_at = time.monotonic()

    def _watch(self) -> None:
        watched_at = time.monotonic()
        while not self._consumer.is_stopping():
            time.sleep(WATCH_INTERVAL)
            now = time.monotonic()
            self._observe(now, gap=now - watched_at)
            watched_at = now
            since = self._since
            if since is not None and self._reception.deaf_since.get() == since:
                self._on_deaf(timedelta(seconds=now - since))
                self._end()

    def _observe(self, now: float, *, gap: float) -> None:
        if not self._consumer.can_receive() or gap > MAX_WATCH_GAP:
            self._since = None
        elif self._since is None or self._received_at > self._since:
            self._since = now
        self._reception.receptive_since.set(self._since)

    def _end(self) -> None:
        self._consumer.stop(EXIT_DEAF)
        deadline = time.monotonic() + STOP_TIMEOUT
        while not self._consumer.is_stopping() and time.monotonic() < deadline:
            time.sleep(WATCH_INTERVAL)
        if self._consumer.is_stopping():
            # this thread ends with the process
            time.sleep(self._longest_slice.total_seconds() + STOP_TIMEOUT)
        # the main loop hangs; its jobs are taken over
        try:
            self._consumer.kill_pool()
        finally:
            os._exit(EXIT_DEAF)
