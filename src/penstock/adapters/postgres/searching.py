"""A dataset's table as it is searched."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from typing_extensions import override

from penstock.adapters.postgres.asking import ALWAYS, BY_WORDS, Asking
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
from penstock.adapters.sql import searched as sql
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.searched import Found, Tallies, Tally
from penstock.adapters.sql.selects import Where, after_prefix
from penstock.domain.dataset import Field, FieldType
from penstock.domain.queries.facets import RANGED
from penstock.domain.queries.geo import Spot, boxes_around
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
# rows that are looked at for those that fit, from a place outwards
MOST_NEAREST = 4_000
# rows that may be as near as the last one that is told
MOST_AROUND = 20_000
# beyond so many, partitions are not asked one by one
MOST_PARTITIONS = 64
# the smallest part of a table that is worth to be drawn from all over it
SMALLEST_SHARE = 0.02
READERS: Mapping[FieldType, Callable[[Any], object]] = {
    FieldType.DATE: date.fromisoformat,
    FieldType.TIMESTAMP: parse_instant,
}


@dataclass(frozen=True, slots=True)
class SearchedTable(sql.SearchedTable):
    of: Table
    connection: Connection
    statements: Mapping[str, str]

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
        pool = self._pool(asked)
        self._search(pool, terms)
        return self._told(asked, terms, pool)

    def _near(self, asked: SearchQuery, terms: Sequence[Term], spot: Spot) -> Found:
        """Find the nearest rows that fit.

        If all that fit are known, they only have to be sorted. Otherwise the first ones
        are looked for from the place outwards. Whatever is as near as the last of them
        lies in boxes around the place.
        """
        is_narrow = bool(terms or asked.conditions) or asked.within is not None
        if is_narrow:
            pool = self._pool(asked)
            self._search(pool, terms)
            found = self._told(asked, terms, pool)
            if not found.is_capped:
                return found
        wanted = min(asked.offset + asked.limit + 1, MOST_CANDIDATES)
        most = MOST_NEAREST if is_narrow else wanted
        look = self._pool(asked)
        near = nearest(
            self._ask, look, asked, spot, terms=terms, wanted=wanted, most=most
        )
        pool = self._pool(asked, most=MOST_AROUND)
        if near.fitting < wanted and near.looked_at >= most:
            # too few of them fit: others are better than none
            pool = self._pool(asked)
            self._search(pool, terms)
        has_words = [pool.has(terms)] if terms else []
        if near.reach is not None:
            around = self._within(pool.where, spot, near.reach)
            pool.add("around", around, *has_words, limit=MOST_AROUND)
        elif not pool.tables:
            pool.take(*has_words)
        return self._told(asked, terms, pool)

    @override
    def tallies(self, asked: FacetQuery, terms: Sequence[Term]) -> Tallies:
        self._insist_on_indexes(has_words=bool(terms), near=False)
        percent = None if terms else self._percent(asked)
        if percent is not None:
            pool = self._pool(asked, most=MOST_SAMPLED)
            source = f"{self.of.name} tablesample system ({percent!r})"
            pool.add("sampled", source=source, limit=MOST_SAMPLED)
            pool.capped = "true"
            found = self._tallies(asked, pool)
            # unless the server has known nothing of the table
            if found.rows >= MOST_SAMPLED // 10:
                return found
        pool = self._pool(asked, most=MOST_SAMPLED)
        self._search(pool, terms)
        return self._tallies(asked, pool, has_words=bool(terms))

    def _tallies(
        self, asked: FacetQuery, pool: Pool, *, has_words: bool = False
    ) -> Tallies:
        counts = ", ".join(
            f"{tally(field)}, count({quoted(field.name)})" for field in asked.by
        )
        ((rows, is_sampled, *found),) = self._ask(
            f"{pool}, looked_at as materialized (select * from pool "
            f"limit {MOST_SAMPLED:d}) "
            f"select count(*), {pool.capped}, {counts} from looked_at",
            pool.where.given,
            settings=BY_WORDS if has_words else ALWAYS,
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
        if fitting < 3 * MOST_SAMPLED or fitting < SMALLEST_SHARE * all_rows:
            return None
        return min(100.0, 150 * MOST_SAMPLED / fitting)

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
        pool = Pool(self.of, Where(DIALECT), limit)
        self._search(pool, terms)
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
        self, asked: SearchQuery | FacetQuery, *, most: int = MOST_CANDIDATES
    ) -> Pool:
        where = Where(DIALECT)
        where.add(*asked.conditions)
        if isinstance(asked, SearchQuery) and asked.near is not None:
            where.clauses.append(has_place(self.of.dataset))
            if asked.within is not None:
                where.clauses.append(self._within(where, asked.near, asked.within))
        return Pool(self.of, where, most)

    def _search(self, pool: Pool, terms: Sequence[Term]) -> None:
        if terms:
            pool.search(terms, partitions=self._partitions())
        else:
            pool.take()

    def _within(self, where: Where, spot: Spot, km: float) -> str:
        boxes = in_boxes(self.of.dataset, boxes_around(spot, km), where)
        away = kilometres(self.of.dataset, spot, where)
        return f"({boxes}) and {away} <= {where.mark(km)}"

    def _partitions(self) -> Sequence[str]:
        if self.of.dataset.partition is None:
            return ()
        found = stored_partitions(self.connection, self.of.dataset.name)
        return sorted(found) if len(found) <= MOST_PARTITIONS else ()

    def _told(self, asked: SearchQuery, terms: Sequence[Term], pool: Pool) -> Found:
        """Rank the candidates, and tell those that are asked for."""
        dataset, where = self.of.dataset, pool.where
        columns = ["0::double precision as _score", "0 as _length"]
        folded = ""
        if terms:
            words = asked.words.folded if asked.words is not None else ""
            columns = [
                f"{score_of(dataset, terms, words, where)} as _score",
                f"length({text_name(0)}) as _length",
            ]
            folded = f"cross join lateral (select {folded_texts(dataset)}) as folded"
        order = ["_score desc", "_length", *map(quoted, dataset.key)]
        away = "null::double precision"
        if asked.near is not None:
            away = kilometres(dataset, asked.near, where)
            order = ["_km", *map(quoted, dataset.key)]
        limit = max(min(asked.limit, MOST_CANDIDATES - asked.offset), 0)
        by = ", ".join(order)
        found = self._ask(
            f"{pool}, rated as (select pool.*, {', '.join(columns)}, {away} as _km "
            f"from pool {folded}) select {shown(asked.fields)}, _score, _km, "
            f"{counted('pool')}, {pool.capped} from (select * from rated order by {by} "
            f"limit {limit:d} offset {asked.offset:d}) as best order by {by}",
            where.given,
            settings=BY_WORDS if terms else ALWAYS,
        )
        return Found(
            rows=[
                Match(body=body.encode(), score=score, km=km)
                for body, score, km, *_ in found
            ],
            candidates=found[0][3] if found else 0,
            is_capped=found[0][4] if found else False,
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
