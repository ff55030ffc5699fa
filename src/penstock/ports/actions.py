"""The log of what people have done."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from penstock.domain.actions import Action, ActionId, StoredAction


class ActionLog(Protocol):
    @abstractmethod
    def add(self, action: Action) -> None: ...

    @abstractmethod
    def recent(self, *, before: ActionId | None, limit: int) -> Sequence[StoredAction]:
        """Return the newest actions first, starting before one."""
        ...

    @abstractmethod
    def count_old(self, *, age: timedelta) -> int: ...

    @abstractmethod
    def forget(self, *, age: timedelta, most: int) -> int:
        """Remove the oldest actions that are older; return how many."""
        ...
