"""A dataset's table as clients search, read and change it, inside a transaction."""

from abc import abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.domain.dataset import Dataset, Field
from penstock.domain.mapping.mapper import content_digest
from penstock.domain.pages import Key
from penstock.domain.search.query import (
    MAX_PAGE_BYTES,
    KeysetPosition,
    KeysetSegment,
    Query,
    field_named,
)
from penstock.domain.search.search_query import FacetQuery, SearchQuery
from penstock.domain.search.tokenizer import Term
from penstock.ports.record_access import Count, LockedRow, StoredRecord, Write
from penstock.ports.search import Match


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRow:
    """The rows of a search result, and how many candidates there are."""

    rows: Sequence[Match]
    candidates: int
    is_capped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetCount:
    """How often rows have the values of one field."""

    # all values, or the most frequent ones
    counted: Mapping[object, int] = field(default_factory=dict)
    # rows that have any value
    filled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetCounts:
    # in the order of the requested fields
    fields: Sequence[FacetCount]
    rows: int
    is_sampled: bool = False


class SearchTable(Protocol):
    @abstractmethod
    def is_behind(self) -> bool:
        """Return whether rows have changed that are not indexed yet."""
        ...

    @abstractmethod
    def catch_up(self) -> bool:
        """Index a batch of changed rows; return whether there may be more."""
        ...

    @abstractmethod
    def matches(self, query: SearchQuery, terms: Sequence[Term]) -> FoundRow: ...

    @abstractmethod
    def count_facets(self, query: FacetQuery, terms: Sequence[Term]) -> FacetCounts: ...

    @abstractmethod
    def texts(self, terms: Sequence[Term], *, limit: int) -> Sequence[str]:
        """Return the searched text of some rows that have all words."""
        ...

    @abstractmethod
    def near_words(self, words: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """Return for each word those of the index that may be one edit away, or equal.

        Each has the number of its rows.
        """
        ...

    @abstractmethod
    def completions(self, prefix: str, *, limit: int) -> Sequence[tuple[str, int, str]]:
        """Return words with this prefix, the most frequent first.

        Each has the number of its rows, and the searched text of one of them.
        """
        ...


# bytes of the content's hash that distinguish two versions of one microsecond
VERSION_BYTES = 8


class StatementTimeout(Exception):
    """A count took too long, and was cancelled."""


class VisibleRow(NamedTuple):
    """A row as a JSON object, and the values of its keyset position."""

    body: bytes
    place: KeysetPosition


@dataclass(slots=True)
class ByteAllowance:
    """The bytes that are left for rows of one page."""

    left: int = MAX_PAGE_BYTES
    # the first row fits whatever its size
    is_empty: bool = True
    # a row was left out
    is_full: bool = False

    def take(self, size: int) -> bool:
        """Reserve the bytes of one more row; False if it does not fit."""
        if self.is_full or (size > self.left and not self.is_empty):
            self.is_full = True
            return False
        self.left -= size
        self.is_empty = False
        return True


class RecordTable(Protocol):
    @abstractmethod
    def rows(
        self, query: Query, part: KeysetSegment, *, limit: int, room: ByteAllowance
    ) -> Sequence[VisibleRow]:
        """Return rows as long as there is room; others are not read into memory."""
        ...

    @abstractmethod
    def one(self, key: Key, fields: Sequence[Field]) -> StoredRecord | None: ...

    @abstractmethod
    def count(self, query: Query) -> int:
        """Count the rows of a query; raise `StatementTimeout`."""
        ...

    @abstractmethod
    def estimate(self, query: Query) -> Count:
        """Estimate quickly how many rows a query has."""
        ...

    @abstractmethod
    def lock_rows(self, keys: Sequence[Key]) -> Mapping[Key, bool]:
        """Lock the rows of these keys; return of each whether it is deleted."""
        ...

    @abstractmethod
    def locked_row(self, key: Key) -> LockedRow:
        """Return a whole row that is locked."""
        ...

    @abstractmethod
    def store(self, writes: Sequence[Write], locked: Container[Key]) -> None:
        """Store rows whatever they were before; no version is used twice."""
        ...

    @abstractmethod
    def remove(self, keys: Sequence[Key]) -> None:
        """Mark rows as deleted."""
        ...

    @abstractmethod
    def mark_edited(self, keys: Sequence[Key]) -> None:
        """Mark rows as written by a client, so that they are never archived."""
        ...

    @abstractmethod
    def versions(self, keys: Sequence[Key]) -> Mapping[Key, str]:
        """Return the versions of rows; no two rows are in memory at once."""
        ...


def key_fields(dataset: Dataset) -> Sequence[Field]:
    return [field_named(dataset, name) for name in dataset.key]


def local_fields(dataset: Dataset) -> Sequence[Field]:
    return [field for field in dataset.fields if field.local]


def version_of(digest: bytes, updated_at: int, local: Sequence[object] = ()) -> str:
    """Return the version (entity tag) of a row; the time is in microseconds.

    It covers the local fields as well, which are not in the digest: after a database
    was restored, a clock that is behind may give the same time to other content.
    """
    if local:
        digest = content_digest((digest, *local))
    return f"{updated_at:x}-{digest[:VERSION_BYTES].hex()}"


def local_values(dataset: Dataset, values: Sequence[object]) -> Sequence[object]:
    """Return the values of local fields from those of all fields."""
    return [
        value
        for field, value in zip(dataset.fields, values, strict=True)
        if field.local
    ]


def by_local_fields(
    writes: Iterable[Write],
) -> Mapping[tuple[str, ...], Sequence[Write]]:
    """Group the writes that set local fields by the names of these fields."""
    groups: dict[tuple[str, ...], list[Write]] = {}
    for write in writes:
        if write.local:
            groups.setdefault(tuple(write.local), []).append(write)
    return groups
