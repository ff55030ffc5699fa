"""One question about a dataset's table: gather candidates, sort them, tell the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.adapters.postgres.asking import BY_WORDS, ONE_BY_ONE, Asking
from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.partitions import stored_partitions
from penstock.adapters.postgres.pools import Pool, counted
from penstock.adapters.postgres.searched import (
    fields_of,
    folded_texts,
    has_place,
    kilometres,
    score_of,
    text_name,
)
from penstock.adapters.postgres.served import DIALECT, shown, size_of
from penstock.adapters.postgres.tables import Table
from penstock.adapters.postgres.ways import FEW_WORDS, Begun, Ways, ways_to
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.searched import Found
from penstock.adapters.sql.selects import Where, after_prefix
from penstock.adapters.sql.served import Room
from penstock.domain.dataset import Field
from penstock.domain.queries.query import MOST_PAGE_BYTES, Condition, field_named
from penstock.domain.queries.search import (
    MOST_CANDIDATES,
    MOST_SAMPLED,
    FacetQuery,
    SearchQuery,
)
from penstock.domain.queries.words import Term, is_known
from penstock.ports.searching import Match

# beyond so many, partitions are not asked one by one
MOST_PARTITIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many rows may be looked at, so that no question takes long."""

    # rows that are ranked by their words
    ranked: int = MOST_CANDIDATES
    # rows that are sorted by their distance, and how many of a sample say that there
    # are more of them
    sorted: int = 10_000
    sorted_of_sample: int = 200
    # rows that are looked at one by one, from a place outwards, for those that fit, and
    # whether they have words, or only to see how far away they are
    nearest: int = 5_000
    nearest_judged: int = 800
    nearest_known: int = 300
    # rows that may lie around a place, and those of them that fit
    in_box: int = 400_000
    around: int = 20_000
    # rows that are counted; how many of a sample are, and how many of it are enough
    counted: int = MOST_SAMPLED
    counted_of_sample: int = 5_000
    enough_of_sample: int = 1_000
    # rows of a sample whose texts are enough for suggestions
    texts: int = 100


