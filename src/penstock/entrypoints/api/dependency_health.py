"""Dependencies whose failure makes responses slower, though not wrong."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.entrypoints.api.concurrency.single_flight import SingleFlight
from penstock.errors import PenstockError
from penstock.ports.record_access import FailureCheck

# seconds between two checks, and how long a request waits for one
CHECK_INTERVAL, CHECK_TIMEOUT = 1.0, 0.3


class DependencyHealth:
    def __init__(self, checks: Mapping[str, Sequence[FailureCheck]]) -> None:
        self._checks = checks
        # a thread of its own, as a check may hang
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="health")
        self._degraded: Sequence[str] = ()
        self._checked_at = -1e9
        self._flights: SingleFlight[None] = SingleFlight()

    async def names(self) -> Sequence[str]:
        """Return the names of degraded dependencies, as of the last check."""
        if time.monotonic() - self._checked_at >= CHECK_INTERVAL:
            check = self._flights.start(self._check)
            await asyncio.wait({check.task}, timeout=CHECK_TIMEOUT)
        return self._degraded

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._degraded = await loop.run_in_executor(self._thread, self._run_checks)
        self._checked_at = time.monotonic()

    def _run_checks(self) -> Sequence[str]:
        return [
            name
            for name, checks in self._checks.items()
            if any(map(has_failed, checks))
        ]


def has_failed(check: FailureCheck) -> bool:
    try:
        return check() is not None
    except PenstockError:
        return True
