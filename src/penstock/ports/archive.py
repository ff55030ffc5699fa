"""The rows of a dataset that its source has not had for long, and their archive."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from penstock.domain.archiving import ArchiveCut, Sighting
from penstock.domain.completion import MissingRows
from penstock.domain.dataset import Dataset
from penstock.domain.pages import Key


class Archive(Protocol):
    """Moves rows from the table of a dataset to its archive.

    A row that is stored again, by an import or a client, leaves the archive.
    """

    @abstractmethod
    def sightings(self, dataset: Dataset) -> Sequence[Sighting]:
        """Return the proven full imports since the archive was declared."""
        ...

    @abstractmethod
    def count(self, dataset: Dataset, cut: ArchiveCut, *, missing: int) -> MissingRows:
        """Return with how many live rows and bad rows to compare the missing ones."""
        ...

    @abstractmethod
    def expired(
        self, dataset: Dataset, cut: ArchiveCut, *, after: Key | None, limit: int
    ) -> Sequence[Key]:
        """Return keys of live rows that were not seen since a cut, in key order.

        Rows that a client has written, or that have local values, are none of them.
        """
        ...

    @abstractmethod
    def move(self, dataset: Dataset, cut: ArchiveCut, keys: Sequence[Key]) -> int:
        """Archive those of the rows that are still expired; return how many.

        In one transaction with their changes, which say that they are deleted.
        """
        ...

    @abstractmethod
    def forget(self, dataset: Dataset, cut: ArchiveCut) -> None:
        """Remove earlier sightings: all their rows are archived, or stay."""
        ...
