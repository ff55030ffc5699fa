"""A response cache that the processes of an installation share."""

from abc import abstractmethod
from typing import Protocol


class SharedCache(Protocol):
    """A cache that may evict anything; an unreachable one behaves like an empty one.

    No method raises if it is unreachable.
    """

    @abstractmethod
    def find(self, name: str) -> tuple[bytes, float] | None:
        """Return a cached value and its remaining lifetime in seconds, or None."""
        ...

    @abstractmethod
    def store(self, name: str, value: bytes, *, seconds: float) -> None: ...

    @abstractmethod
    def failure(self) -> str | None:
        """Return what is wrong with the store, or None; may block for a short time."""
        ...
