"""The right to plan an import, kept as long as the planning goes on."""

from collections.abc import Callable
from datetime import timedelta

from penstock.domain.job import ImportId
from penstock.errors import Interrupted, StoreUnavailable
from penstock.ports import Halt, Requests

# whoever has not renewed it for so long is gone: a server may say nothing for 30 s, and
# storing jobs takes a moment
LEASE = timedelta(minutes=2)
RENEWED = timedelta(seconds=20)


class Planning:
    """One planner's hold on an import; there is no other as long as it lasts.

    The clock is read before the store is asked, so we stop trusting our hold before
    the store does.
    """

    def __init__(
        self,
        import_id: ImportId,
        planner: str,
        *,
        requests: Requests,
        halt: Halt,
        monotonic: Callable[[], float],
    ) -> None:
        self._import_id = import_id
        self._planner = planner
        self._requests = requests
        self._halt = halt
        self._monotonic = monotonic
        self._renew_at = self._trusted_until = 0.0

    def take(self) -> bool:
        """Begin, or go on; False if somebody else plans it."""
        now = self._monotonic()
        is_ours = self._hold(LEASE)
        self._renew_at = now + RENEWED.total_seconds()
        self._trusted_until = now + LEASE.total_seconds()
        return is_ours

    def still_here(self) -> None:
        """Renew the hold now and then; raises `Interrupted` where it is to end."""
        if self._halt.is_set():
            raise Interrupted("stopped while planning; another process goes on")
        now = self._monotonic()
        if now < self._renew_at:
            return
        try:
            self.insist()
        except StoreUnavailable:
            # what was done until now is not worth less for that
            if now > self._trusted_until:
                raise
            self._renew_at = now + RENEWED.total_seconds()

    def insist(self) -> None:
        """Raise `Interrupted` if somebody else plans it by now."""
        if not self.take():
            raise Interrupted(f"another process plans import {self._import_id}")

    def end(self) -> None:
        """Leave the rest, if there is any, to whoever comes first."""
        self._hold(timedelta())

    def _hold(self, longest: timedelta) -> bool:
        return self._requests.hold_planning(
            self._import_id, self._planner, longest=longest
        )
