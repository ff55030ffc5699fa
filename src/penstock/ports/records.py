"""The stored records, and the bad rows beside them."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock.domain.dataset import Dataset, Reference
from penstock.domain.job import (
    ImportId,
    JobId,
)
from penstock.domain.page import (
    Reason,
    Record,
    Rejection,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """One stored bad row."""

    id: int
    import_id: ImportId
    job: JobId
    shard_key: str
    page_seq: int
    rejection: Rejection
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What became of quarantined rows that were tried again."""

    accepted: int = 0
    superseded: int = 0
    still_bad: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """How many rows of an import were bad in the same way."""

    reason: Reason
    field: str | None
    rows: int


class Records(Protocol):
    """The stored records of the datasets."""

    @abstractmethod
    def rows(self, dataset: Dataset) -> Iterator[tuple[object, ...]]:
        """Yield live rows, all fields in declared order, ordered by key, streamed."""
        ...

    @abstractmethod
    def count(self, dataset: Dataset) -> int:
        """Count the live rows."""
        ...

    @abstractmethod
    def distinct(self, dataset: Dataset, field: str) -> Iterator[str]:
        """Yield the values of a field of the live rows, each once, in order."""
        ...

    @abstractmethod
    def unknown(
        self, reference: Reference, values: Collection[object]
    ) -> Collection[object]:
        """Return which of these values no live row of the other dataset has."""
        ...

    @abstractmethod
    def watermark(self, dataset: Dataset) -> datetime | None:
        """Return the provider's time at the start of the last proven scan."""
        ...

    @abstractmethod
    def quarantine(
        self, dataset: Dataset, *, after: int, limit: int
    ) -> Sequence[Quarantined]:
        """Return open bad rows in the order of their ids, beginning after one."""
        ...

    @abstractmethod
    def latest_quarantine(
        self, dataset: Dataset, *, at_once: int
    ) -> Iterator[Sequence[Quarantined]]:
        """Yield open bad rows, up to so many at once, the latest first.

        Of rows of files that is the one that stands last in them, in whatever order
        they came. Those that are settled meanwhile may be left out.
        """
        ...

    @abstractmethod
    def rejected(
        self, import_id: ImportId, *, after: int, limit: int
    ) -> Sequence[Quarantined]:
        """Return the bad rows of an import, also those that are settled since.

        They come in the order of their ids, beginning after one; fewer than the limit
        where they are large, but one at least if there is any. Those of an import that
        repeats another are the other's.
        """
        ...

    @abstractmethod
    def rejections_by_reason(self, import_id: ImportId) -> Sequence[ReasonCount]:
        """Count the bad rows of an import by reason and field, the most first.

        They are those that `rejected` returns.
        """
        ...

    @abstractmethod
    def replay(
        self,
        dataset: Dataset,
        tried: Sequence[tuple[Quarantined, Record | Rejection]],
    ) -> Replay:
        """Store the rows that are good now, in one transaction with their events.

        They are tried in the order given, so the latest of a key must come first. A row
        whose key was written since it was quarantined is superseded: what came later is
        not overwritten. Between rows that one import brought of files, it is not the
        time that decides but where they stand. A row that is still bad keeps its new
        reason.
        """
        ...