@dataclass(frozen=True, slots=True)
class Inquiry:
    of: Table
    connection: Connection
    statements: Mapping[str, str]
    limits: Limits

    @property
    def ask(self) -> Asking:
        return Asking(self.connection)

    def pool(
        self,
        asked: SearchQuery | FacetQuery,
        terms: Sequence[Term],
        *,
        most: int,
        enough: int | None = None,
        of_sample: int | None = None,
        ways: Ways | None = None,
    ) -> Pool:
        """Compose which rows have all words and fit the conditions."""
        pool = self.empty_pool(asked, most=most)
        pool.enough, pool.of_sample = enough, of_sample
        if terms:
            pool.search(terms, ways or self.ways(terms, asked.conditions))
        else:
            pool.take()
        return pool

    def best_pool(self, asked: SearchQuery, terms: Sequence[Term]) -> Pool:
        """Compose the same, with those first that have words as they were typed."""
        pool = self.empty_pool(asked, most=self.limits.ranked)
        pool.search_whole_first(terms, self.ways(terms, asked.conditions))
        return pool

    def ways(self, terms: Sequence[Term], conditions: Sequence[Condition] = ()) -> Ways:
        begun = self._begun(terms[-1])
        return ways_to(self.ask, self.of, terms, conditions, begun=begun)

    def _begun(self, term: Term) -> Begun:
        """Return what is known of words that begin as an unfinished one does."""
        if term.prefix is None:
            return Begun()
        dataset = self.of.dataset
        ((rows, words),) = self.ask(
            self.statements["words_begun"],
            {
                "dataset": dataset.name,
                "fields": fields_of(dataset),
                "start": term.prefix,
                "end": after_prefix(term.prefix),
                # of a number no words are known
                "few": FEW_WORDS if is_known(term.prefix) else 0,
            },
        )
        return Begun(rows, tuple(words or ()))

    def empty_pool(self, asked: SearchQuery | FacetQuery, *, most: int) -> Pool:
        """Begin a pool of rows that fit the conditions."""
        if isinstance(asked, FacetQuery):
            return self._begin(asked.by, asked.conditions, most=most)
        dataset = self.of.dataset
        if asked.near is None or dataset.geo is None:
            columns = [*asked.fields, *self._searched]
            return self._begin(columns, asked.conditions, most=most)
        places = [field_named(dataset, name) for name in dataset.geo]
        columns = [*asked.fields, *self._searched, *places]
        pool = self._begin(columns, asked.conditions, most=most)
        pool.where.clauses.append(has_place(dataset))
        return pool

    def text_pool(self, terms: Sequence[Term], *, most: int) -> Pool:
        """Compose which rows have all words, for their texts."""
        pool = self._begin(self._searched, (), most=most)
        pool.enough = self.limits.texts
        pool.search(terms, self.ways(terms))
        return pool

    def _begin(
        self, columns: Sequence[Field], conditions: Sequence[Condition], *, most: int
    ) -> Pool:
        where = Where(DIALECT)
        where.add(*conditions)
        return Pool(self.of, where, most, columns, partitions=self._partitions())

    @property
    def _searched(self) -> Sequence[Field]:
        dataset = self.of.dataset
        return [field_named(dataset, name) for name in dataset.search]

    def _partitions(self) -> Sequence[str]:
        if self.of.dataset.partition is None:
            return ()
        found = stored_partitions(self.connection, self.of.dataset.name)
        return sorted(found) if len(found) <= MOST_PARTITIONS else ()

    def told(
        self,
        asked: SearchQuery,
        terms: Sequence[Term],
        pool: Pool,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> Found:
        """Sort the candidates, and tell those that are asked for."""
        dataset, where = self.of.dataset, pool.where
        key = [*map(quoted, dataset.key)]
        score, folded = "0::double precision", ""
        if terms and asked.words is not None:
            score = score_of(dataset, terms, asked.words.folded, where)
            # what ends so is worked out once for each row, not at each mention
            texts = f"select {folded_texts(dataset)} offset 0"
            folded = f"cross join lateral ({texts}) as _folded"
        if asked.near is None:
            rated = f"select *, {score} as _score, null as _km from _pool {folded}"
            order = ", ".join(["_score desc", f"length({text_name(0)})", *key])
            score, folded = "_score", ""
        else:
            # only rows that are told need a score
            away = kilometres(dataset, asked.near, where)
            rated = f"select *, {away} as _km from _pool"
            if asked.within is not None:
                rated += f" where {away} <= {where.mark(asked.within)}"
            order = ", ".join(["_km", *key])
        limit = max(min(asked.limit, MOST_CANDIDATES - asked.offset), 0)
        found = self.ask(
            f"{pool}, _rated as materialized ({rated}), "
            "_best as materialized (select *, row_number() over () as _place, "
            f"sum({size_of(asked.fields)}) over (rows unbounded preceding) as _bytes "
            f"from (select * from _rated order by {order} "
            f"limit {limit:d} offset {asked.offset:d}) as _sorted) "
            f"select {counted('_rated')}, {pool.capped}, _told.* from (select) as _one "
            f"left join (select _place, {shown(asked.fields)}, {score}, _km "
            f"from _best {folded} where _bytes <= {MOST_PAGE_BYTES:d} or _place = 1"
            ") as _told on true order by _place",
            where.given,
            settings=settings or (BY_WORDS if terms else ONE_BY_ONE),
        )
        rows, is_capped, *_ = found[0]
        matches = [
            Match(body=body.encode(), score=worth, km=km)
            for _, _, place, body, worth, km in found
            if place is not None
        ]
        room = Room()
        return Found(
            rows=[each for each in matches if room.take(len(each.body))],
            candidates=rows,
            is_capped=is_capped,
        )
