"""What clients may look for."""

from collections.abc import Sequence

from typing_extensions import override

from penstock.adapters.sql.database import Database
from penstock.domain.dataset import Dataset
from penstock.domain.queries.search import FacetQuery, SearchQuery
from penstock.domain.queries.words import Words
from penstock.errors import StoreUnavailable
from penstock.ports.searching import Facets, Matches, Search, Suggestion


class SqlSearch(Search):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def search(self, asked: SearchQuery) -> Matches:
        raise StoreUnavailable("nothing can be searched yet")

    @override
    def suggest(
        self, dataset: Dataset, words: Words, *, limit: int
    ) -> Sequence[Suggestion]:
        raise StoreUnavailable("nothing can be searched yet")

    @override
    def facets(self, asked: FacetQuery) -> Facets:
        raise StoreUnavailable("nothing can be searched yet")
