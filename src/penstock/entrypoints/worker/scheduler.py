"""The scheduler inside a process: begins imports when their time has come."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial

from penstock.domain.events import WorkerFailed
from penstock.domain.jobs import ImportId
from penstock.flow.maintenance import MaintenanceTask
from penstock.ports.maintenance import TaskName
from penstock.wiring import Container

# each plan of files may take an hour
PLAN_THREADS = 2
# after an error of the database; else a tick says when the next one is due
TICK_INTERVAL = timedelta(seconds=5)
# between searches for imports whose planner was killed
PLANNING_INTERVAL = timedelta(seconds=30)


class ImportPlanner:
    """Plans imports in threads of its own."""

    def __init__(self, penstock: Container, halt: threading.Event) -> None:
        self._penstock = penstock
        self._halt = halt
        self._threads = ThreadPoolExecutor(PLAN_THREADS, thread_name_prefix="plan")
        self._planned: set[ImportId] = set()
        self._lock = threading.Lock()

    def __call__(self, import_id: ImportId) -> None:
        """Plan an import soon, unless this process plans it already."""
        with self._lock:
            if import_id in self._planned or self._halt.is_set():
                return
            self._planned.add(import_id)
        plan = self._penstock.start_import.plan_import
        done = self._threads.submit(plan, import_id, self._halt)
        done.add_done_callback(partial(self._end, import_id))

    def resume(self) -> None:
        """Plan what another process has left unplanned."""
        for import_id in self._penstock.stores.requests.unplanned():
            self(import_id)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _end(self, import_id: ImportId, done: Future[None]) -> None:
        with self._lock:
            self._planned.discard(import_id)
        error = None if done.cancelled() else done.exception()
        if error is not None:
            message = f"{type(error).__name__}: {error}"
            self._penstock.emit(WorkerFailed(worker="plan", error=message))


def scheduler_tasks(
    penstock: Container, planner: ImportPlanner
) -> Sequence[MaintenanceTask]:
    """Declare the schedules; return the tasks that begin and plan their imports."""
    tick = penstock.tick_schedules(planner, started_at=penstock.declare_schedules())
    return [
        MaintenanceTask(name=TaskName("schedules"), interval=TICK_INTERVAL, run=tick),
        MaintenanceTask(
            name=TaskName("planning"), interval=PLANNING_INTERVAL, run=planner.resume
        ),
    ]
