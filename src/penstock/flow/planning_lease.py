"""The lease on planning an import, renewed while planning runs."""

from collections.abc import Callable
from datetime import timedelta

from penstock.domain.jobs import ImportId
from penstock.errors import Interrupted, StoreUnavailable
from penstock.ports import IdempotencyStore, StopSignal

# a planner that has not renewed it for so long is dead: a file server may stall for
# 30 s, and storing jobs takes a moment
LEASE_TIME = timedelta(minutes=2)
RENEW_INTERVAL = timedelta(seconds=20)


class PlanningLease:
    """One planner's exclusive lease on an import.

    The clock is read before each call of the store, so this process stops trusting the
    lease before the store does.
    """

    def __init__(
        self,
        import_id: ImportId,
        planner: str,
        *,
        requests: IdempotencyStore,
        halt: StopSignal,
        monotonic: Callable[[], float],
    ) -> None:
        self._import_id = import_id
        self._planner = planner
        self._requests = requests
        self._halt = halt
        self._monotonic = monotonic
        self._renew_at = self._trusted_until = 0.0

    def take(self) -> bool:
        """Take or renew the lease; False if another process has it."""
        now = self._monotonic()
        is_taken = self._lease(LEASE_TIME)
        self._renew_at = now + RENEW_INTERVAL.total_seconds()
        self._trusted_until = now + LEASE_TIME.total_seconds()
        return is_taken

    def still_here(self) -> None:
        """Renew the lease if it is due; raises `Interrupted` if planning must end."""
        if self._halt.is_set():
            raise Interrupted("stopped while planning; another process continues")
        now = self._monotonic()
        if now < self._renew_at:
            return
        try:
            self.renew()
        except StoreUnavailable:
            # the lease is still valid, so planning can continue
            if now > self._trusted_until:
                raise
            self._renew_at = now + RENEW_INTERVAL.total_seconds()

    def renew(self) -> None:
        """Renew the lease now; raises `Interrupted` if another process has it."""
        if not self.take():
            raise Interrupted(f"another process plans import {self._import_id}")

    def release(self) -> None:
        """Release the lease, so that another process can finish what is left."""
        self._lease(timedelta())

    def _lease(self, longest: timedelta) -> bool:
        return self._requests.lease_planning(
            self._import_id, self._planner, longest=longest
        )
