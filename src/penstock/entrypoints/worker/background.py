"""What a process of Celery does beside its tasks, in a thread of its own."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, Protocol, TypeVar

from penstock.errors import PenstockError
from penstock.wiring import Container

# seconds between two calls of the maintenance loop, which decides itself what is due
MAINTENANCE_INTERVAL = 0.2
# seconds until it is tried again to open the database
OPEN_INTERVAL = 2.0
# how long a process waits for its maintenance when it ends, in seconds
STOP_TIMEOUT = 5.0


class Opened(Protocol):
    """A process with its connections."""

    def maintain(self) -> None: ...

    def close(self) -> None: ...


OpenedT = TypeVar("OpenedT", bound=Opened)


class BackgroundProcess(Generic[OpenedT]):
    """Opens its connections on first use, which is after the fork."""

    def __init__(
        self,
        open_penstock: Callable[[], AbstractContextManager[Container]],
        build: Callable[[Container, threading.Event], OpenedT],
        *,
        report: Callable[[PenstockError], None],
    ) -> None:
        self._open_penstock = open_penstock
        self._build = build
        # why it could not be opened; afterwards errors are events
        self._report = report
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._opened: OpenedT | None = None
        self._thread = threading.Thread(
            target=self._maintain, name="maintenance-loop", daemon=True
        )

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Maintain until the process ends."""
        if not self._thread.is_alive() and not self._stop.is_set():
            self._thread.start()

    def open(self) -> OpenedT:
        """Return what was opened; raises why it cannot be."""
        with self._lock:
            if self._opened is None:
                with ExitStack() as stack:
                    penstock = stack.enter_context(self._open_penstock())
                    self._opened = self._build(penstock, self._stop)
                    self._stack = stack.pop_all()
            return self._opened

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT)
        with self._lock:
            self._stack.close()

    def _maintain(self) -> None:
        pause = MAINTENANCE_INTERVAL
        while not self._stop.wait(pause):
            pause = MAINTENANCE_INTERVAL
            try:
                opened = self.open()
            except PenstockError as error:
                # the database may come back, and its tables be brought up to date
                self._report(error)
                pause = OPEN_INTERVAL
            else:
                opened.maintain()
        if self._opened is not None:
            self._opened.close()
