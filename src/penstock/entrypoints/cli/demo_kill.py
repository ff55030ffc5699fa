"""Kill a worker of the demo while it works on a job."""

import signal
import threading
from collections.abc import Sequence

from penstock.domain.jobs import ImportId, Job, JobStatus
from penstock.entrypoints.cli.output.progress_display import ProgressDisplay
from penstock.entrypoints.worker.subprocesses import Process
from penstock.errors import StoreUnavailable
from penstock.ports import JobFilter, Stores

POLL_INTERVAL = 0.1


class WorkerKiller:
    """Kills one busy worker once more than `after` records were read.

    Runs in its own thread: the progress loop polls less often on a busy machine, and
    could find the import finished.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        stores: Stores,
        import_id: ImportId,
        display: ProgressDisplay,
        *,
        after: float,
    ) -> None:
        self._processes = processes
        self._stores = stores
        self._import_id = import_id
        self._display = display
        self._after = after
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker-killer")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(POLL_INTERVAL):
            try:
                if self._is_due() and self._kill_one():
                    return
            except StoreUnavailable:
                continue

    def _is_due(self) -> bool:
        import_, _ = self._stores.imports.get(self._import_id)
        return import_.counts.seen > self._after

    def _kill_one(self) -> bool:
        for process in self._processes:
            # stopped first, so that it cannot end its job between check and kill:
            # an idle worker has no job that others would have to resume
            process.send_signal(signal.SIGSTOP)
            try:
                is_busy = process.pid in self._busy()
                if is_busy:
                    process.send_signal(signal.SIGKILL)
            finally:
                process.send_signal(signal.SIGCONT)
            if is_busy:
                self._display.say(f"Killed worker {process.pid} with SIGKILL.")
                return True
        return False

    def _busy(self) -> set[int]:
        leased = JobFilter(status=JobStatus.LEASED, import_id=self._import_id)
        jobs = self._stores.jobs.find(leased, after=None, limit=100)
        return {process_of(job) for job in jobs}


def process_of(job: Job) -> int:
    """Return the process id of the lease owner, whose id begins with host:process."""
    return int((job.lease_owner or "none:0").split(":")[1])
