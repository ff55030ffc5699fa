"""Find records for clients, page by page among the best candidates."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from penstock.domain.dataset import Dataset
from penstock.domain.queries.cursor import Seal, plain_all, refusal
from penstock.domain.queries.search import MOST_CANDIDATES, SearchQuery
from penstock.domain.queries.search_parameters import (
    read_facets,
    read_search,
    read_suggest,
)
from penstock.ports.searching import Facets, Matches, Search, Suggestion


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOfMatches:
    """One page of what was found, and the cursor of the next."""

    query: SearchQuery
    matches: Matches
    next: str | None


class SearchRecords:
    def __init__(self, search: Search, seal: Callable[[], Seal]) -> None:
        self._search = search
        self._seal = seal

    def page(self, dataset: Dataset, given: Iterable[tuple[str, str]]) -> PageOfMatches:
        query, cursor = read_search(dataset, given)
        if cursor is not None:
            query = replace(query, offset=self._offset(query, cursor))
        matches = self._search.search(query)
        offset = query.offset + len(matches.rows)
        goes_on = matches.has_more and offset < MOST_CANDIDATES
        return PageOfMatches(
            query=query,
            matches=matches,
            next=self._seal().write_number(digest(query), offset) if goes_on else None,
        )

    def suggest(
        self, dataset: Dataset, given: Iterable[tuple[str, str]]
    ) -> Sequence[Suggestion]:
        words, limit = read_suggest(dataset, given)
        return self._search.suggest(dataset, words, limit=limit)

    def facets(self, dataset: Dataset, given: Iterable[tuple[str, str]]) -> Facets:
        return self._search.facets(read_facets(dataset, given))

    def _offset(self, query: SearchQuery, cursor: str) -> int:
        offset = self._seal().read_number(digest(query), cursor)
        if offset is None:
            told = "belongs to another search; keep q and filters, or begin anew"
            raise refusal("cursor-mismatch", told)
        return offset


def digest(query: SearchQuery) -> str:
    """Return what the cursor of a search is bound to."""
    near = query.near
    told = [
        query.dataset.name,
        None if query.words is None else query.words.folded,
        None if near is None else [near.lat, near.lon],
        query.within,
        sorted(
            [each.field.name, each.op, json.dumps(plain_all(each.value))]
            for each in query.conditions
        ),
    ]
    return blake2b(json.dumps(told).encode(), digest_size=12).hexdigest()
