"""Request budgets that all processes share."""

from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from penstock.domain.budget import Budget, BudgetState, Grant, Usage


class Budgets(Protocol):
    """Request budgets for all processes together, by the store's own clock.

    If the store is down, every method raises `StoreUnavailable`: no request is sent.
    """

    @abstractmethod
    def take(self, budget: Budget, *, longest: timedelta) -> Grant:
        """Reserve one token; send only after `grant.wait`.

        Raises `BudgetClosed`, and reserves nothing, if the wait would be longer than
        `longest`, and `BudgetStopped` if an operator has to open it.
        """
        ...

    @abstractmethod
    def confirm(self, grant: Grant) -> bool:
        """Return whether the token is valid now, by the store's clock.

        False if its time passed too long ago: the request would form a burst with the
        next ones. Raises as `take` does if the budget was closed or stopped since.
        """
        ...

    @abstractmethod
    def give_back(self, budget: Budget, grant: Grant) -> None:
        """Return a token that was not used."""
        ...

    @abstractmethod
    def close(self, budget: str, *, wait: timedelta, reason: str) -> None:
        """Close a budget for all processes; never shortens a longer closure."""
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
class BudgetSnapshot:
    """The durable state of a budget, to restore a volatile store from."""

    usage: Usage
    # the clock by which the usage was counted
    now: int
    closed_for: timedelta | None = None
    closed_reason: str | None = None
    stopped: str | None = None
    # since when it is closed or stopped
    paused_at: datetime | None = None


class DurableBudgets(Budgets, Protocol):
    """Budgets in a durable store, which can also back up those of a volatile store."""

    @abstractmethod
    def recall(self, budget: Budget) -> BudgetSnapshot | None:
        """Return the stored state of a budget, or None."""
        ...

    @abstractmethod
    def remember(self, budget: Budget, usage: Usage, *, ahead: int) -> None:
        """Store the usage counted by another store, whose clock is `ahead` us ahead.

        Counts never decrease: of two values the higher one is stored, per bucket.
        """
        ...
