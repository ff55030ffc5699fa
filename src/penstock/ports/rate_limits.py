"""Request rates of clients, counted by all processes together."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

from penstock.domain.client_rate import ClientRate


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBatch:
    """Requests of a client that one process may allow without another call."""

    granted: int
    # the remaining requests for all processes
    left: int
    # seconds until one more is allowed
    wait: float


class SharedRateLimiter(Protocol):
    """One token bucket per client, from which processes take batches.

    Requests that a process has taken and does not use are lost to the others until the
    bucket refills.
    """

    @abstractmethod
    def take(self, client: str, rate: ClientRate, *, most: int) -> RequestBatch:
        """Take up to `most` requests; raises `StoreUnavailable` after a short time."""
        ...

    @abstractmethod
    def failure(self) -> str | None:
        """Return what is wrong with the store, or None; may block for a short time."""
        ...
