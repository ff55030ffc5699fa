"""Work for a limited time whenever a message comes, and ask for the next message."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from typing_extensions import override

from penstock.domain.jobs import JobId, Lease
from penstock.flow.job_claimer import ClaimedJob, JobClaimer
from penstock.flow.wake_ups import WakeUp, WakeUpQueues, name_job
from penstock.flow.work import Work
from penstock.ports import Declarations, Ledger, Outbox, Runtime, StopSignal
from penstock.ports.outbox import NewMessage

# matches no region: jobs without a region have a queue of their own
NO_REGION = ""


class SliceEnd(StopSignal):
    """Set at the end of the slice of this thread, or when its worker stops."""

    def __init__(self, stop: StopSignal, monotonic: Callable[[], float]) -> None:
        self._stop = stop
        self._monotonic = monotonic
        self._ends = threading.local()

    def begin(self, length: timedelta) -> None:
        self._ends.at = self._monotonic() + length.total_seconds()

    @override
    def is_set(self) -> bool:
        return self._stop.is_set() or self._left() <= 0

    @override
    def wait(self, timeout: float) -> bool:
        return self._stop.wait(max(min(timeout, self._left()), 0)) or self.is_set()

    def _left(self) -> float:
        return float(self._ends.at) - self._monotonic()


class SliceClaimer(JobClaimer):
    """Claims the job that a message names, then the next ones of its region."""

    def __init__(self, process: JobClaimer, *, ledger: Ledger, host: Runtime) -> None:
        super().__init__(process.worker, ledger=ledger, host=host)
        # announced for all threads of the process
        self._process = process

    @override
    def note_claim(self, at: float) -> None:
        super().note_claim(at)
        self._process.note_claim(at)

    def begin(self, wake_up: WakeUp, *, continuation: NewMessage | None) -> None:
        """Prepare for the slice of one message.

        The continuation is sent at its end, with the job that is not done; none: the
        message was received before.
        """
        self._named = wake_up.job
        self._continuation = continuation
        region = NO_REGION if wake_up.region is None else wake_up.region
        self.worker = replace(self.worker, region=region)
        self.has_continued = False

    @override
    def take(self, declarations: Declarations) -> ClaimedJob | None:
        named, self._named = self._named, None
        if named is not None:
            claimed = self._take_named(declarations, named)
            if claimed is not None:
                return claimed
        return super().take(declarations)

    def _take_named(self, declarations: Declarations, job: JobId) -> ClaimedJob | None:
        requested_at = self._monotonic()
        leases = self._ledger.claim(
            self.worker.owner,
            declarations=declarations,
            region=self.worker.region,
            job=job,
        )
        if not leases:
            return None
        self.note_claim(requested_at)
        return ClaimedJob(lease=leases[0], requested_at=requested_at)

    @override
    def continuation(self, lease: Lease | None) -> Sequence[NewMessage]:
        """Return the message that asks for the next slice, once."""
        if self._continuation is None or self.has_continued:
            return ()
        self.has_continued = True
        job = (
            name_job(None) if lease is None else name_job(lease.job, lease.traceparent)
        )
        payload = {**self._continuation.payload, **job}
        return [replace(self._continuation, payload=payload)]


class WorkSlice:
    """The work of one thread, a slice for each message; all state is in the stores."""

    def __init__(
        self,
        work: Work,
        claimer: SliceClaimer,
        *,
        queues: WakeUpQueues,
        outbox: Outbox,
        end: SliceEnd,
        length: timedelta,
    ) -> None:
        self._work = work
        self._claimer = claimer
        self._queues = queues
        self._outbox = outbox
        self._end = end
        self._length = length

    def __call__(self, wake_up: WakeUp) -> bool:
        """Work on due jobs until the slice ends; return whether others were left.

        A page that was begun is finished, and its job released together with the
        message that asks for the next slice. A message that was received before does
        not ask for another one, or they would become ever more.
        """
        message = wake_up.message
        is_first = message is not None and self._outbox.settle([message]) > 0
        region = wake_up.region
        self._claimer.begin(
            wake_up,
            continuation=self._queues.message(region, None) if is_first else None,
        )
        self._end.begin(self._length)
        while self._work():
            if self._end.is_set():
                self._outbox.add(self._claimer.continuation(None))
                self._work.finish_worked()
                return True
        return False
