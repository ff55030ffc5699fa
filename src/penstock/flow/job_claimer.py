"""Claim jobs for all threads of a process: one query serves all idle threads."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.domain.jobs import Lease, WorkerId
from penstock.ports import Declarations, Ledger, Runtime
from penstock.ports.outbox import NewMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """The identity of a worker, and the region whose jobs it takes."""

    owner: WorkerId
    region: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    lease: Lease
    # the local clock before the query
    requested_at: float


class JobClaimer:
    """Gives each thread its next job.

    Threads that arrive during a query wait for it, and the next query claims as many
    jobs as threads are waiting. No job is claimed without a thread to work it.
    """

    def __init__(self, worker: Worker, *, ledger: Ledger, host: Runtime) -> None:
        self.worker = worker
        self._ledger = ledger
        self._halt = host.halt
        self._monotonic = host.monotonic
        self._claim_lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._waiting = 0
        # the local clock at the last claim
        self.claimed_at: float | None = None
        self._ready: deque[ClaimedJob] = deque()

    def take(self, declarations: Declarations) -> ClaimedJob | None:
        """Return the next job, or None if none is due."""
        with self._count_lock:
            self._waiting += 1
        with self._claim_lock:
            with self._count_lock:
                self._waiting -= 1
                waiting = self._waiting
            if not self._ready and self._halt.is_set():
                # the thread before may have waited for the ledger for long
                return None
            if not self._ready:
                requested_at = self._monotonic()
                leases = self._ledger.claim(
                    self.worker.owner,
                    declarations=declarations,
                    region=self.worker.region,
                    most=1 + waiting,
                )
                if leases:
                    self.note_claim(requested_at)
                self._ready.extend(
                    ClaimedJob(lease=lease, requested_at=requested_at)
                    for lease in leases
                )
            return self._ready.popleft() if self._ready else None

    def note_claim(self, at: float) -> None:
        self.claimed_at = at

    def continuation(self, lease: Lease | None) -> Sequence[NewMessage]:
        """Return the messages that are stored when a job is released."""
        del lease
        return ()
