"""Claim for all threads of a process: one question serves all that are idle."""

import threading
from collections import deque
from dataclasses import dataclass

from penstock.domain.job import Lease, WorkerId
from penstock.ports import Declarations, Host, Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Who works, and on whose jobs."""

    owner: WorkerId
    region: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    lease: Lease
    # our own clock before the ledger was asked
    asked: float


class Claims:
    """Hands each thread its next job.

    Threads that come while one is asking wait for it, and the next question asks for as
    many jobs as threads are waiting. No job is claimed that nobody is there to work.
    """

    def __init__(self, worker: Worker, *, ledger: Ledger, host: Host) -> None:
        self.worker = worker
        self._ledger = ledger
        self._halt = host.halt
        self._monotonic = host.monotonic
        self._asking = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._ready: deque[Claim] = deque()

    def take(self, declarations: Declarations) -> Claim | None:
        """Return the next job, or None if none is due."""
        with self._counting:
            self._waiting += 1
        with self._asking:
            with self._counting:
                self._waiting -= 1
                others = self._waiting
            if not self._ready and self._halt.is_set():
                # the one before us may have waited for the ledger all this time
                return None
            if not self._ready:
                asked = self._monotonic()
                leases = self._ledger.claim(
                    self.worker.owner,
                    declarations=declarations,
                    region=self.worker.region,
                    most=1 + others,
                )
                self._ready.extend(Claim(lease=each, asked=asked) for each in leases)
            return self._ready.popleft() if self._ready else None
