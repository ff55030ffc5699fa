"""How often clients may ask, counted by all processes together."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

from penstock.domain.rates import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Requests of a client that one process may let in without asking again."""

    granted: int
    # what is left for all processes
    left: int
    # seconds until one more is allowed
    wait: float


class SharedRates(Protocol):
    """One allowance for each client, from which processes take in chunks.

    What a process has taken and does not use is lost to the others for as long as it
    takes to come back by itself.
    """

    @abstractmethod
    def take(self, client: str, rate: Rate, *, most: int) -> Chunk:
        """Take up to so many requests; raises `StoreUnavailable` within moments."""
        ...

    @abstractmethod
    def trouble(self) -> str | None:
        """Say what is wrong with the store, or None; asks it, and waits moments."""
        ...
