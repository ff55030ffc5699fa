"""The SQL of one search: gather candidates, sort them, return the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.adapters.postgres.connection_pool import Connection
from penstock.adapters.postgres.partitions import stored_partitions
from penstock.adapters.postgres.record_table import DIALECT, json_row, size_of
from penstock.adapters.postgres.search.candidates import CandidateQuery, count_of
from penstock.adapters.postgres.search.planner import (
    MAX_KNOWN_WORDS,
    PrefixStats,
    SearchPlan,
    plan_search,
)
from penstock.adapters.postgres.search.session import (
    BITMAP_SETTINGS,
    INDEX_SCAN_SETTINGS,
    SearchSession,
)
from penstock.adapters.postgres.search.sql import (
    fields_of,
    folded_texts,
    has_coordinates,
    kilometres,
    score_of,
    text_name,
)
from penstock.adapters.postgres.table_sql import PostgresTableSql
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.table_protocols import ByteAllowance, FoundRow
from penstock.adapters.sqlstore.where_builder import Where, after_prefix
from penstock.domain.dataset import Field
from penstock.domain.search.query import MAX_PAGE_BYTES, Condition, field_named
from penstock.domain.search.search_query import (
    MAX_CANDIDATES,
    MAX_SAMPLED_ROWS,
    FacetQuery,
    SearchQuery,
)
from penstock.domain.search.tokenizer import Term, is_suggestible
from penstock.ports.search import Match

# with more partitions than this, they are not queried one by one
MAX_PARTITIONS_QUERIED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """How many rows a search may read, so that none takes long."""

    # rows that are ranked by their words
    ranked: int = MAX_CANDIDATES
    # rows that are sorted by distance, and how many of a sample imply more
    sorted: int = 10_000
    sorted_of_sample: int = 200
    # rows that are read in the order of their distance: to check the conditions, to
    # check for words, or only to find their distance
    nearest: int = 5_000
    nearest_judged: int = 800
    nearest_known: int = 300
    # rows around a location, and those of them that match
    in_box: int = 400_000
    around: int = 20_000
    # rows that are counted, how many of a sample, and how many of it are enough
    counted: int = MAX_SAMPLED_ROWS
    counted_of_sample: int = 5_000
    enough_of_sample: int = 1_000
    # rows of a sample that are enough for suggestions
    texts: int = 100


@dataclass(frozen=True, slots=True)
class SearchSqlBuilder:
    of: PostgresTableSql
    connection: Connection
    statements: Mapping[str, str]
    limits: SearchLimits

    @property
    def session(self) -> SearchSession:
        return SearchSession(self.connection)

    def candidates(
        self,
        query: SearchQuery | FacetQuery,
        terms: Sequence[Term],
        *,
        most: int,
        enough: int | None = None,
        of_sample: int | None = None,
        plan: SearchPlan | None = None,
    ) -> CandidateQuery:
        """Return the rows that have all words and match the conditions."""
        candidates = self.empty_candidates(query, most=most)
        candidates.enough, candidates.of_sample = enough, of_sample
        if terms:
            candidates.search(terms, plan or self.plan(terms, query.conditions))
        else:
            candidates.take()
        return candidates

    def best_candidates(
        self, query: SearchQuery, terms: Sequence[Term]
    ) -> CandidateQuery:
        """Return the same, but first those that have the words as typed."""
        candidates = self.empty_candidates(query, most=self.limits.ranked)
        candidates.search_whole_first(terms, self.plan(terms, query.conditions))
        return candidates

    def plan(
        self, terms: Sequence[Term], conditions: Sequence[Condition] = ()
    ) -> SearchPlan:
        stats = self._prefix_stats(terms[-1])
        return plan_search(self.session, self.of, terms, conditions, begun=stats)

    def _prefix_stats(self, term: Term) -> PrefixStats:
        """Return what the term dictionary has about an unfinished word."""
        if term.prefix is None:
            return PrefixStats()
        dataset = self.of.dataset
        ((rows, words),) = self.session(
            self.statements["words_begun"],
            {
                "dataset": dataset.name,
                "fields": fields_of(dataset),
                "start": term.prefix,
                "end": after_prefix(term.prefix),
                # the dictionary has no numbers
                "few": MAX_KNOWN_WORDS if is_suggestible(term.prefix) else 0,
            },
        )
        return PrefixStats(rows, tuple(words or ()))

    def empty_candidates(
        self, query: SearchQuery | FacetQuery, *, most: int
    ) -> CandidateQuery:
        """Return a query for rows that match the conditions, without any CTE yet."""
        if isinstance(query, FacetQuery):
            return self._new_query(query.by, query.conditions, most=most)
        dataset = self.of.dataset
        if query.near is None or dataset.geo is None:
            columns = [*query.fields, *self._searched]
            return self._new_query(columns, query.conditions, most=most)
        coordinates = [field_named(dataset, name) for name in dataset.geo]
        columns = [*query.fields, *self._searched, *coordinates]
        candidates = self._new_query(columns, query.conditions, most=most)
        candidates.where.clauses.append(has_coordinates(dataset))
        return candidates

    def text_candidates(self, terms: Sequence[Term], *, most: int) -> CandidateQuery:
        """Return rows that have all words, with their texts."""
        candidates = self._new_query(self._searched, (), most=most)
        candidates.enough = self.limits.texts
        candidates.search(terms, self.plan(terms))
        return candidates

    def _new_query(
        self, columns: Sequence[Field], conditions: Sequence[Condition], *, most: int
    ) -> CandidateQuery:
        where = Where(DIALECT)
        where.add(*conditions)
        return CandidateQuery(
            self.of, where, most, columns, partitions=self._partitions()
        )

    @property
    def _searched(self) -> Sequence[Field]:
        dataset = self.of.dataset
        return [field_named(dataset, name) for name in dataset.search]

    def _partitions(self) -> Sequence[str]:
        if self.of.dataset.partition is None:
            return ()
        found = stored_partitions(self.connection, self.of.dataset.name)
        return sorted(found) if len(found) <= MAX_PARTITIONS_QUERIED else ()

    def best_matches(
        self,
        query: SearchQuery,
        terms: Sequence[Term],
        candidates: CandidateQuery,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> FoundRow:
        """Sort the candidates, and return the requested ones."""
        dataset, where = self.of.dataset, candidates.where
        key = [*map(quote, dataset.key)]
        score, folded = "0::double precision", ""
        if terms and query.words is not None:
            score = score_of(dataset, terms, query.words.folded, where)
            # `offset 0` has it computed once for each row, not for each use
            texts = f"select {folded_texts(dataset)} offset 0"
            folded = f"cross join lateral ({texts}) as _folded"
        if query.near is None:
            rated = (
                f"select *, {score} as _score, null as _km from _candidates {folded}"
            )
            order = ", ".join(["_score desc", f"length({text_name(0)})", *key])
            score, folded = "_score", ""
        else:
            # only rows that are returned need a score
            distance = kilometres(dataset, query.near, where)
            rated = f"select *, {distance} as _km from _candidates"
            if query.within is not None:
                rated += f" where {distance} <= {where.param(query.within)}"
            order = ", ".join(["_km", *key])
        limit = max(min(query.limit, MAX_CANDIDATES - query.offset), 0)
        found = self.session(
            f"{candidates}, _rated as materialized ({rated}), "
            "_best as materialized (select *, row_number() over () as _number, "
            f"sum({size_of(query.fields)}) over (rows unbounded preceding) as _bytes "
            f"from (select * from _rated order by {order} "
            f"limit {limit:d} offset {query.offset:d}) as _sorted) "
            f"select {count_of('_rated')}, {candidates.capped}, _result.* "
            "from (select) as _one left join "
            f"(select _number, {json_row(query.fields)}, {score}, _km "
            f"from _best {folded} where _bytes <= {MAX_PAGE_BYTES:d} or _number = 1"
            ") as _result on true order by _number",
            where.given,
            settings=settings or (BITMAP_SETTINGS if terms else INDEX_SCAN_SETTINGS),
        )
        rows, is_capped, *_ = found[0]
        matches = [
            Match(body=body.encode(), score=points, km=km)
            for _, _, number, body, points, km in found
            if number is not None
        ]
        room = ByteAllowance()
        return FoundRow(
            rows=[match for match in matches if room.take(len(match.body))],
            candidates=rows,
            is_capped=is_capped,
        )
