"""The requests and responses that the sandbox has seen."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from penstock.sandbox.faults import SPOILING

OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """One request; `status` is 0 if the connection was reset without a response."""

    at: float
    method: str
    path: str
    query: dict[str, str]
    status: int
    fault: str | None
    first_id: int | None
    last_id: int | None
    count: int


class SandboxRequestLog:
    def __init__(self) -> None:
        self._requests: list[LoggedRequest] = []
        self._lock = Lock()

    def write(self, request: LoggedRequest) -> None:
        with self._lock:
            self._requests.append(request)

    def read(self) -> list[LoggedRequest]:
        """Return all requests in the order of their arrival."""
        with self._lock:
            return sorted(self._requests, key=lambda request: request.at)

    def clear(self) -> None:
        with self._lock:
            self._requests.clear()


def peak_over(requests: Iterable[LoggedRequest | float], rate: float) -> float:
    """Return the burst that a bucket of this rate would have needed.

    That is the largest excess of requests over rate x time, over all windows.
    """
    times = sorted(
        item.at if isinstance(item, LoggedRequest) else item for item in requests
    )
    peak = lowest = 0.0
    for number, at in enumerate(times):
        level = number - rate * (at - times[0])
        lowest = min(lowest, level)
        peak = max(peak, level - lowest + 1)
    return peak


def count_wasted(requests: Iterable[LoggedRequest]) -> int:
    """Count the requests that repeat one with a valid response."""
    answered: set[tuple[str, str, frozenset[tuple[str, str]]]] = set()
    wasted = 0
    for request in requests:
        identity = (request.method, request.path, frozenset(request.query.items()))
        wasted += identity in answered
        if request.status == OK and request.fault not in SPOILING:
            answered.add(identity)
    return wasted


def summarize(requests: list[LoggedRequest], rate: float | None) -> dict[str, Any]:
    """Return the counts by status and fault, the peak burst and the waste."""
    return {
        "requests": len(requests),
        "by_status": _counts(str(request.status) for request in requests),
        "by_fault": _counts(request.fault for request in requests if request.fault),
        "records": sum(request.count for request in requests),
        "rate": rate,
        "peak_burst": None if rate is None else peak_over(requests, rate),
        "wasted": count_wasted(requests),
    }


def _counts(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
