"""The shared allowances of requests."""

from abc import abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from penstock.domain.budget import Budget, BudgetState, Grant, Usage


class Budgets(Protocol):
    """One request allowance for all processes, by the store's own clock.

    If the store is down, every method raises `StoreUnavailable`: nobody sends.
    """

    @abstractmethod
    def take(self, budget: Budget, *, longest: timedelta) -> Grant:
        """Reserve one token; send only after `grant.wait`.

        Raises `BudgetClosed`, with nothing reserved, if the wait would be longer than
        `longest`, and `BudgetStopped` if an operator has to open it.
        """
        ...

    @abstractmethod
    def confirm(self, grant: Grant) -> bool:
        """Say whether the token's time is now, by the store's clock.

        False if it passed too long ago: sent now, the request would bunch with those
        behind it. Raises as `take` does if the budget was closed or stopped since.
        """
        ...

    @abstractmethod
    def give_back(self, budget: Budget, grant: Grant) -> None:
        """Return a token that was not used."""
        ...

    @abstractmethod
    def close(self, budget: str, *, wait: timedelta, reason: str) -> None:
        """Close a budget for everyone; a longer closure is not made shorter."""
        ...

    @abstractmethod
    def stop(self, budget: str, *, reason: str) -> None:
        """Close a budget until it is opened."""
        ...

    @abstractmethod
    def open(self, budget: str) -> None:
        """Open a closed or stopped budget."""
        ...

    @abstractmethod
    def state(self, budget: Budget) -> BudgetState: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is known of a budget whose fast store has lost its memory."""

    usage: Usage
    # the clock by which the usage was counted
    now: int
    closed_for: timedelta | None = None
    closed_reason: str | None = None
    stopped: str | None = None


class LastingBudgets(Budgets, Protocol):
    """Budgets in a store that forgets nothing, and can keep notes for one that may."""

    @abstractmethod
    def recall(self, budget: Budget) -> Remembered | None:
        """Return what is known of a budget, or None if nothing is."""
        ...

    @abstractmethod
    def remember(self, budget: Budget, usage: Usage, *, ahead: int) -> None:
        """Note what another store has counted, by a clock so many microseconds ahead.

        A count never falls by it: of two notes the higher one holds, bucket by bucket.
        """
        ...
