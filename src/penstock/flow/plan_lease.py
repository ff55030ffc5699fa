"""The lease on the plan of an import, renewed while planning runs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from penstock.domain.jobs import ImportId, JobError, Lease, WorkerId
from penstock.domain.plan_cursor import PlanCursor
from penstock.errors import Interrupted, LeaseLost, StoreUnavailable
from penstock.ports import Ledger, Plans, StopSignal

STOPPED = "stopped while planning; the same command resumes it"
# renewed after this part of its time
RENEW_AFTER = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan:
    """Claims the plans of imports, each under a name of its own."""

    plans: Plans
    ledger: Ledger
    # how long a lease is valid without renewal
    length: timedelta
    new_owner: Callable[[], WorkerId]
    monotonic: Callable[[], float] = time.monotonic

    def __call__(self, import_id: ImportId, halt: StopSignal) -> "PlanLease | None":
        """Return None while another planner has it, and if the import is planned."""
        now = self.monotonic()
        lease = self.plans.claim(import_id, self.new_owner())
        return None if lease is None else PlanLease(lease, self, halt, renewed_at=now)


class PlanLease:
    """One planner's exclusive right to store the shards of an import.

    The clock is read before each call of the store, so this process stops trusting the
    lease before the store does.
    """

    def __init__(
        self,
        lease: Lease,
        claim: ClaimPlan,
        halt: StopSignal,
        *,
        renewed_at: float,
    ) -> None:
        self.lease = lease
        self._plans = claim.plans
        self._ledger = claim.ledger
        self._length = claim.length.total_seconds()
        self._monotonic = claim.monotonic
        self._halt = halt
        self._renew_at = self._trusted_until = 0.0
        self._note_renewal(renewed_at)

    @property
    def cursor(self) -> PlanCursor:
        return PlanCursor.decode(self.lease.cursor)

    def still_here(self) -> None:
        """Renew the lease if it is due; raises `Interrupted` if planning must end."""
        if self._halt.is_set():
            raise Interrupted(STOPPED)
        now = self._monotonic()
        if now < self._renew_at:
            return
        try:
            self._ledger.renew(self.lease)
        except StoreUnavailable:
            # the lease is still valid, so planning can continue
            if now > self._trusted_until:
                raise
            self._renew_at = now + RENEW_AFTER * self._length
        else:
            self._note_renewal(now)

    def stored_of(self, digest: str) -> int:
        """Return how many shards of a plan are stored; none of another one are left."""
        cursor = self.cursor
        if cursor.digest == digest:
            return cursor.stored
        if cursor.digest:
            initial = replace(cursor, digest="", stored=0)
            self.lease = self._plans.restart(self.lease, cursor=initial.encode())
        return 0

    def add_shards(self, keys: Sequence[str], *, digest: str, stored: int) -> None:
        """Store the next shards of a plan; `stored` counts them with all before."""
        now = self._monotonic()
        cursor = replace(self.cursor, digest=digest, stored=stored)
        self.lease = self._plans.add_shards(self.lease, keys, cursor=cursor.encode())
        self._note_renewal(now)

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let another process go on with what is left."""
        with suppress(StoreUnavailable, LeaseLost):
            self._ledger.release(self.lease)

    def postpone(self, error: JobError, delay: timedelta, *, blame: bool) -> None:
        self._ledger.postpone(self.lease, error, delay=delay, blame=blame)

    def fail(self, code: str, message: str) -> None:
        self._plans.fail(self.lease, JobError(code=code, message=message))

    def _note_renewal(self, now: float) -> None:
        self._renew_at = now + RENEW_AFTER * self._length
        self._trusted_until = now + self._length
