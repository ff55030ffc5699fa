"""Datasets as a whole: list, drop, convert."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Import
from penstock.domain.retyping import Loss, TypeChange


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDataset:
    """What is stored of a dataset, whether it is declared or not."""

    name: str
    # live rows; None if the table does not exist any more
    rows: int | None
    deleted: int
    bad_rows: int
    last_import: Import | None
    # when the last successful import ended
    imported_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSummary:
    """What can be read of a dataset without its table."""

    name: str
    bad_rows: int
    # when the last successful import ended
    imported_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetypeResult:
    """The result of a type change."""

    changes: Sequence[TypeChange]
    rows: int
    # values that cannot be converted, if any: then nothing was changed
    lost: int = 0
    losses: Sequence[Loss] = ()


class Datasets(Protocol):
    """The datasets of a database.

    Dropping or converting a dataset starts a new history: earlier change positions,
    cached responses and versions are invalid, also if it is declared again.
    """

    @abstractmethod
    def stored(self) -> Sequence[StoredDataset]:
        """Return all datasets that have rows or imports, by name."""
        ...

    @abstractmethod
    def summaries(self) -> Sequence[DatasetSummary]:
        """Return the same datasets without counting their rows, by name."""
        ...

    @abstractmethod
    def drop(self, name: str) -> Iterator[int]:
        """Remove everything stored of a dataset; yield the entries removed per batch.

        First its table, then its entries in the ledger. After an interruption, the next
        call continues. Raises `Conflict` while an import is unfinished, and `NotFound`
        if nothing is stored.
        """
        ...

    @abstractmethod
    def type_changes(self, dataset: Dataset) -> Sequence[TypeChange]:
        """Return the fields whose stored type differs from the declared one."""
        ...

    @abstractmethod
    def retype(self, dataset: Dataset) -> RetypeResult:
        """Convert the stored values to their declared types, all or none.

        Raises `Conflict` while an import is unfinished, and `Misconfigured` if more
        than types has changed.
        """
        ...
