"""The searches in a dataset's table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from penstock.adapters.postgres.connection_pool import Connection
from penstock.adapters.postgres.page_writes import TableState
from penstock.adapters.postgres.search.facets import count_facets
from penstock.adapters.postgres.search.geo import NearestSearch
from penstock.adapters.postgres.search.query import SearchLimits, SearchSqlBuilder
from penstock.adapters.postgres.search.session import BITMAP_SETTINGS
from penstock.adapters.postgres.search.sql import (
    in_sample,
    lexeme,
    short_text_of,
    words_of,
)
from penstock.adapters.postgres.table_sql import PostgresTableSql
from penstock.adapters.sqlstore import table_protocols as sql
from penstock.adapters.sqlstore.table_protocols import FacetCounts, FoundRow
from penstock.adapters.sqlstore.where_builder import after_prefix
from penstock.domain.search.search_query import FacetQuery, SearchQuery
from penstock.domain.search.tokenizer import Term
from penstock.errors import StoreTimeout

# a table with at most so many rows is searched without an index, too
MAX_UNINDEXED_ROWS = 20_000
LIMITS = SearchLimits()


@dataclass(frozen=True, slots=True)
class PostgresSearchTable(sql.SearchTable):
    of: PostgresTableSql
    state: TableState
    connection: Connection
    statements: Mapping[str, str]
    limits: SearchLimits = LIMITS

    @override
    def is_behind(self) -> bool:
        return False

    @override
    def catch_up(self) -> bool:
        # indexes are a part of every write
        return False

    @override
    def matches(self, query: SearchQuery, terms: Sequence[Term]) -> FoundRow:
        self._require_indexes(has_words=bool(terms), near=query.near is not None)
        if query.near is not None:
            return NearestSearch(self._builder, query, terms, query.near)()
        candidates = self._builder.best_candidates(query, terms)
        return self._builder.best_matches(query, terms, candidates)

    @override
    def count_facets(self, query: FacetQuery, terms: Sequence[Term]) -> FacetCounts:
        self._require_indexes(has_words=bool(terms), near=False)
        return count_facets(self._builder, query, terms)

    @override
    def texts(self, terms: Sequence[Term], *, limit: int) -> Sequence[str]:
        self._require_indexes(has_words=True, near=False)
        candidates = self._builder.text_candidates(terms, most=limit)
        found = self._builder.session(
            f"{candidates} select {short_text_of(self.of.dataset)} "
            f"from _candidates limit {limit:d}",
            candidates.where.given,
            settings=BITMAP_SETTINGS,
        )
        return [text for (text,) in found]

    @override
    def near_words(self, words: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        found: dict[str, dict[str, int]] = {}
        rows = self._builder.session(
            self.statements["near_words"],
            {"dataset": self.of.dataset.name, "words": list(words)},
        )
        for requested, word, count in rows:
            found.setdefault(requested, {})[word] = count
        return found

    @override
    def completions(self, prefix: str, *, limit: int) -> Sequence[tuple[str, int, str]]:
        self._require_indexes(has_words=True, near=False)
        dataset = self.of.dataset
        words = self._builder.session(
            self.statements["words_from"],
            {
                "dataset": dataset.name,
                "start": prefix,
                "end": after_prefix(prefix),
                # some may be words of deleted rows
                "limit": 2 * limit,
            },
        )
        row = (
            f"select {short_text_of(dataset)} from {self.of.name} where "
            f"_deleted_at is null and {words_of(dataset)} @@ _requested._word::tsquery"
        )
        found = self._builder.session(
            "select _position, _text from unnest(%(words)s::text[]) with ordinality "
            "as _requested (_word, _position) cross join lateral (select coalesce("
            f"({row} and {in_sample(dataset)} limit 1), ({row} limit 1)) as _text) "
            "as _first where _text is not null order by _position",
            {"words": [lexeme(word) for word, _ in words]},
            settings=BITMAP_SETTINGS,
        )
        return [(*words[position - 1], text) for position, text in found[:limit]]

    def _require_indexes(self, *, has_words: bool, near: bool) -> None:
        """Raise `StoreTimeout` if the indexes of a large table are not built yet."""
        needed = {
            *((self.of.words_index, self.of.sample_index) if has_words else ()),
            *((self.of.geo_index,) if near else ()),
        }
        if needed <= self.state.valid_indexes:
            return
        valid = self._builder.session(
            self.statements["valid_indexes"], {"dataset": self.of.dataset.name}
        )
        self.state.valid_indexes |= {name for (name,) in valid}
        if needed <= self.state.valid_indexes or self._has_few_rows():
            return
        raise StoreTimeout(
            f"dataset {self.of.dataset.name!r} cannot be searched yet: its index is "
            "built when its first rows are in"
        )

    def _has_few_rows(self) -> bool:
        rows = f"select from {self.of.name} limit {MAX_UNINDEXED_ROWS + 1:d}"
        found = self._builder.session(f"select count(*) from ({rows}) as _some", {})
        return bool(found[0][0] <= MAX_UNINDEXED_ROWS)

    @property
    def _builder(self) -> SearchSqlBuilder:
        return SearchSqlBuilder(self.of, self.connection, self.statements, self.limits)
