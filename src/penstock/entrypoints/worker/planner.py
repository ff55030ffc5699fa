"""Plans imports inside a process: those that it begins, and those that nobody plans."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from penstock.domain.events import WorkerFailed
from penstock.domain.jobs import ImportId
from penstock.flow.maintenance import MaintenanceTask
from penstock.wiring import Container, planning_task

# each plan of files may take an hour
PLAN_THREADS = 2


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

    @property
    def task(self) -> MaintenanceTask:
        """The maintenance task that plans what another process has left."""
        return planning_task(self._penstock, self.resume)

    def resume(self) -> None:
        for import_id in self._penstock.due_plans():
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
