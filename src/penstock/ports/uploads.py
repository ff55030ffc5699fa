"""Files that clients upload."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Protocol

from penstock.domain.dataset import Dataset


class Uploads(Protocol):
    """The spool of uploaded and downloaded files."""

    @abstractmethod
    def save(self, dataset: Dataset, chunks: Iterable[bytes], *, label: str) -> str:
        """Store a file from its chunks, whole or not at all.

        Returns the unique name by which a source of the dataset finds it. The label
        cannot lead out of the folder. Raises `Rejected` for more bytes than the dataset
        allows, and what `chunks` raises.
        """
        ...

    @abstractmethod
    def remove(self, dataset: Dataset, file: str) -> None:
        """Remove a saved file; does nothing if it does not exist."""
        ...

    @abstractmethod
    def remove_all(self, dataset: str, *, spool: str) -> int:
        """Remove all spooled files of a dataset; return how many."""
        ...

    @abstractmethod
    def remove_idle(
        self,
        dataset: Dataset,
        *,
        age: timedelta,
        needed: Callable[[], Iterable[str]],
    ) -> None:
        """Remove spooled files that are older than `age` and not needed.

        Also leftovers of interrupted transfers. `needed` is called only if there are
        files of that age.
        """
        ...
