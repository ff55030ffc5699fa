"""A dataset's table as clients search it."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from typing_extensions import override

from penstock.adapters.sqlite.database import snapshot
from penstock.adapters.sqlite.fts_index import (
    MAX_TEXT_LENGTH,
    FtsIndex,
    entries_name,
    join_texts,
    key_columns,
    near_hashes,
    words_name,
)
from penstock.adapters.sqlite.record_table import DIALECT, row_encoder
from penstock.adapters.sqlite.table_sql import SqliteTableSql, value_reader
from penstock.adapters.sqlstore import table_protocols as sql
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.table_protocols import (
    ByteAllowance,
    FacetCount,
    FacetCounts,
    FoundRow,
)
from penstock.adapters.sqlstore.where_builder import Where, after_prefix
from penstock.domain.dataset import Field, FieldType
from penstock.domain.exact_decimals import without_trailing_zeros
from penstock.domain.search.geo import (
    MAX_DISTANCE_KM,
    GeoBox,
    GeoPoint,
    boxes_around,
    distance,
)
from penstock.domain.search.ranking import score_row
from penstock.domain.search.search_query import (
    MAX_CANDIDATES,
    MAX_SAMPLED_ROWS,
    FacetQuery,
    SearchQuery,
)
from penstock.domain.search.tokenizer import Term, fold, text_tokens
from penstock.errors import StoreTimeout
from penstock.ports.search import Match

# rows that may be read around a place
MAX_NEARBY = 20_000
# the first radius searched, in kilometres; it is doubled until there are enough rows
INITIAL_RADIUS = 1.0


@dataclass(frozen=True, slots=True)
class SearchCandidate:
    """A row that matches."""

    # all fields; those that are not compared are None
    values: Sequence[Any]
    key: tuple[Any, ...]
    km: float | None = None


@dataclass(frozen=True, slots=True)
class SqliteSearchTable(sql.SearchTable):
    of: SqliteTableSql
    connection: sqlite3.Connection
    statements: Mapping[str, str]

    @override
    def is_behind(self) -> bool:
        dataset = self.of.dataset
        state = self._index.state() if dataset.search else None
        return state is not None and state.is_behind(dataset)

    @override
    def catch_up(self) -> bool:
        return bool(self.of.dataset.search) and self._index.catch_up()

    def is_at_rest(self) -> bool:
        """Return whether no import is running."""
        state = self._index.state()
        return state is not None and state.is_at_rest

    @override
    def matches(self, query: SearchQuery, terms: Sequence[Term]) -> FoundRow:
        # one statement finds the rows, others read them
        with snapshot(self.connection):
            return self._matches(query, terms)

    def _matches(self, query: SearchQuery, terms: Sequence[Term]) -> FoundRow:
        if query.near is None:
            found, is_capped = self._find_best(query, terms)
        else:
            found, is_capped = self._near(query, terms, query.near)
        end = min(query.offset + query.limit, MAX_CANDIDATES)
        if query.near is None:
            scored = [(*self._score(query, terms, row), row) for row in found]
            scored.sort(key=lambda item: (-item[0], item[1], item[2].key))
            ranked = [
                (relevance, row) for relevance, _, row in scored[query.offset : end]
            ]
        else:
            # only rows that are returned need a score
            found.sort(key=lambda row: (row.km, row.key))
            nearest = found[query.offset : end]
            ranked = [(self._score(query, terms, row)[0], row) for row in nearest]
        return FoundRow(
            rows=[*self._read_rows(query, ranked)],
            candidates=len(found),
            is_capped=is_capped,
        )

    def _read_rows(
        self, query: SearchQuery, ranked: Iterable[tuple[float, SearchCandidate]]
    ) -> Iterator[Match]:
        """Read whole rows, one by one, as long as there is room for them."""
        encode_row, room = row_encoder(query.fields), ByteAllowance()
        columns = ", ".join(quote(field.name) for field in query.fields)
        same = " and ".join(f"{quote(name)} = ?" for name in self.of.dataset.key)
        table = quote(self.of.dataset.name)
        for relevance, candidate in ranked:
            row = self.connection.execute(
                f"select {columns} from {table} where {same}", candidate.key
            ).fetchone()
            body = encode_row(tuple(row))
            if not room.take(len(body)):
                return
            yield Match(body=body, score=relevance, km=candidate.km)

    def _score(
        self, query: SearchQuery, terms: Sequence[Term], candidate: SearchCandidate
    ) -> tuple[float, int]:
        """Return the score of a row, and the length of the first of its texts."""
        if query.words is None:
            return 0.0, 0
        texts = self._fold_texts(candidate.values)
        return score_row(terms, query.words.folded, texts), len(texts[0])

    def _find_best(
        self, query: SearchQuery, terms: Sequence[Term]
    ) -> tuple[list[SearchCandidate], bool]:
        """Find matching rows; if there are too many, those with whole words first."""
        found, is_capped = self._candidates(query, terms)
        whole = [term.whole for term in terms]
        if is_capped and whole != [*terms]:
            better, _ = self._candidates(query, whole)
            found = distinct(*better, *found)
        return found, is_capped

    def _near(
        self, query: SearchQuery, terms: Sequence[Term], origin: GeoPoint
    ) -> tuple[list[SearchCandidate], bool]:
        """Find the nearest matching rows.

        If all matches are found at once, they only have to be sorted. Otherwise they
        are searched within a growing radius.
        """
        anywhere: list[SearchCandidate] = []
        if terms or query.conditions or query.within is not None:
            anywhere, is_capped = self._candidates(query, terms)
            if not is_capped:
                return anywhere, False
        needed = min(query.offset + query.limit + 1, MAX_CANDIDATES)
        farthest = MAX_DISTANCE_KM if query.within is None else query.within
        radius = min(INITIAL_RADIUS, farthest)
        while True:
            found, is_capped = self._find_within(query, terms, origin, radius)
            if is_capped or len(found) >= needed or radius >= farthest:
                break
            radius = min(2 * radius, farthest)
        return (distinct(*found, *anywhere), True) if is_capped else (found, False)

    def _find_within(
        self, query: SearchQuery, terms: Sequence[Term], origin: GeoPoint, radius: float
    ) -> tuple[list[SearchCandidate], bool]:
        where = self._where(query)
        where.clauses.append(self._in_boxes(where, boxes_around(origin, radius)))
        if terms:
            keys = ", ".join(map(quote, self.of.dataset.key))
            where.clauses.append(f"({keys}) in ({self._keys(where, terms)})")
        table = quote(self.of.dataset.name)
        rows = self._rows(f"{table} where {where}", where, MAX_NEARBY)
        found = [
            row
            for row in self._check(rows, terms, origin)
            if row.km is not None and row.km <= radius
        ]
        return found, len(rows) > MAX_NEARBY

    @override
    def count_facets(self, query: FacetQuery, terms: Sequence[Term]) -> FacetCounts:
        counted = [field.name for field in query.by]
        where = self._where(query)
        rows = self._find_rows(where, terms, MAX_SAMPLED_ROWS, whole=counted)
        found = [*self._check(rows[:MAX_SAMPLED_ROWS], terms)]
        return FacetCounts(
            fields=[self._count_values(field, found) for field in query.by],
            rows=len(found),
            is_sampled=len(rows) > MAX_SAMPLED_ROWS,
        )

    def _count_values(
        self, field: Field, found: Sequence[SearchCandidate]
    ) -> FacetCount:
        (position,) = self._positions([field.name])
        stored = (row.values[position] for row in found)
        counted: Counter[Any] = Counter(value for value in stored if value is not None)
        read = value_reader(field)
        if field.type is FieldType.DECIMAL:
            read = None
            counted = count_numbers(counted)
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        return FacetCount(
            counted={
                value if read is None else read(value): rows for value, rows in ordered
            },
            filled=counted.total(),
        )

    @override
    def texts(self, terms: Sequence[Term], *, limit: int) -> Sequence[str]:
        rows = self._find_rows(Where(DIALECT), terms, limit)
        positions = self._positions(self.of.dataset.search)
        return [
            join_texts(row.values[position] for position in positions)
            for row in self._check(rows[:limit], terms)
        ]

    @override
    def near_words(self, words: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        name = self.of.dataset.name
        found = {}
        for word in words:
            shapes = json.dumps(near_hashes(name, word))
            rows = self.connection.execute(
                self.statements["near_words"], {"dataset": name, "shapes": shapes}
            )
            found[word] = dict(rows.fetchall())
        return found

    @override
    def completions(self, prefix: str, *, limit: int) -> Sequence[tuple[str, int, str]]:
        parameters = {
            "dataset": self.of.dataset.name,
            "start": prefix,
            "end": after_prefix(prefix),
            # some may be words of rows that were just deleted
            "limit": 2 * limit,
        }
        words = self.connection.execute(
            self.statements["words_from"], parameters
        ).fetchall()
        found = [
            (word, rows, text)
            for word, rows in words
            for text in self.texts([Term(word, (word,))], limit=1)
        ]
        return found[:limit]

    def _candidates(
        self, query: SearchQuery, terms: Sequence[Term]
    ) -> tuple[list[SearchCandidate], bool]:
        rows = self._find_rows(self._where(query), terms, MAX_CANDIDATES)
        found = self._check(rows, terms, query.near)
        if query.within is not None:
            found = (
                row for row in found if row.km is not None and row.km <= query.within
            )
        return [*found], len(rows) > MAX_CANDIDATES

    def _where(self, query: SearchQuery | FacetQuery) -> Where:
        where = Where(DIALECT)
        where.add(*query.conditions)
        if isinstance(query, SearchQuery) and query.near is not None:
            lat, lon = self._geo_columns()
            where.clauses.append(f"{lat} is not null and {lon} is not null")
            if query.within is not None:
                boxes = boxes_around(query.near, query.within)
                where.clauses.append(self._in_boxes(where, boxes))
        return where

    def _in_boxes(self, where: Where, boxes: Sequence[GeoBox]) -> str:
        lat, lon = self._geo_columns()
        inside = " or ".join(
            f"({lat} between {where.param(box.south)} and {where.param(box.north)} "
            f"and {lon} between {where.param(box.west)} and {where.param(box.east)})"
            for box in boxes
        )
        return f"({inside})"

    def _geo_columns(self) -> tuple[str, str]:
        geo = self.of.dataset.geo
        if geo is None:
            raise LookupError(f"dataset {self.of.dataset.name!r} has no places")
        return quote(geo[0]), quote(geo[1])

    def _find_rows(
        self,
        where: Where,
        terms: Sequence[Term],
        limit: int,
        *,
        whole: Sequence[str] = (),
    ) -> list[tuple[Any, ...]]:
        """Find rows by the search index, one more than the limit."""
        table = quote(self.of.dataset.name)
        if not terms:
            return self._rows(f"{table} where {where}", where, limit, whole=whole)
        self._require_index()
        same = " and ".join(
            f"{quote(name)} = _key_{at}" for at, name in enumerate(self.of.dataset.key)
        )
        # in this order: the index returns rows one by one, until there are enough
        found = f"({self._keys(where, terms)}) cross join {table} on {same}"
        return self._rows(f"{found} where {where}", where, limit, whole=whole)

    def _keys(self, where: Where, terms: Sequence[Term]) -> str:
        """Build the query for the keys of the rows that have all words in the index."""
        words, entries = words_name(self.of.dataset), entries_name(self.of.dataset)
        columns = ", ".join(
            f"{column} as _key_{at}"
            for at, column in enumerate(key_columns(self.of.dataset))
        )
        return (
            f"select {columns} from {words} cross join {entries} "
            f"on {entries}.id = {words}.rowid "
            f"where {words} match {where.param(match_expression(terms))}"
        )

    def _rows(
        self, source: str, where: Where, limit: int, *, whole: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """Read only the compared columns of many rows, to save memory."""
        dataset = self.of.dataset
        compared = {*dataset.key, *(dataset.geo or ()), *whole}
        columns = ", ".join(
            quote(field.name)
            if field.name in compared
            else f"substr({quote(field.name)}, 1, {MAX_TEXT_LENGTH})"
            if field.name in dataset.search
            else "null"
            for field in dataset.fields
        )
        found = self.connection.execute(
            f"select {columns} from {source} limit {limit + 1:d}", where.given
        )
        return [tuple(row) for row in found]

    def _check(
        self,
        rows: Sequence[tuple[Any, ...]],
        terms: Sequence[Term],
        origin: GeoPoint | None = None,
    ) -> Iterator[SearchCandidate]:
        """Yield rows that have all words now, even if the index is behind."""
        dataset = self.of.dataset
        key = self._positions(dataset.key)
        geo = self._positions(dataset.geo or ())
        must_check = bool(terms) and self.is_behind()
        for row in rows:
            if must_check:
                tokens = set(text_tokens(" ".join(self._fold_texts(row))))
                if not all(term.is_in(tokens) for term in terms):
                    continue
            km = None
            if origin is not None:
                km = distance(origin, GeoPoint(*(row[at] for at in geo)))
            yield SearchCandidate(row, tuple(row[at] for at in key), km)

    def _fold_texts(self, row: Sequence[Any]) -> list[str]:
        """Return the folded texts of the searched fields."""
        positions = self._positions(self.of.dataset.search)
        return [fold(str(row[at] or "")) for at in positions]

    def _positions(self, names: Iterable[str]) -> list[int]:
        fields = [field.name for field in self.of.dataset.fields]
        return [fields.index(name) for name in names]

    def _require_index(self) -> None:
        """Raise `StoreTimeout` as long as the index does not cover all rows."""
        state = self._index.state()
        if state is not None and not state.is_complete(self.of.dataset):
            raise StoreTimeout(
                f"dataset {self.of.dataset.name!r} cannot be searched yet: its index "
                "is being built"
            )

    @property
    def _index(self) -> FtsIndex:
        return FtsIndex(self.of, self.connection, self.statements)


def count_numbers(counted: Mapping[str, int]) -> Counter[Decimal]:
    """Return counts of numbers from those of texts: 1.10 and 1.1 are one value."""
    numbers: Counter[Decimal] = Counter()
    for text, rows in counted.items():
        numbers[without_trailing_zeros(Decimal(text))] += rows
    return numbers


def distinct(*found: SearchCandidate) -> list[SearchCandidate]:
    return [*{row.key: row for row in found}.values()]


def match_expression(terms: Sequence[Term]) -> str:
    """Build the FTS5 query for all terms."""
    return " AND ".join(f"({' OR '.join(alternatives(term))})" for term in terms)


def alternatives(term: Term) -> Iterator[str]:
    if term.prefix is not None:
        yield f'"{term.prefix}" *'
    else:
        yield f"({' AND '.join(map(quote, term.tokens))})"
    yield from map(quote, term.variants)
