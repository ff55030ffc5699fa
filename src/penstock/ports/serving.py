"""The records as clients of the API see them: bounded reads, and guarded writes."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from penstock.domain.dataset import Dataset, Field
from penstock.domain.history import Position
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
    # random, and stored with the numbers: after a database was put back to an older
    # state, the numbers are used again, and the tags are not
    generation_tag: int = 0
    change_tag: int = 0
    watermark: datetime | None = None
    # how often a process has seen that the database went back; only it knows of that
    history: int = 0

    @property
    def position(self) -> Position:
        """The last change."""
        return Position(self.change_seq, self.change_tag)

    @property
    def published(self) -> tuple[int, int]:
        """The generation, as no other history has it."""
        return self.generation, self.generation_tag


# how far datasets were right after something was read of them, where anybody asks
OBSERVED: ContextVar[list[State] | None] = ContextVar("observed", default=None)


def note_observed(state: State) -> None:
    """Note how far a dataset was right after something was read of it."""
    observed = OBSERVED.get()
    if observed is not None:
        observed.append(state)


@contextmanager
def observing() -> Iterator[list[State]]:
    """Collect how far a dataset was whenever this thread had read something of it."""
    observed: list[State] = []
    token = OBSERVED.set(observed)
    try:
        yield observed
    finally:
        OBSERVED.reset(token)


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
    tag: int
    kind: str
    key: Sequence[object]
    import_id: int | None
    at: datetime

    @property
    def position(self) -> Position:
        return Position(self.seq, self.tag)


class Reads(Protocol):
    """What clients may read; each call is one bounded question."""

    @abstractmethod
    def states(self) -> Mapping[str, State]:
        """Return how far each dataset has come, by its name."""
        ...

    @abstractmethod
    def knows(self, dataset: str, positions: Collection[Position]) -> bool:
        """Say whether the history of a dataset has all of these changes.

        As the primary has it now. A change is not known where the database was put back
        to a state before it, or where its entry was removed from the feed.
        """
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
