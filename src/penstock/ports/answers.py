"""Answers that the processes of an installation share."""

from abc import abstractmethod
from typing import Protocol


class SharedAnswers(Protocol):
    """A store that is only faster than asking again, never more true.

    It forgets what it likes, and where it cannot be reached it has nothing: no method
    raises for that.
    """

    @abstractmethod
    def find(self, name: str) -> tuple[bytes, float] | None:
        """Return what was kept under a name, and how many seconds it is still good."""
        ...

    @abstractmethod
    def keep(self, name: str, value: bytes, *, seconds: float) -> None: ...

    @abstractmethod
    def trouble(self) -> str | None:
        """Say what is wrong with the store, or None; asks it, and waits moments."""
        ...
