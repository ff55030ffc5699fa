"""Files that clients send."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Protocol

from penstock.domain.dataset import Dataset


class Uploads(Protocol):
    """Where files that clients send are kept, until nobody needs them any more."""

    @abstractmethod
    def save(self, dataset: Dataset, pieces: Iterable[bytes], *, label: str) -> str:
        """Store a file that comes piece by piece, whole or not at all.

        Returns the name by which a source of the dataset finds it; no two files have
        the same. Nothing of the label can lead out of the folder. Raises `Rejected` for
        more bytes than the dataset allows, and what `pieces` raises.
        """
        ...

    @abstractmethod
    def remove(self, dataset: Dataset, file: str) -> None:
        """Remove a file that was saved; nothing happens if it is not there."""
        ...

    @abstractmethod
    def remove_all(self, dataset: str, *, spool: str) -> int:
        """Remove all files of a dataset that came from elsewhere; return how many."""
        ...

    @abstractmethod
    def remove_idle(
        self,
        dataset: Dataset,
        *,
        age: timedelta,
        needed: Callable[[], Iterable[str]],
    ) -> None:
        """Remove files that came from elsewhere, are as old, and are not needed.

        Also those that were fetched, and what is left of those that never came to
        their end. The files that are needed are asked for only if there are others
        as old.
        """
        ...
