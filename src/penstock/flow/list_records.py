"""Read records for clients: pages of a list, and single ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from penstock.domain.dataset import Dataset, Field
from penstock.domain.pages import Key
from penstock.domain.record_validation import require_record
from penstock.domain.search.filter_params import read_query
from penstock.domain.search.list_cursor import CursorSigner
from penstock.domain.search.query import Query
from penstock.errors import NotFound
from penstock.ports.record_access import (
    Count,
    CountKind,
    RecordPage,
    RecordReader,
    StoredRecord,
)

# the name of the secret that signs cursors, shared by all processes of a database
CURSOR_KEY_NAME = "cursors"


class ListQuery(NamedTuple):
    """A query, and its cursor if that is not verified yet."""

    query: Query
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOfRecords:
    """One page of a list, and the cursors of the next and previous pages."""

    query: Query
    listing: RecordPage
    next: str | None
    prev: str | None
    count: Count | None = None


class ListRecords:
    def __init__(self, datasets: Mapping[str, Dataset], reads: RecordReader) -> None:
        self._datasets = datasets
        self._reads = reads

    @cached_property
    def cursor_signer(self) -> CursorSigner:
        return CursorSigner(self._reads.secret(CURSOR_KEY_NAME))

    def dataset(self, name: str) -> Dataset:
        if name not in self._datasets:
            names = ", ".join(sorted(self._datasets))
            raise NotFound(f"there is no dataset {name!r}; there are: {names}")
        return self._datasets[name]

    @property
    def loaded_signer(self) -> CursorSigner | None:
        """The signer, if it has been read from the database already."""
        signer: CursorSigner | None = vars(self).get("cursor_signer")
        return signer

    def parse(self, dataset: Dataset, given: Iterable[tuple[str, str]]) -> ListQuery:
        """Parse a query without reading from the database.

        The cursor is left as text if the signer that verifies it is not loaded yet.
        """
        query, cursor = read_query(dataset, given)
        signer = self.loaded_signer
        if cursor is None or signer is None:
            return ListQuery(query, cursor)
        return ListQuery(signer.read(query, cursor))

    def page(
        self, requested: ListQuery, *, count: CountKind = CountKind.NONE
    ) -> PageOfRecords:
        query, cursor = requested
        positioned = query if cursor is None else self.cursor_signer.read(query, cursor)
        listing = self._reads.page(positioned)
        is_first = positioned.after is None
        has_next = positioned.backward or listing.has_more
        has_prev = listing.has_more if positioned.backward else not is_first
        is_counted = count is not CountKind.NONE
        return PageOfRecords(
            query=query,
            listing=listing,
            next=self._cursor(query, listing.last if has_next else None),
            prev=self._cursor(
                query, listing.first if has_prev else None, backward=True
            ),
            count=self._reads.count(query, count) if is_counted else None,
        )

    def batch(self, query: Query) -> RecordPage:
        """Return the next rows of an export, from the position of the query."""
        return self._reads.page(query)

    def _cursor(
        self, query: Query, position: Sequence[object] | None, *, backward: bool = False
    ) -> str | None:
        if position is None:
            return None
        return self.cursor_signer.write(query, tuple(position), backward=backward)

    def one(self, dataset: Dataset, key: Key, fields: Sequence[Field]) -> StoredRecord:
        return require_record(self._reads.one(dataset, key, fields))
