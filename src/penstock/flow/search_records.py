"""Search records for clients, page by page among the best candidates."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

from penstock.domain.dataset import Dataset
from penstock.domain.search.list_cursor import CursorSigner, cursor_error, plain_all
from penstock.domain.search.search_params import read_search
from penstock.domain.search.search_query import MAX_CANDIDATES, SearchQuery
from penstock.flow.list_records import ListRecords
from penstock.ports.search import Matches, Search


class RequestedSearch(NamedTuple):
    """A search, and its cursor if that is not verified yet."""

    query: SearchQuery
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOfMatches:
    """One page of matches, and the cursor of the next."""

    query: SearchQuery
    matches: Matches
    next: str | None


class SearchRecords:
    def __init__(self, search: Search, records: ListRecords) -> None:
        self._search = search
        # its cursors are signed alike
        self._records = records

    def parse(
        self, dataset: Dataset, given: Iterable[tuple[str, str]]
    ) -> RequestedSearch:
        """Parse a search without reading from the database.

        The cursor is left as text if the signer that verifies it is not loaded yet.
        """
        query, cursor = read_search(dataset, given)
        signer = self._records.loaded_signer
        if cursor is None or signer is None:
            return RequestedSearch(query, cursor)
        return RequestedSearch(continue_search(query, cursor, signer))

    def page(self, requested: RequestedSearch) -> PageOfMatches:
        query, cursor = requested
        signer = self._records.cursor_signer
        if cursor is not None:
            query = continue_search(query, cursor, signer)
        matches = self._search.search(query)
        offset = query.offset + len(matches.rows)
        has_next = matches.has_more and offset < MAX_CANDIDATES
        return PageOfMatches(
            query=query,
            matches=matches,
            next=signer.write_number(query_digest(query), offset) if has_next else None,
        )


def continue_search(
    query: SearchQuery, cursor: str, signer: CursorSigner
) -> SearchQuery:
    """Return the search continued at a cursor; rejects cursors of other searches."""
    offset = signer.read_number(query_digest(query), cursor)
    if offset is None:
        detail = "belongs to another search; keep q and filters, or start again"
        raise cursor_error("cursor-mismatch", detail)
    return replace(query, offset=offset)


def query_digest(query: SearchQuery) -> str:
    """Return the digest that binds a cursor to its search."""
    near = query.near
    identity = [
        query.dataset.name,
        None if query.words is None else query.words.folded,
        None if near is None else [near.lat, near.lon],
        query.within,
        sorted(
            [condition.field.name, condition.op, json.dumps(plain_all(condition.value))]
            for condition in query.conditions
        ),
    ]
    return blake2b(json.dumps(identity).encode(), digest_size=12).hexdigest()
