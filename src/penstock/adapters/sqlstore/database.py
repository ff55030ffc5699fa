"""The database protocols of the stores; each kind of server implements them."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from penstock.domain.archiving import ArchiveCut
from penstock.domain.dataset import Dataset, Reference
from penstock.domain.formats import EPOCH
from penstock.domain.lost_files import RowOrigin
from penstock.domain.pages import Key, Record
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.adapters.sqlstore.table_protocols import RecordTable, SearchTable

Outcome = TypeVar("Outcome")


def instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


class SqlRow(Protocol):
    @abstractmethod
    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The keys of the rows that a page or a client has changed."""

    created: Sequence[Key] = ()
    updated: Sequence[Key] = ()
    deleted: Sequence[Key] = ()
    # rows whose key this import had before, and how many of them were updated
    again: int = 0
    rewritten: int = 0
    # the keys of some of these rows
    repeated_keys: Sequence[Key] = ()


class RowVersion(NamedTuple):
    """When a row was last written, by which import, and its position in the source."""

    updated_at: datetime
    import_id: int
    # 0 if the import has only seen its key
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
    ) -> MergeResult:
        """Store new and changed rows.

        In a ranked dataset, a row that this import has stored with a higher rank stays.

        With `track`, unchanged rows are marked with the import too, so that the end of
        a full import can find the missing ones.
        """
        ...

    @abstractmethod
    def note(
        self, merged: MergeResult, *, import_id: int | None, publish: bool = False
    ) -> None:
        """Append a change event for each row that was stored.

        Rows that were created leave the archive.

        With `publish`, the generation rises, which invalidates cached responses.
        """
        ...

    @abstractmethod
    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield the live rows in key order, with values of the domain's types."""
        ...

    @abstractmethod
    def count(self) -> int: ...

    @abstractmethod
    def distinct(self, field: str) -> Iterator[str]: ...

    @abstractmethod
    def row_version(self, key: Key) -> RowVersion | None:
        """Lock the row of a key, and return its version."""
        ...

    @abstractmethod
    def supersede_rejections(self, *, job: int, start: int) -> None:
        """Resolve the rejections of a job whose key has a stored row that wins.

        It wins if it is later in the files, or if a later import has stored it; `start`
        is the rank of the first byte of the job's file. A bad row has no known version,
        so in datasets with versions its position does not decide.
        """
        ...

    @abstractmethod
    def missing_by_file(
        self, *, import_id: int, started: datetime
    ) -> Mapping[RowOrigin, int]:
        """Count the missing rows by where they were last seen; ranked datasets only."""
        ...

    @abstractmethod
    def count_missing(
        self, *, import_id: int, started: datetime, retained: Sequence[RowOrigin] = ()
    ) -> int:
        """Count the live rows that an import has not seen.

        Rows that another import or a replay wrote since the start are not missing, nor
        are rows last seen in one of the `retained` origins.
        """
        ...

    @abstractmethod
    def mark_missing(
        self, *, import_id: int, started: datetime, retained: Sequence[RowOrigin] = ()
    ) -> int:
        """Mark the missing rows as deleted, with change events; return how many."""
        ...

    @abstractmethod
    def expired(
        self, cut: ArchiveCut, *, after: Key | None, limit: int
    ) -> Sequence[Key]:
        """Return keys of live rows that were not seen since a cut, in key order.

        Rows that a client has written are none of them.
        """
        ...

    @abstractmethod
    def archive(self, cut: ArchiveCut, keys: Sequence[Key]) -> int:
        """Move those of the rows that are still expired to the archive.

        With change events; return how many.
        """
        ...


class Transaction(Protocol):
    """Named statements inside one transaction."""

    @abstractmethod
    def execute(self, name: str, /, **parameters: Any) -> int:
        """Run a statement; return the number of affected rows."""
        ...

    @abstractmethod
    def execute_all(self, names: Sequence[str], /, **parameters: Any) -> None:
        """Run statements that do not depend on each other."""
        ...

    @abstractmethod
    def execute_many(self, name: str, /, given: Sequence[dict[str, Any]]) -> None:
        """Run a statement once for each set of parameters."""
        ...

    @abstractmethod
    def one(self, name: str, /, **parameters: Any) -> SqlRow | None: ...

    @abstractmethod
    def all(self, name: str, /, **parameters: Any) -> Sequence[SqlRow]: ...

    @abstractmethod
    def pipeline(self) -> AbstractContextManager[object]:
        """Send statements in one batch; none of their results is read."""
        ...

    @abstractmethod
    def attempt(self, work: Callable[[], object], dataset: Dataset) -> Refused | None:
        """Do a part of the work; return why the database refuses its rows, if it does.

        Then only this part is rolled back. Rows are refused for their content, not for
        a conflict with other transactions.
        """
        ...

    @abstractmethod
    def existing_values(
        self, reference: Reference, values: Sequence[Any]
    ) -> Collection[Any]:
        """Return those of the values that live rows of another dataset have."""
        ...

    @abstractmethod
    def imports_of_rows(self, dataset: str) -> Collection[int]:
        """Return the imports that live rows name; none if there is no such table."""
        ...

    @abstractmethod
    def table(self, dataset: Dataset) -> Table: ...

    @abstractmethod
    def record_table(self, dataset: Dataset) -> "RecordTable": ...

    @abstractmethod
    def search_table(self, dataset: Dataset) -> "SearchTable": ...


class Database(Protocol):
    """The one database that holds the ledger and the records."""

    @abstractmethod
    def write(
        self, work: Callable[[Transaction], Outcome], *, slow: bool = False
    ) -> Outcome:
        """Do work in one transaction.

        It is repeated after a serialization conflict, so it must have no side effects
        outside of its transaction. Slow work has no lease that could end meanwhile, and
        no time limit.
        """
        ...

    @abstractmethod
    def read(self, work: Callable[[Transaction], Outcome]) -> Outcome:
        """Read without locks; each statement sees one committed state."""
        ...

    @abstractmethod
    def stream(self) -> AbstractContextManager[Transaction]:
        """Read more rows than fit into memory."""
        ...

    @abstractmethod
    def to_stored_time(self, of: datetime | None) -> object:
        """Convert a time to a statement parameter."""
        ...

    @abstractmethod
    def instant(self, stored: Any) -> datetime:
        """Convert a stored time."""
        ...


def read_count(row: SqlRow | None) -> int:
    """Read the result of a statement that counts."""
    return 0 if row is None else int(row["counted"])
