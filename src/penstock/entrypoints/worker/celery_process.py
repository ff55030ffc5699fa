"""The Penstock of the processes of Celery: of its workers, and of its Beat."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

from penstock import __version__
from penstock.domain.events import SchedulerStarted, SchedulerStopped
from penstock.entrypoints.worker.background import BackgroundProcess
from penstock.entrypoints.worker.loop import WorkerLoop
from penstock.entrypoints.worker.planner import ImportPlanner
from penstock.entrypoints.worker.reception import DeafnessCheck, SharedReception
from penstock.entrypoints.worker.scheduler import schedules_task
from penstock.entrypoints.worker.shared_flag import SharedFlag
from penstock.errors import PenstockError, StoreUnavailable
from penstock.flow.wake_ups import WakeUp
from penstock.flow.work_slice import WorkSlice
from penstock.ports import StopSignal
from penstock.wiring import (
    Container,
    build_maintenance,
    build_read_queues,
    build_slice_worker,
    new_worker_id,
)


class CeleryProcess:
    """A process of a worker."""

    def __init__(
        self,
        open_penstock: Callable[[], AbstractContextManager[Container]],
        *,
        report: Callable[[PenstockError], None],
        # the names of those of its worker
        consumed_queues: Callable[[], Sequence[str]],
    ) -> None:
        # made before the fork, and set by the main process of the worker
        self._shutting_down = SharedFlag()
        self._background = BackgroundProcess(open_penstock, self._build, report=report)
        self._report = report
        self._slices = threading.local()
        # made before the fork as well
        self.reception = SharedReception()
        self._consumed_queues = consumed_queues

    def start(self) -> None:
        """Announce this process and do its share of maintenance, until it ends."""
        self._background.start()

    def work(self, wake_up: WakeUp) -> None:
        """Work a slice; errors are logged, and the message is not sent again."""
        try:
            opened = self._background.open()
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

    def end_slices(self) -> None:
        """Let the slices of all processes end with their current page."""
        self._shutting_down.set()

    def close(self) -> None:
        self._background.close()

    def _build(self, penstock: Container, stop: threading.Event) -> "OpenedProcess":
        return OpenedProcess(
            penstock,
            stop,
            is_shutting_down=self._shutting_down,
            check_deafness=DeafnessCheck(
                self.reception,
                build_read_queues(penstock, self._consumed_queues),
                resend_after=penstock.settings.celery.resend_after,
            ),
        )


class OpenedProcess:
    """A process of a worker with its connections."""

    def __init__(
        self,
        penstock: Container,
        stop: threading.Event,
        *,
        is_shutting_down: StopSignal,
        check_deafness: Callable[[], None],
    ) -> None:
        self._worker = build_slice_worker(
            penstock,
            owner=new_worker_id(),
            stop=stop,
            is_shutting_down=is_shutting_down,
        )
        self._loop = WorkerLoop(
            penstock,
            list(penstock.settings.datasets),
            self._worker.claimer,
            threads=1,
            halt=stop,
        )
        self._planner = ImportPlanner(penstock, stop)
        self._maintenance = build_maintenance(penstock, [self._planner.task])
        self._check_deafness = check_deafness
        self.attempt = self._loop.attempt
        self.new_slice = self._worker.new_slice
        self.send = self._worker.relay

    def maintain(self) -> None:
        self.attempt(self._announce_and_maintain)
        self.attempt(self._check_deafness)

    def _announce_and_maintain(self) -> None:
        self._loop.announce()
        self._maintenance()

    def close(self) -> None:
        self._maintenance.close()
        self._planner.close()


class OpenedBeat:
    """Beat with its connections: a scheduler as any other."""

    def __init__(self, penstock: Container, stop: threading.Event) -> None:
        self._emit = penstock.emit
        self._planner = ImportPlanner(penstock, stop)
        self._maintenance = build_maintenance(
            penstock, [self._planner.task, schedules_task(penstock, self._planner)]
        )
        schedules = len(penstock.settings.schedules)
        self._emit(SchedulerStarted(schedules=schedules, version=__version__))

    def maintain(self) -> None:
        # without a database the tasks are tried again
        with suppress(StoreUnavailable):
            self._maintenance()

    def close(self) -> None:
        self._maintenance.close()
        self._planner.close()
        self._emit(SchedulerStopped())
