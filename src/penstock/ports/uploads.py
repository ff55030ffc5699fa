"""Files that clients send."""

from abc import abstractmethod
from collections.abc import Iterable
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
