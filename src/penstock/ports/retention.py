"""Removal of old entries of the ledger, in small batches."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from penstock.domain.jobs import ImportId
from penstock.domain.retention import EndedImport


class EndPosition(NamedTuple):
    """The position of an import among those that ended."""

    finished_at: datetime
    id: ImportId


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSize:
    """How many entries depend on some imports."""

    jobs: int
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeder:
    """Who follows the changes of a dataset, and the last that it has processed."""

    name: str
    dataset: str
    change_seq: int
    moved_at: datetime


class Retention(Protocol):
    """The old entries of the ledger.

    Everything is removed in transactions of a bounded size, so that others wait for
    none of them; after an interruption the next call continues.
    """

    @abstractmethod
    def shown_at(self) -> datetime | None:
        """Return when it was first shown what is removed; None if never.

        In a database that was created empty, there was nothing to show.
        """
        ...

    @abstractmethod
    def note_shown(self) -> None:
        """Store that it was shown now, unless it was before."""
        ...

    @abstractmethod
    def ended_imports(
        self,
        *,
        age: timedelta,
        bad_rows: timedelta,
        with_pages: bool,
        before: EndPosition | None,
        limit: int,
    ) -> Sequence[EndedImport]:
        """Return imports that were done or cancelled so long ago, the newest first.

        With `with_pages`, only those whose pages are not removed. Resolved bad rows
        that are older than `bad_rows` do not count.
        """
        ...

    @abstractmethod
    def imports_of_rows(self, dataset: str) -> Collection[ImportId]:
        """Return the imports that live rows of a dataset name; reads all its rows."""
        ...

    @abstractmethod
    def measure(self, imports: Sequence[ImportId]) -> ImportSize: ...

    @abstractmethod
    def remove_pages(self, import_id: ImportId) -> Iterator[int]:
        """Remove the pages of an import; yield how many in each batch.

        The import notes it first, so that no audit misses them.
        """
        ...

    @abstractmethod
    def remove_import(self, import_id: ImportId) -> Iterator[tuple[str, int]]:
        """Remove an import and what belongs to it; yield what each batch contained."""
        ...

    @abstractmethod
    def schedules(self) -> Sequence[str]:
        """Return the names of all schedules."""
        ...

    @abstractmethod
    def last_fires(self, schedule: str) -> Collection[ImportId]:
        """Return the imports of the fires of a schedule that always stay.

        These are the last that began imports: as many as it counts failures in a row.
        """
        ...

    @abstractmethod
    def count_fires(self, schedule: str, *, age: timedelta) -> int:
        """Return how many fires `remove_fires` removes in all."""
        ...

    @abstractmethod
    def remove_fires(self, schedule: str, *, age: timedelta, most: int) -> int:
        """Remove old fires of a schedule, the oldest first; return how many."""
        ...

    @abstractmethod
    def count_claims(self, *, age: timedelta) -> int:
        """Return how many claims of jobs ended so long ago."""
        ...

    @abstractmethod
    def datasets(self) -> Sequence[str]:
        """Return the names of all datasets that may have changes."""
        ...

    @abstractmethod
    def count_changes(self, dataset: str, *, age: timedelta) -> int:
        """Return how many changes `remove_changes` removes in all."""
        ...

    @abstractmethod
    def remove_changes(self, dataset: str, *, age: timedelta, most: int) -> int:
        """Remove old changes that no feeder needs, the oldest first; return how many.

        Whoever has an earlier position finds that it is gone.
        """
        ...

    @abstractmethod
    def count_bad_rows(self, *, age: timedelta) -> int:
        """Return how many bad rows `remove_bad_rows` removes in all."""
        ...

    @abstractmethod
    def remove_bad_rows(self, *, age: timedelta) -> Iterator[int]:
        """Remove resolved bad rows that came so long ago; yield how many per batch.

        Those of failed and unfinished imports stay.
        """
        ...


class Feeders(Protocol):
    """Who feeds a copy from the change feed; the changes that it needs stay."""

    @abstractmethod
    def move(self, name: str, dataset: str, *, change_seq: int) -> None:
        """Store the last change that a feeder has processed; the first time adds it."""
        ...

    @abstractmethod
    def remove(self, name: str) -> bool:
        """Let nothing wait for a feeder any more; False if there is none."""
        ...

    @abstractmethod
    def all(self) -> Sequence[Feeder]: ...
