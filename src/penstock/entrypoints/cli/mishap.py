"""Kill a worker that holds a job: what the demo survives."""

import signal
import threading
from collections.abc import Sequence

from penstock.domain.job import ImportId, Job, JobStatus
from penstock.entrypoints.cli.progress import Show
from penstock.entrypoints.processes import Process
from penstock.errors import StoreUnavailable
from penstock.ports import JobFilter, Stores

LOOK_EVERY = 0.1


class Mishap:
    """Kills one busy worker, as soon as so many records were seen.

    It has a thread of its own: who shows the import looks less often the busier
    the machine is, and could find it finished.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        stores: Stores,
        import_id: ImportId,
        show: Show,
        *,
        after: float,
    ) -> None:
        self._processes = processes
        self._stores = stores
        self._import_id = import_id
        self._show = show
        self._after = after
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._happen, name="mishap")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _happen(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            try:
                if self._is_time() and self._kills():
                    return
            except StoreUnavailable:
                continue

    def _is_time(self) -> bool:
        known, _ = self._stores.imports.get(self._import_id)
        return known.counts.seen > self._after

    def _kills(self) -> bool:
        for process in self._processes:
            # held fast first: else it could end its job between look and blow,
            # and of an idle one nobody would have to take anything over
            process.send_signal(signal.SIGSTOP)
            try:
                is_busy = process.pid in self._busy()
                if is_busy:
                    process.send_signal(signal.SIGKILL)
            finally:
                process.send_signal(signal.SIGCONT)
            if is_busy:
                self._show.say(f"Killed worker {process.pid} with SIGKILL.")
                return True
        return False

    def _busy(self) -> set[int]:
        leased = JobFilter(status=JobStatus.LEASED, import_id=self._import_id)
        held = self._stores.jobs.find(leased, after=None, limit=100)
        return {process_of(job) for job in held}


def process_of(job: Job) -> int:
    """Return the process that holds a job; its owner is host:process:number."""
    return int((job.lease_owner or "none:0:none").split(":")[-2])
