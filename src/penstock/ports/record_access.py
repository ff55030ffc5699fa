"""Records for clients of the API: bounded reads, and writes with preconditions."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from penstock.domain.dataset import Dataset, Field
from penstock.domain.history import HistoryPosition
from penstock.domain.pages import Key, Record
from penstock.domain.search.query import KeysetPosition, Query
from penstock.ports.search import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVersion:
    """The version of a dataset's content."""

    # incremented by every write of a client, and when an import is published
    generation: int
    # the number of its last change, in the order of commits
    change_seq: int
    # random, and stored with the numbers: after a database was restored from a backup,
    # the numbers are used again, the tags are not
    generation_tag: int = 0
    change_tag: int = 0
    watermark: datetime | None = None
    # how many restores of the database this process has detected
    history: int = 0
    # its table was dropped, and no other has taken its place yet
    is_dropped: bool = field(default=False, compare=False)

    @property
    def position(self) -> HistoryPosition:
        """The last change."""
        return HistoryPosition(self.change_seq, self.change_tag)

    @property
    def published(self) -> tuple[int, int]:
        """The generation with its tag, unique across restores of the database."""
        return self.generation, self.generation_tag


# the versions of datasets right after each read, if a caller collects them
OBSERVED: ContextVar[list[DatasetVersion] | None] = ContextVar("observed", default=None)


def note_observed(state: DatasetVersion) -> None:
    """Record the version of a dataset right after a read of it."""
    observed = OBSERVED.get()
    if observed is not None:
        observed.append(state)


@contextmanager
def observing() -> Iterator[list[DatasetVersion]]:
    """Collect the dataset version right after each read of this thread."""
    observed: list[DatasetVersion] = []
    token = OBSERVED.set(observed)
    try:
        yield observed
    finally:
        OBSERVED.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """One page of rows as JSON objects, in the order of the list."""

    rows: Sequence[bytes]
    first: KeysetPosition | None = None
    last: KeysetPosition | None = None
    # whether there are more rows in the direction of reading
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One row as a JSON object, and its version for preconditions."""

    body: bytes
    version: str


class CountKind(StrEnum):
    """How rows are counted."""

    NONE = "none"
    EXACT = "exact"
    # the estimate of the database
    PLANNED = "planned"
    # a lower bound: counting was stopped there
    CAPPED = "capped"


@dataclass(frozen=True, slots=True)
class Count:
    value: int
    kind: CountKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry of the change feed."""

    seq: int
    tag: int
    kind: str
    key: Sequence[object]
    import_id: int | None
    at: datetime

    @property
    def position(self) -> HistoryPosition:
        return HistoryPosition(self.seq, self.tag)


class RecordReader(Protocol):
    """Bounded reads for clients."""

    @abstractmethod
    def dataset_versions(self) -> Mapping[str, DatasetVersion]:
        """Return the version of each dataset, by its name."""
        ...

    @abstractmethod
    def knows(self, dataset: str, positions: Collection[HistoryPosition]) -> bool:
        """Return whether the history of a dataset has all of these changes.

        Reads the primary. A change is missing if the database was restored to an
        earlier state, or if its entry was removed from the feed.
        """
        ...

    @abstractmethod
    def page(self, query: Query) -> RecordPage:
        """Return a page of live rows."""
        ...

    @abstractmethod
    def one(
        self, dataset: Dataset, key: Key, fields: Sequence[Field]
    ) -> StoredRecord | None: ...

    @abstractmethod
    def count(self, query: Query, kind: CountKind) -> Count:
        """Count the rows of a query, as exactly as a short time allows.

        The result has its kind; an exact count that takes too long becomes another one.
        Raises `StoreTimeout` if even that takes too long.
        """
        ...

    @abstractmethod
    def changes(self, dataset: Dataset, *, after: int, limit: int) -> Sequence[Change]:
        """Return the changes after a sequence number, in the order of commits."""
        ...

    @abstractmethod
    def secret(self, name: str) -> bytes:
        """Return a secret shared by all processes of this database; create it once."""
        ...


@dataclass(frozen=True, slots=True)
class LockedRow:
    """A stored row, locked until the transaction ends."""

    # all fields in declared order
    values: tuple[object, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Write:
    """A row to be written."""

    record: Record
    # values of local fields, which no import writes; others stay unchanged
    local: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Removal:
    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a client's write."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    versions: Mapping[Key, str] = field(default_factory=dict)
    # the written row, if it is only one
    one: StoredRecord | None = None
    state: DatasetVersion


# existing rows by key, each read when it is used -> what to write; raises to refuse
Decide: TypeAlias = Callable[[Mapping[Key, LockedRow]], Sequence[Write | Removal]]


class RecordWriter(Protocol):
    """Writes of clients."""

    @abstractmethod
    def change(
        self, dataset: Dataset, keys: Sequence[Key], decide: Decide
    ) -> WriteResult:
        """Lock rows, decide, and write, in one transaction with their change events.

        `decide` may be called more than once. Increments the generation.
        """
        ...


FailureCheck: TypeAlias = Callable[[], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """A replica that reads may go to."""

    name: str
    is_in_rotation: bool
    # bytes of the primary's log that it has not replayed; none: not known now
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiStores:
    """The stores of the API."""

    reads: RecordReader
    edits: RecordWriter
    search: Search
    # returns why responses are slower, though not wrong, or None; may block shortly
    failure: FailureCheck = lambda: None
    replicas: Callable[[], Sequence[ReplicaState]] = tuple
