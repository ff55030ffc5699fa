"""The stored records, and the rejected rows in quarantine."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock.domain.dataset import Dataset, Reference
from penstock.domain.jobs import ImportId, JobId
from penstock.domain.pages import Reason, Record, Rejection


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    """One stored bad row."""

    id: int
    import_id: ImportId
    job: JobId
    shard_key: str
    page_seq: int
    rejection: Rejection
    at: datetime
    # what became of it; None while it is open
    resolved: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of replaying quarantined rows."""

    accepted: int = 0
    superseded: int = 0
    still_bad: int = 0
    # why rows are still bad, the most frequent reason first
    reasons: Sequence["ReasonCount"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """How many rows were rejected for one reason."""

    reason: Reason
    field: str | None
    rows: int
    # the greatest id among them, where it is known
    last_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionFilter:
    """Open rejected rows: those with an id, or those of a reason and a field."""

    ids: Sequence[int] = ()
    reason: Reason | None = None
    # None: those without a field
    field: str | None = None
    # rows with a greater id came later, and are left out
    until: int


class Records(Protocol):
    """The stored records of the datasets."""

    @abstractmethod
    def rows(self, dataset: Dataset) -> Iterator[tuple[object, ...]]:
        """Stream live rows, all fields in declared order, ordered by key."""
        ...

    @abstractmethod
    def count(self, dataset: Dataset) -> int:
        """Count the live rows."""
        ...

    @abstractmethod
    def distinct(self, dataset: Dataset, field: str) -> Iterator[str]:
        """Yield the distinct values of a field of the live rows, in order."""
        ...

    @abstractmethod
    def unknown(
        self, reference: Reference, values: Collection[object]
    ) -> Collection[object]:
        """Return the values that no live row of the referenced dataset has."""
        ...

    @abstractmethod
    def watermark(self, dataset: Dataset) -> datetime | None:
        """Return the provider's time at the start of the last proven scan."""
        ...

    @abstractmethod
    def quarantine(
        self, dataset: Dataset, *, after: int, limit: int
    ) -> Sequence[QuarantinedRow]:
        """Return open rejected rows in the order of their ids, starting after one."""
        ...

    @abstractmethod
    def latest_quarantine(
        self, dataset: Dataset, *, at_once: int
    ) -> Iterator[Sequence[QuarantinedRow]]:
        """Yield open rejected rows, in batches, the latest first.

        Rows of files are ordered by their position in the files, not by time. Rows that
        are settled meanwhile may be left out.
        """
        ...

    @abstractmethod
    def rejected(
        self, import_id: ImportId, *, after: int, limit: int
    ) -> Sequence[QuarantinedRow]:
        """Return the rejected rows of an import, including those settled since.

        In the order of their ids, starting after one; fewer than the limit if they are
        large, but at least one if there are any. For an import that repeats another,
        those of the other.
        """
        ...

    @abstractmethod
    def rejections_by_reason(self, import_id: ImportId) -> Sequence[ReasonCount]:
        """Count the rows of `rejected` by reason and field, the most frequent first."""
        ...

    @abstractmethod
    def open_reasons(self, dataset: Dataset) -> Sequence[ReasonCount]:
        """Count the open rejected rows by reason and field, the most frequent first."""
        ...

    @abstractmethod
    def discard(self, dataset: Dataset, chosen: RejectionFilter, *, limit: int) -> int:
        """Resolve up to so many open rejected rows as discarded; return how many.

        Rows that are resolved meanwhile are left as they are.
        """
        ...

    @abstractmethod
    def replay(
        self,
        dataset: Dataset,
        outcomes: Sequence[tuple[QuarantinedRow, Record | Rejection]],
        *,
        dry_run: bool = False,
    ) -> Replay:
        """Store the rows that are valid now, in one transaction with their events.

        In the given order, so the latest row of a key must come first. A row whose key
        was written since it was quarantined is superseded: newer data is not
        overwritten. Among rows of files of one import, the position decides, not the
        time. A row that is still invalid gets its new reason.

        A dry run changes nothing.
        """
        ...
