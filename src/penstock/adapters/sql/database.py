"""What the stores ask of a database; each kind of server brings its own."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from penstock.domain.dataset import Dataset, Reference
from penstock.domain.lost_files import Origin
from penstock.domain.page import Key, Record
from penstock.domain.times import EPOCH
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.adapters.sql.searched import SearchedTable
    from penstock.adapters.sql.served import ServedTable

Outcome = TypeVar("Outcome")


def instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


class Row(Protocol):
    @abstractmethod
    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The keys of the rows that a page, or a client, has changed."""

    created: Sequence[Key] = ()
    updated: Sequence[Key] = ()
    deleted: Sequence[Key] = ()
    # rows whose key this import had brought before, and those of them that were updated
    again: int = 0
    rewritten: int = 0


class Stamp(NamedTuple):
    """When a row was last written, and where in which import it stands."""

    updated_at: datetime
    import_id: int
    # 0 where the import has only seen its key
    rank: int


class Table(Protocol):
    """The table of one dataset, inside a transaction."""

    @abstractmethod
    def merge(
        self,
        records: Sequence[Record],
        *,
        import_id: int,
        rank: int = 0,
        seen: Collection[Key] = (),
        track: bool,
    ) -> Merged:
        """Store what is new or changed.

        In a ranked dataset, what this import has stored of a higher rank stays.

        With `track`, rows that were only seen are marked with the import too, so that
        the end of a full import can tell which are missing.
        """
        ...

    @abstractmethod
    def note(
        self, merged: Merged, *, import_id: int | None, publish: bool = False
    ) -> None:
        """Append a change event for each row that was stored.

        With `publish`, whoever keeps answers has to ask anew: the generation rises.
        """
        ...

    @abstractmethod
    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield the live rows by key, as the domain knows their values."""
        ...

    @abstractmethod
    def count(self) -> int: ...

    @abstractmethod
    def distinct(self, field: str) -> Iterator[str]: ...

    @abstractmethod
    def stamp(self, key: Key) -> Stamp | None:
        """Return what is known of how the row of a key came, and hold it."""
        ...

    @abstractmethod
    def outdo(self, *, job: int, start: int) -> None:
        """Settle what a job complains of where the row that is stored of the key wins.

        So it does if it stands later in the files, or if a later import brought it;
        `start` is the rank of the first byte of the job's file. Nobody knows the
        version of a bad row, so where versions decide, its place does not.
        """
        ...

    @abstractmethod
    def missing_by_file(
        self, *, import_id: int, started: datetime
    ) -> Mapping[Origin, int]:
        """Count those rows by where they were seen last; of ranked datasets only."""
        ...

    @abstractmethod
    def count_missing(
        self, *, import_id: int, started: datetime, kept: Sequence[Origin] = ()
    ) -> int:
        """Count the live rows that an import has not seen.

        What another import or a replay wrote since the start is not missing, nor what
        was seen last where `kept` says.
        """
        ...

    @abstractmethod
    def mark_missing(
        self, *, import_id: int, started: datetime, kept: Sequence[Origin] = ()
    ) -> int:
        """Mark those rows as deleted, with their events; return how many."""
        ...


class Transaction(Protocol):
    """Named statements inside one transaction."""

    @abstractmethod
    def execute(self, name: str, /, **parameters: Any) -> int:
        """Run a statement; return how many rows it touched."""
        ...

    @abstractmethod
    def execute_all(self, names: Sequence[str], /, **parameters: Any) -> None:
        """Run statements none of which looks at what another does."""
        ...

    @abstractmethod
    def each(self, name: str, /, given: Sequence[dict[str, Any]]) -> None:
        """Run a statement once for each of these parameters."""
        ...

    @abstractmethod
    def one(self, name: str, /, **parameters: Any) -> Row | None: ...

    @abstractmethod
    def all(self, name: str, /, **parameters: Any) -> Sequence[Row]: ...

    @abstractmethod
    def together(self) -> AbstractContextManager[object]:
        """Send statements in one go; none of them is asked for an answer."""
        ...

    @abstractmethod
    def attempt(self, work: Callable[[], object], dataset: Dataset) -> Refused | None:
        """Do a part of the work; return why the database refuses its rows, if it does.

        Then only this part is taken back. Rows are refused for what they are, not for
        when they come.
        """
        ...

    @abstractmethod
    def known_values(
        self, reference: Reference, values: Sequence[Any]
    ) -> Collection[Any]:
        """Return which of these values the live rows of another dataset have."""
        ...

    @abstractmethod
    def table(self, dataset: Dataset) -> Table: ...

    @abstractmethod
    def served(self, dataset: Dataset) -> "ServedTable": ...

    @abstractmethod
    def searched(self, dataset: Dataset) -> "SearchedTable": ...


class Database(Protocol):
    """The one database that holds the ledger and the records."""

    @abstractmethod
    def write(
        self, work: Callable[[Transaction], Outcome], *, slow: bool = False
    ) -> Outcome:
        """Do work in one transaction: all or nothing.

        It may be done more than once where the database asks for that, so it must not
        reach outside of its transaction. Slow work has no lease that would end
        meanwhile, and gets all the time it needs.
        """
        ...

    @abstractmethod
    def read(self, work: Callable[[Transaction], Outcome]) -> Outcome:
        """Read without a lock; each statement sees one committed state."""
        ...

    @abstractmethod
    def stream(self) -> AbstractContextManager[Transaction]:
        """Read more than fits into memory."""
        ...

    @abstractmethod
    def moment(self, of: datetime | None) -> object:
        """Return a time as a parameter."""
        ...

    @abstractmethod
    def instant(self, stored: Any) -> datetime:
        """Return a stored time."""
        ...


def counted(row: Row | None) -> int:
    """Read the answer of a statement that counts."""
    return 0 if row is None else int(row["counted"])
