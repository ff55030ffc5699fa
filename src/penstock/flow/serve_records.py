"""Answer what clients ask of records: pages of a list, and single ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.domain.dataset import Dataset, Field
from penstock.domain.editing import found
from penstock.domain.page import Key
from penstock.domain.queries.cursor import Seal
from penstock.domain.queries.parameters import read_query
from penstock.domain.queries.query import Query
from penstock.errors import NotFound
from penstock.ports.serving import (
    Count,
    CountKind,
    Found,
    Listing,
    Reads,
)

# by this name all processes of a database know the key that seals cursors
CURSORS = "cursors"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOfRecords:
    """One page of a list, and the cursors of its neighbours."""

    query: Query
    listing: Listing
    next: str | None
    prev: str | None
    count: Count | None = None


class ServeRecords:
    def __init__(self, datasets: Mapping[str, Dataset], reads: Reads) -> None:
        self._datasets = datasets
        self._reads = reads

    @cached_property
    def seal(self) -> Seal:
        return Seal(self._reads.secret(CURSORS))

    def dataset(self, name: str) -> Dataset:
        if name not in self._datasets:
            known = ", ".join(sorted(self._datasets))
            raise NotFound(f"there is no dataset {name!r}; there are: {known}")
        return self._datasets[name]

    def page(
        self,
        dataset: Dataset,
        given: Iterable[tuple[str, str]],
        *,
        count: CountKind = CountKind.NONE,
    ) -> PageOfRecords:
        query, cursor = read_query(dataset, given)
        asked = query if cursor is None else self.seal.read(query, cursor)
        listing = self._reads.page(asked)
        is_first = asked.after is None
        has_next = asked.backward or listing.has_more
        has_prev = listing.has_more if asked.backward else not is_first
        wanted = count is not CountKind.NONE
        return PageOfRecords(
            query=query,
            listing=listing,
            next=self._cursor(query, listing.last if has_next else None),
            prev=self._cursor(query, listing.first if has_prev else None, back=True),
            count=self._reads.count(query, count) if wanted else None,
        )

    def _cursor(
        self, query: Query, place: Sequence[object] | None, *, back: bool = False
    ) -> str | None:
        if place is None:
            return None
        return self.seal.write(query, tuple(place), backward=back)

    def one(self, dataset: Dataset, key: Key, fields: Sequence[Field]) -> Found:
        return found(self._reads.one(dataset, key, fields))
