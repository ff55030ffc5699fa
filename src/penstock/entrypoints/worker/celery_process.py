"""The Penstock of one process of a Celery worker."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from penstock.entrypoints.worker.loop import WorkerLoop
from penstock.errors import PenstockError
from penstock.flow.wake_ups import WakeUp
from penstock.flow.work_slice import WorkSlice
from penstock.wiring import (
    Container,
    build_maintenance,
    build_slice_worker,
    new_worker_id,
)

# seconds between two calls of the maintenance loop, which decides itself what is due
MAINTENANCE_INTERVAL = 0.2
# seconds until it is tried again to open the database
OPEN_INTERVAL = 2.0
# how long the process waits for its maintenance when it ends, in seconds
STOP_TIMEOUT = 5.0


class CeleryProcess:
    """Opens its connections on first use, which is after the fork."""

    def __init__(
        self,
        open_penstock: Callable[[], AbstractContextManager[Container]],
        *,
        report: Callable[[PenstockError], None],
    ) -> None:
        self._open_penstock = open_penstock
        # why it could not be opened; afterwards errors are events
        self._report = report
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._slices = threading.local()
        self._opened: OpenedProcess | None = None
        self._thread = threading.Thread(
            target=self._maintain, name="maintenance-loop", daemon=True
        )

    def start(self) -> None:
        """Announce this process and do its share of maintenance, until it ends."""
        if not self._thread.is_alive() and not self._stop.is_set():
            self._thread.start()

    def work(self, wake_up: WakeUp) -> None:
        """Work a slice; errors are logged, and the message is not sent again."""
        try:
            opened = self._open()
        except PenstockError as error:
            self._report(error)
            return
        work_slice = getattr(self._slices, "current", None)
        if work_slice is None:
            work_slice = self._slices.current = opened.new_slice()
        opened.attempt(lambda: self._work(opened, work_slice, wake_up))

    @staticmethod
    def _work(opened: "OpenedProcess", work_slice: WorkSlice, wake_up: WakeUp) -> None:
        if work_slice(wake_up):
            # not only with the next maintenance: the slot would be idle until then
            opened.send()

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
                opened = self._open()
            except PenstockError as error:
                # the database may come back, and its tables be brought up to date
                self._report(error)
                pause = OPEN_INTERVAL
            else:
                opened.attempt(opened.maintain)
        if self._opened is not None:
            self._opened.close()

    def _open(self) -> "OpenedProcess":
        with self._lock:
            if self._opened is None:
                penstock = self._stack.enter_context(self._open_penstock())
                self._opened = OpenedProcess(penstock, self._stop)
            return self._opened


class OpenedProcess:
    """A process with its connections."""

    def __init__(self, penstock: Container, stop: threading.Event) -> None:
        self._worker = build_slice_worker(penstock, owner=new_worker_id(), stop=stop)
        self._loop = WorkerLoop(
            penstock,
            list(penstock.settings.datasets),
            self._worker.claimer,
            threads=1,
            halt=stop,
        )
        self._maintenance = build_maintenance(penstock)
        self.attempt = self._loop.attempt
        self.new_slice = self._worker.new_slice
        self.send = self._worker.relay
        self._loop.emit_started()

    def maintain(self) -> None:
        self._loop.announce()
        self._maintenance()

    def close(self) -> None:
        self._maintenance.close()
        self._loop.emit_stopped()
