"""A dataset's table as it is searched."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from typing_extensions import override

from penstock.adapters.postgres.asking import BY_WORDS, ONE_BY_ONE, Asking
from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.nearest import nearest
from penstock.adapters.postgres.partitions import stored_partitions
from penstock.adapters.postgres.pools import Pool, counted
from penstock.adapters.postgres.searched import (
    folded_texts,
    has_place,
    in_boxes,
    in_sample,
    kilometres,
    lexeme,
    score_of,
    text_name,
    text_of,
    words_of,
)
from penstock.adapters.postgres.served import DIALECT, shown, told
from penstock.adapters.postgres.tables import Table
from penstock.adapters.postgres.ways import Ways, ways_to
from penstock.adapters.sql import searched as sql
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.searched import Found, Tallies, Tally
from penstock.adapters.sql.selects import Where, after_prefix
from penstock.domain.dataset import Field, FieldType
from penstock.domain.queries.facets import RANGED
from penstock.domain.queries.geo import FARTHEST_KM, Spot, boxes_around
from penstock.domain.queries.query import Condition, field_named
from penstock.domain.queries.search import (
    MOST_CANDIDATES,
    MOST_SAMPLED,
    MOST_VALUES,
    FacetQuery,
    SearchQuery,
)
from penstock.domain.queries.words import Term
from penstock.domain.text import parse_instant
from penstock.errors import StoreTooSlow
from penstock.ports.searching import Match

# a table of so few rows is searched without an index, too
FEW_ROWS = 20_000
# beyond so many, partitions are not asked one by one
MOST_PARTITIONS = 64
# the smallest part of a table for which rows are drawn from all over it
SMALLEST_SHARE = 0.15
READERS: Mapping[FieldType, Callable[[Any], object]] = {
    FieldType.DATE: date.fromisoformat,
    FieldType.TIMESTAMP: parse_instant,
}


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
    # whether they have words
    nearest: int = 5_000
    nearest_judged: int = 1_500
    # rows that may lie around a place, and those of them that fit
    in_box: int = 400_000
    around: int = 20_000
    # rows that are counted, and how many of a sample tell enough of all
    counted: int = MOST_SAMPLED
    counted_of_sample: int = 1_000


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class SearchedTable(sql.SearchedTable):
    of: Table
    connection: Connection
    statements: Mapping[str, str]
    limits: Limits = LIMITS

    @override
    def is_behind(self) -> bool:
        return False

    @override
    def catch_up(self) -> bool:
        # indexes are a part of every write
        return False

    @override
    def matches(self, asked: SearchQuery, terms: Sequence[Term]) -> Found:
        self._insist_on_indexes(has_words=bool(terms), near=asked.near is not None)
        if asked.near is not None:
            return self._near(asked, terms, asked.near)
        pool = self._empty(asked, most=self.limits.ranked)
        pool.search_whole_first(terms, self._ways(pool, terms, asked.conditions))
        return self._told(asked, terms, pool)

    def _near(self, asked: SearchQuery, terms: Sequence[Term], spot: Spot) -> Found:
        """Find the nearest rows that fit.

        If all that fit are known, they only have to be sorted. Otherwise the first ones
        are looked for from the place outwards. Whatever is as near as the last of them
        lies in boxes around the place.
        """
        is_narrow = bool(terms or asked.conditions)
        if is_narrow:
            most = self.limits.sorted if terms else self.limits.ranked
            enough = self.limits.sorted_of_sample
            pool = self._pool(asked, terms, most=most, enough=enough)
            found = self._told(asked, terms, pool)
            if not found.is_capped:
                return found
        wanted = min(asked.offset + asked.limit + 1, MOST_CANDIDATES)
        most = wanted
        if is_narrow:
            most = self.limits.nearest_judged if terms else self.limits.nearest
        pool = self._empty(asked, most=self.limits.around)
        near = nearest(self._ask, pool, asked, spot, terms, wanted=wanted, most=most)
        if near.reach is not None:
            # a box is small: rather judge its rows than read all that have the words
            pool = self._around(asked, terms, spot, near.reach)
            return self._told(asked, terms, pool, settings=ONE_BY_ONE)
        reach, fitting = near.radius, near.fitting
        rows = float(near.looked_at)
        most_rows = self.limits.in_box
        while (grow := min(2 * wanted / max(fitting, 1), most_rows / rows)) > 1:
            reach, rows = reach * math.sqrt(grow), rows * grow
            found = self._told(asked, terms, self._around(asked, terms, spot, reach))
            fitting = found.candidates
            if fitting >= wanted or reach >= FARTHEST_KM:
                return found
        # too few of so many fit; some others are better than none
        pool = self._pool(asked, terms, most=self.limits.ranked)
        pool = self._around(asked, terms, spot, reach, beside=pool)
        return self._told(asked, terms, pool)

    def _around(
        self,
        asked: SearchQuery,
        terms: Sequence[Term],
        spot: Spot,
        km: float,
        *,
        beside: Pool | None = None,
    ) -> Pool:
        """Compose which rows fit within a distance."""
        pool = self._empty(asked, most=self.limits.around) if beside is None else beside
        boxes = in_boxes(self.of.dataset, boxes_around(spot, km), pool.where)
        away = kilometres(self.of.dataset, spot, pool.where)
        within = f"({boxes}) and {away} <= {pool.where.mark(km)}"
        words = [pool.has(terms)] if terms else []
        most = self.limits.around
        pool.add("around", within, *words, limit=most + 1)
        pool.capped = f"({pool.capped} or {counted('around')} > {most})"
        return pool

    @override
    def tallies(self, asked: FacetQuery, terms: Sequence[Term]) -> Tallies:
        self._insist_on_indexes(has_words=bool(terms), near=False)
        percent = None if terms else self._percent(asked)
        if percent is not None:
            pool = self._empty(asked, most=self.limits.counted)
            source = f"{self.of.name} tablesample system ({percent!r})"
            pool.add("sampled", source=source, limit=self.limits.counted)
            pool.capped = "true"
            found = self._tallies(asked, pool)
            # unless the server has known nothing of the table
            if found.rows >= self.limits.counted // 10:
                return found
        pool = self._pool(
            asked,
            terms,
            most=self.limits.counted,
            enough=self.limits.counted_of_sample,
        )
        return self._tallies(asked, pool, has_words=bool(terms))

    def _tallies(
        self, asked: FacetQuery, pool: Pool, *, has_words: bool = False
    ) -> Tallies:
        counts = ", ".join(
            f"{tally(field)}, count({quoted(field.name)})" for field in asked.by
        )
        ((rows, is_sampled, *found),) = self._ask(
            f"{pool}, looked_at as materialized (select * from pool "
            f"limit {self.limits.counted:d}) "
            f"select count(*), {pool.capped}, {counts} from looked_at",
            pool.where.given,
            settings=BY_WORDS if has_words else ONE_BY_ONE,
        )
        pairs = zip(found[::2], found[1::2], strict=True)
        return Tallies(
            fields=[
                Tally(counted=typed(field, counted), filled=filled)
                for field, (counted, filled) in zip(asked.by, pairs, strict=True)
            ],
            rows=rows,
            is_sampled=is_sampled,
        )

    def _percent(self, asked: FacetQuery) -> float | None:
        """Return which part of a large table holds enough rows that fit."""
        where = Where(DIALECT)
        all_rows = self._estimate(where)
        where.add(*asked.conditions)
        fitting = self._estimate(where)
        counted = self.limits.counted
        if fitting < 3 * counted or fitting < SMALLEST_SHARE * all_rows:
            return None
        return min(100.0, 150 * counted / fitting)

    def _estimate(self, where: Where) -> float:
        plan = self._ask(
            f"explain (format json) select from {self.of.name} where {where}",
            where.given,
            settings={"jit": "off"},
        )
        return float(plan[0][0][0]["Plan"]["Plan Rows"])

    @override
    def texts(self, terms: Sequence[Term], *, limit: int) -> Sequence[str]:
        self._insist_on_indexes(has_words=True, near=False)
        pool = Pool(self.of, Where(DIALECT), limit, self._searched)
        pool.partitions = self._partitions()
        pool.search(terms, self._ways(pool, terms))
        found = self._ask(
            f"{pool} select {text_of(self.of.dataset)} from pool limit {limit:d}",
            pool.where.given,
            settings=BY_WORDS,
        )
        return [text for (text,) in found]

    @override
    def near_words(self, words: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        found: dict[str, dict[str, int]] = {}
        rows = self._ask(
            self.statements["near_words"],
            {"dataset": self.of.dataset.name, "words": list(words)},
        )
        for asked, word, count in rows:
            found.setdefault(asked, {})[word] = count
        return found

    @override
    def completions(self, prefix: str, *, limit: int) -> Sequence[tuple[str, int, str]]:
        self._insist_on_indexes(has_words=True, near=False)
        known = self._ask(
            self.statements["words_from"],
            {
                "dataset": self.of.dataset.name,
                "start": prefix,
                "end": after_prefix(prefix),
                # some may be words of rows that are gone
                "limit": 2 * limit,
            },
        )
        dataset = self.of.dataset
        row = (
            f"select {text_of(dataset)} from {self.of.name} where _deleted_at is null "
            f"and {words_of(dataset)} @@ known._word::tsquery"
        )
        found = self._ask(
            "select _place, _text from unnest(%(words)s::text[]) with ordinality "
            "as known (_word, _place) cross join lateral (select coalesce("
            f"({row} and {in_sample(dataset)} limit 1), ({row} limit 1)) as _text) "
            "as first where _text is not null order by _place",
            {"words": [lexeme(word) for word, _ in known]},
            settings=BY_WORDS,
        )
        return [(*known[place - 1], text) for place, text in found[:limit]]

    def _pool(
        self,
        asked: SearchQuery | FacetQuery,
        terms: Sequence[Term],
        *,
        most: int,
        enough: int | None = None,
    ) -> Pool:
        """Compose which rows have all words and fit the conditions."""
        pool = self._empty(asked, most=most)
        pool.enough = enough
        if terms:
            pool.search(terms, self._ways(pool, terms, asked.conditions))
        else:
            pool.take()
        return pool

    def _ways(
        self, pool: Pool, terms: Sequence[Term], conditions: Sequence[Condition] = ()
    ) -> Ways:
        where = Where(DIALECT)
        where.add(*conditions)
        clauses = [str(where)] if conditions else []
        return ways_to(self._ask, pool.of, terms, conditions=clauses, where=where)

    def _empty(self, asked: SearchQuery | FacetQuery, *, most: int) -> Pool:
        dataset = self.of.dataset
        where = Where(DIALECT)
        where.add(*asked.conditions)
        partitions = self._partitions()
        if isinstance(asked, FacetQuery):
            return Pool(self.of, where, most, asked.by, partitions=partitions)
        columns = [*asked.fields, *self._searched]
        if asked.near is not None and dataset.geo is not None:
            where.clauses.append(has_place(dataset))
            columns += [field_named(dataset, name) for name in dataset.geo]
        return Pool(self.of, where, most, columns, partitions=partitions)

    @property
    def _searched(self) -> Sequence[Field]:
        dataset = self.of.dataset
        return [field_named(dataset, name) for name in dataset.search]

    def _partitions(self) -> Sequence[str]:
        if self.of.dataset.partition is None:
            return ()
        found = stored_partitions(self.connection, self.of.dataset.name)
        return sorted(found) if len(found) <= MOST_PARTITIONS else ()

    def _told(
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
            folded = f"cross join lateral ({texts}) as folded"
        if asked.near is None:
            rated = f"select *, {score} as _score, null as _km from pool {folded}"
            order = ", ".join(["_score desc", f"length({text_name(0)})", *key])
            shown_score, folded = "_score", ""
        else:
            away = kilometres(dataset, asked.near, where)
            rated = f"select *, {away} as _km from pool"
            if asked.within is not None:
                rated += f" where {away} <= {where.mark(asked.within)}"
            order = ", ".join(["_km", *key])
            shown_score = score
        limit = max(min(asked.limit, MOST_CANDIDATES - asked.offset), 0)
        found = self._ask(
            f"{pool}, rated as materialized ({rated}), "
            "best as materialized (select *, row_number() over () as _place from "
            f"(select * from rated order by {order} "
            f"limit {limit:d} offset {asked.offset:d}) as sorted) "
            f"select {counted('rated')}, {pool.capped}, told.* from (select) as one "
            f"left join (select _place, {shown(asked.fields)}, {shown_score}, _km "
            f"from best {folded}) as told on true order by _place",
            where.given,
            settings=settings or (BY_WORDS if terms else ONE_BY_ONE),
        )
        rows, is_capped, *_ = found[0]
        return Found(
            rows=[
                Match(body=body.encode(), score=score, km=km)
                for _, _, place, body, score, km in found
                if place is not None
            ],
            candidates=rows,
            is_capped=is_capped,
        )

    def _insist_on_indexes(self, *, has_words: bool, near: bool) -> None:
        """Refuse what takes too long without an index that is still to be built."""
        needed = {
            name
            for name, is_needed in (
                (self.of.words_index, has_words),
                (self.of.sample_index, has_words),
                (self.of.place_index, near),
            )
            if is_needed and name not in self.of.valid_indexes
        }
        if not needed:
            return
        valid = {
            name
            for (name,) in self._ask(
                self.statements["valid_indexes"],
                {"dataset": self.of.dataset.name},
            )
        }
        self.of.valid_indexes |= valid
        few = (
            f"select count(*) from (select from {self.of.name} limit {FEW_ROWS + 1:d})"
        )
        if needed <= valid or self._ask(f"{few} as rows", {})[0][0] <= FEW_ROWS:
            return
        raise StoreTooSlow(
            f"dataset {self.of.dataset.name!r} cannot be searched yet: its index is "
            "built when its first rows are in"
        )

    @property
    def _ask(self) -> Asking:
        return Asking(self.connection)


def tally(field: Field) -> str:
    """Compose the values of a field, each with its rows, the most frequent first."""
    name = quoted(field.name)
    # ranges are made of all of them
    limit = "" if field.type in RANGED else f"limit {MOST_VALUES:d}"
    return (
        "(select json_agg(json_build_array(value, rows)) from ("
        f"select {told(field)} as value, count(*) as rows from looked_at "
        f"where {name} is not null group by {name} order by rows desc, {name} {limit}"
        ") as counted)"
    )


def typed(field: Field, counted: Sequence[Sequence[Any]] | None) -> dict[object, int]:
    read = READERS.get(field.type)
    return {
        value if read is None else read(value): rows for value, rows in counted or ()
    }
