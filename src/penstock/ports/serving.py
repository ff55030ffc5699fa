"""The records as clients of the API see them: bounded reads, and guarded writes."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from penstock.domain.dataset import Dataset, Field
from penstock.domain.page import Key, Record
from penstock.domain.queries.query import Place, Query
from penstock.ports.searching import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How far a dataset has come."""

    # rises with every write of a client, and when an import is published
    generation: int
    # the number of its last change, in the order of commits
    change_seq: int
    watermark: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The rows of one page, each as a JSON object, in the order of the list."""

    rows: Sequence[bytes]
    first: Place | None = None
    last: Place | None = None
    # whether there are rows beyond, in the direction in which it was read
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """One row as a JSON object, and the version by which changes name it."""

    body: bytes
    version: str


class CountKind(StrEnum):
    """How a number of rows was found, or is to be found."""

    NONE = "none"
    EXACT = "exact"
    # what the database expects
    PLANNED = "planned"
    # at least so many: counting was stopped there
    CAPPED = "capped"


@dataclass(frozen=True, slots=True)
class Count:
    value: int
    kind: CountKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry of the change feed."""

    seq: int
    kind: str
    key: Sequence[object]
    import_id: int | None
    at: datetime


class Reads(Protocol):
    """What clients may read; each call is one bounded question."""

    @abstractmethod
    def states(self) -> Mapping[str, State]:
        """Return how far each dataset has come, by its name."""
        ...

    @abstractmethod
    def page(self, query: Query) -> Listing:
        """Return a page of live rows."""
        ...

    @abstractmethod
    def one(
        self, dataset: Dataset, key: Key, fields: Sequence[Field]
    ) -> Found | None: ...

    @abstractmethod
    def count(self, query: Query, kind: CountKind) -> Count:
        """Count the rows of a query, as well as can be done in a moment.

        The answer says how it was found; an exact count that takes too long is not.
        Raises `StoreTooSlow` where not even that can be said in a moment.
        """
        ...

    @abstractmethod
    def changes(self, dataset: Dataset, *, after: int, limit: int) -> Sequence[Change]:
        """Return what changed after an entry, in the order of commits."""
        ...

    @abstractmethod
    def secret(self, name: str) -> bytes:
        """Return a secret that all processes of this database share, made at need."""
        ...


@dataclass(frozen=True, slots=True)
class Current:
    """A stored row as it is now, held until the transaction ends."""

    # all fields in declared order
    values: tuple[object, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Write:
    """A row as it shall be."""

    record: Record
    # the fields that no import touches; those not named stay
    local: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Removal:
    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a client's change has done."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    versions: Mapping[Key, str] = field(default_factory=dict)
    # the row as it was written, where it is only one
    one: Found | None = None
    state: State


# the rows that are there, by key -> what shall become of them; raises to refuse
Decide: TypeAlias = Callable[[Mapping[Key, Current]], Sequence[Write | Removal]]


class Edits(Protocol):
    """Changes that clients make."""

    @abstractmethod
    def change(self, dataset: Dataset, keys: Sequence[Key], decide: Decide) -> Written:
        """Look at rows, decide, and write, in one transaction with their events.

        `decide` may be called more than once. The generation rises with it.
        """
        ...


Trouble: TypeAlias = Callable[[], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Everything that clients can ask for, behind its ports."""

    reads: Reads
    edits: Edits
    search: Search
    # says what makes answers slower, though not wrong, or None; may wait moments
    trouble: Trouble = lambda: None
