"""Datasets as a whole: what is stored of them, removed and converted."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock.domain.dataset import Dataset
from penstock.domain.job import Import
from penstock.domain.retyping import Loss, TypeChange


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDataset:
    """What is stored of a dataset, whether it is declared or not."""

    name: str
    # live rows; None where there is no table any more
    rows: int | None
    deleted: int
    bad_rows: int
    last_import: Import | None
    # when the last import ended that succeeded
    imported_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retyped:
    """What became of a dataset whose types were to be changed."""

    changes: Sequence[TypeChange]
    rows: int
    # values that would be lost, so that nothing was changed, and the first of them
    lost: int = 0
    losses: Sequence[Loss] = ()


class Datasets(Protocol):
    """The datasets of a database.

    What is removed or converted breaks the history of the dataset: positions in its
    change feed, cached responses and versions from before do not hold any more, also
    if it is declared again.
    """

    @abstractmethod
    def stored(self) -> Sequence[StoredDataset]:
        """Return all datasets that have rows or imports, by name."""
        ...

    @abstractmethod
    def drop(self, name: str) -> Iterator[int]:
        """Remove all that is stored of a dataset; yield entries removed, in batches.

        First its rows, at once, then what the ledger has of it. One that was
        interrupted goes on when it is called again. Raises `Conflict` while an import
        is unfinished, and `NotFound` if there is nothing.
        """
        ...

    @abstractmethod
    def type_changes(self, dataset: Dataset) -> Sequence[TypeChange]:
        """Return the fields that are stored under another type than is declared."""
        ...

    @abstractmethod
    def retype(self, dataset: Dataset) -> Retyped:
        """Convert the stored values to their declared types, all or none.

        Raises `Conflict` while an import is unfinished, and `Misconfigured` for a
        change that is none of types.
        """
        ...
