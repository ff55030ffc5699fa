"""A dataset's table as clients read and change it, inside a transaction."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.domain.dataset import Dataset, Field
from penstock.domain.mapping import content_digest
from penstock.domain.page import Key
from penstock.domain.queries.query import MOST_PAGE_BYTES, Part, Place, Query
from penstock.ports.serving import Count, Found, Write

# enough of the content's hash to tell two versions of one microsecond apart
VERSION_BYTES = 8


class TookTooLong(Exception):
    """A count was given up, because others wait for the database."""


class ShownRow(NamedTuple):
    """A row as a JSON object, and the values that place it."""

    body: bytes
    place: Place


@dataclass(slots=True)
class Room:
    """The bytes that rows of one page may still have."""

    left: int = MOST_PAGE_BYTES
    # whether nothing is in it yet, so that the first row fits whatever its size
    is_empty: bool = True
    # whether a row was left out
    is_full: bool = False

    def take(self, size: int) -> bool:
        """Take the place of one more row; False where it has none."""
        if self.is_full or (size > self.left and not self.is_empty):
            self.is_full = True
            return False
        self.left -= size
        self.is_empty = False
        return True


@dataclass(frozen=True, slots=True)
class Held:
    """A stored row, deleted or not, that nobody else changes meanwhile."""

    # all fields in declared order
    values: tuple[object, ...]
    version: str
    is_deleted: bool


class ServedTable(Protocol):
    @abstractmethod
    def rows(
        self, query: Query, part: Part, *, limit: int, room: Room
    ) -> Sequence[ShownRow]:
        """Return rows as long as there is room; others are not read into memory."""
        ...

    @abstractmethod
    def one(self, key: Key, fields: Sequence[Field]) -> Found | None: ...

    @abstractmethod
    def count(self, query: Query) -> int:
        """Count the rows of a query; raise `TookTooLong`."""
        ...

    @abstractmethod
    def estimate(self, query: Query) -> Count:
        """Say at once about how many rows a query has."""
        ...

    @abstractmethod
    def held(self, keys: Sequence[Key]) -> Mapping[Key, Held]:
        """Hold the rows of these keys, and return what is stored."""
        ...

    @abstractmethod
    def store(self, writes: Sequence[Write], held: Mapping[Key, Held]) -> None:
        """Store rows whatever they were before; a version never comes twice."""
        ...

    @abstractmethod
    def remove(self, keys: Sequence[Key]) -> None:
        """Mark rows as deleted."""
        ...

    @abstractmethod
    def versions(self, keys: Sequence[Key]) -> Mapping[Key, str]: ...


def local_fields(dataset: Dataset) -> Sequence[Field]:
    return [field for field in dataset.fields if field.local]


def version_of(digest: bytes, updated_at: int, local: Sequence[object] = ()) -> str:
    """Name a version of a row; the time is in microseconds.

    Also by its local fields, which the digest does not cover: after a database was put
    back to an older state, a clock that is behind may give the same time to other
    content.
    """
    if local:
        digest = content_digest((digest, *local))
    return f"{updated_at:x}-{digest[:VERSION_BYTES].hex()}"


def local_values(dataset: Dataset, values: Sequence[object]) -> Sequence[object]:
    """Pick the values of local fields from those of all fields."""
    return [
        value
        for field, value in zip(dataset.fields, values, strict=True)
        if field.local
    ]


def key_of(dataset: Dataset, values: Sequence[object]) -> Key:
    """Pick the key from the values of all fields."""
    places = [place_of(dataset, name) for name in dataset.key]
    return tuple(values[place] for place in places)


def place_of(dataset: Dataset, name: str) -> int:
    return [field.name for field in dataset.fields].index(name)


def by_local_fields(
    writes: Iterable[Write],
) -> Mapping[tuple[str, ...], Sequence[Write]]:
    """Sort writes by the local fields that they set, those that set none left out."""
    found: dict[tuple[str, ...], list[Write]] = {}
    for write in writes:
        if write.local:
            found.setdefault(tuple(write.local), []).append(write)
    return found
