"""A dataset's table as it is searched."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from penstock.adapters.sql import searched as sql
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.searched import Found, Tallies, Tally
from penstock.adapters.sql.selects import Where, after_prefix
from penstock.adapters.sql.served import Room
from penstock.adapters.sqlite.database import snapshot
from penstock.adapters.sqlite.entries import (
    LONGEST_TEXT,
    Entries,
    entries_name,
    key_columns,
    near_hashes,
    text_of,
    words_name,
)
from penstock.adapters.sqlite.served import DIALECT, shower
from penstock.adapters.sqlite.tables import Table, value_reader
from penstock.domain.dataset import Field
from penstock.domain.queries.geo import FARTHEST_KM, Box, Spot, boxes_around, distance
from penstock.domain.queries.ranking import score
from penstock.domain.queries.search import (
    MOST_CANDIDATES,
    MOST_SAMPLED,
    FacetQuery,
    SearchQuery,
)
from penstock.domain.queries.words import Term, fold, text_tokens
from penstock.errors import StoreTooSlow
from penstock.ports.searching import Match

# rows that may be looked at, from a place outwards
MOST_AROUND = 20_000
# a distance within which a row may be found, in kilometres, before it is doubled
FIRST_REACH = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that fits."""

    # all fields; those that nobody compares are None
    values: Sequence[Any]
    key: tuple[Any, ...]
    km: float | None = None


@dataclass(frozen=True, slots=True)
class SearchedTable(sql.SearchedTable):
    of: Table
    connection: sqlite3.Connection
    statements: Mapping[str, str]

    @override
    def is_behind(self) -> bool:
        dataset = self.of.dataset
        state = self._entries.state() if dataset.search else None
        return state is not None and state.is_behind(dataset)

    @override
    def catch_up(self) -> bool:
        return bool(self.of.dataset.search) and self._entries.catch_up()

    def is_at_rest(self) -> bool:
        """Say whether no import is at work."""
        state = self._entries.state()
        return state is not None and state.is_at_rest

    @override
    def matches(self, asked: SearchQuery, terms: Sequence[Term]) -> Found:
        # rows are found by one statement, and read by others
        with snapshot(self.connection):
            return self._matches(asked, terms)

    def _matches(self, asked: SearchQuery, terms: Sequence[Term]) -> Found:
        if asked.near is None:
            found, is_capped = self._preferred(asked, terms)
        else:
            found, is_capped = self._near(asked, terms, asked.near)
        end = min(asked.offset + asked.limit, MOST_CANDIDATES)
        if asked.near is None:
            rated = [(*self._score(asked, terms, each), each) for each in found]
            rated.sort(key=lambda it: (-it[0], it[1], it[2].key))
            told = [(worth, each) for worth, _, each in rated[asked.offset : end]]
        else:
            # only rows that are told need a score
            found.sort(key=lambda each: (each.km, each.key))
            nearest = found[asked.offset : end]
            told = [(self._score(asked, terms, each)[0], each) for each in nearest]
        return Found(
            rows=[*self._shown(asked, told)],
            candidates=len(found),
            is_capped=is_capped,
        )

    def _shown(
        self, asked: SearchQuery, told: Iterable[tuple[float, Candidate]]
    ) -> Iterator[Match]:
        """Read rows whole, one by one, as long as there is room for them."""
        show, room = shower(asked.fields), Room()
        columns = ", ".join(quoted(field.name) for field in asked.fields)
        same = " and ".join(f"{quoted(name)} = ?" for name in self.of.dataset.key)
        table = quoted(self.of.dataset.name)
        for worth, each in told:
            row = self.connection.execute(
                f"select {columns} from {table} where {same}", each.key
            ).fetchone()
            body = show(tuple(row))
            if not room.take(len(body)):
                return
            yield Match(body=body, score=worth, km=each.km)

    def _score(
        self, asked: SearchQuery, terms: Sequence[Term], of: Candidate
    ) -> tuple[float, int]:
        """Rate a row, and tell how long the first of its texts is."""
        if asked.words is None:
            return 0.0, 0
        texts = self._folded(of.values)
        return score(terms, asked.words.folded, texts), len(texts[0])

    def _preferred(
        self, asked: SearchQuery, terms: Sequence[Term]
    ) -> tuple[list[Candidate], bool]:
        """Find rows that fit; if they are too many, those with whole words first."""
        found, is_capped = self._candidates(asked, terms)
        whole = [term.whole for term in terms]
        if is_capped and whole != [*terms]:
            better, _ = self._candidates(asked, whole)
            found = once(*better, *found)
        return found, is_capped

    def _near(
        self, asked: SearchQuery, terms: Sequence[Term], spot: Spot
    ) -> tuple[list[Candidate], bool]:
        """Find the nearest rows that fit.

        If all that fit are known, they only have to be sorted. Otherwise they are
        looked for from the place outwards.
        """
        some: list[Candidate] = []
        if terms or asked.conditions or asked.within is not None:
            some, is_capped = self._candidates(asked, terms)
            if not is_capped:
                return some, False
        wanted = min(asked.offset + asked.limit + 1, MOST_CANDIDATES)
        farthest = FARTHEST_KM if asked.within is None else asked.within
        reach = min(FIRST_REACH, farthest)
        while True:
            found, is_capped = self._around(asked, terms, spot, reach)
            if is_capped or len(found) >= wanted or reach >= farthest:
                break
            reach = min(2 * reach, farthest)
        return (once(*found, *some), True) if is_capped else (found, False)

    def _around(
        self, asked: SearchQuery, terms: Sequence[Term], spot: Spot, reach: float
    ) -> tuple[list[Candidate], bool]:
        where = self._where(asked)
        where.clauses.append(self._in_boxes(where, boxes_around(spot, reach)))
        if terms:
            keys = ", ".join(map(quoted, self.of.dataset.key))
            where.clauses.append(f"({keys}) in ({self._keys(where, terms)})")
        table = quoted(self.of.dataset.name)
        rows = self._rows(f"{table} where {where}", where, MOST_AROUND)
        found = [
            each
            for each in self._judged(rows, terms, spot)
            if each.km is not None and each.km <= reach
        ]
        return found, len(rows) > MOST_AROUND

    @override
    def tallies(self, asked: FacetQuery, terms: Sequence[Term]) -> Tallies:
        counted = [field.name for field in asked.by]
        where = self._where(asked)
        rows = self._matched(where, terms, MOST_SAMPLED, whole=counted)
        found = [*self._judged(rows[:MOST_SAMPLED], terms)]
        return Tallies(
            fields=[self._tally(field, found) for field in asked.by],
            rows=len(found),
            is_sampled=len(rows) > MOST_SAMPLED,
        )

    def _tally(self, of: Field, found: Sequence[Candidate]) -> Tally:
        (place,) = self._places([of.name])
        counted = Counter(
            each.values[place] for each in found if each.values[place] is not None
        )
        read = value_reader(of)
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        return Tally(
            counted={
                value if read is None else read(value): rows for value, rows in ordered
            },
            filled=counted.total(),
        )

    @override
    def texts(self, terms: Sequence[Term], *, limit: int) -> Sequence[str]:
        rows = self._matched(Where(DIALECT), terms, limit)
        places = self._places(self.of.dataset.search)
        return [
            text_of(each.values[at] for at in places)
            for each in self._judged(rows[:limit], terms)
        ]

    @override
    def near_words(self, words: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        name = self.of.dataset.name
        found = {}
        for word in words:
            asked = {"dataset": name, "shapes": json.dumps(near_hashes(name, word))}
            rows = self.connection.execute(self.statements["near_words"], asked)
            found[word] = dict(rows.fetchall())
        return found

    @override
    def completions(self, prefix: str, *, limit: int) -> Sequence[tuple[str, int, str]]:
        asked = {
            "dataset": self.of.dataset.name,
            "start": prefix,
            "end": after_prefix(prefix),
            # some may be words of rows that have just gone
            "limit": 2 * limit,
        }
        known = self.connection.execute(self.statements["words_from"], asked).fetchall()
        found = [
            (word, rows, text)
            for word, rows in known
            for text in self.texts([Term(word, (word,))], limit=1)
        ]
        return found[:limit]

    def _candidates(
        self, asked: SearchQuery, terms: Sequence[Term]
    ) -> tuple[list[Candidate], bool]:
        rows = self._matched(self._where(asked), terms, MOST_CANDIDATES)
        found = self._judged(rows, terms, asked.near)
        if asked.within is not None:
            found = (e for e in found if e.km is not None and e.km <= asked.within)
        return [*found], len(rows) > MOST_CANDIDATES

    def _where(self, asked: SearchQuery | FacetQuery) -> Where:
        where = Where(DIALECT)
        where.add(*asked.conditions)
        if isinstance(asked, SearchQuery) and asked.near is not None:
            lat, lon = self._degrees()
            where.clauses.append(f"{lat} is not null and {lon} is not null")
            if asked.within is not None:
                boxes = boxes_around(asked.near, asked.within)
                where.clauses.append(self._in_boxes(where, boxes))
        return where

    def _in_boxes(self, where: Where, boxes: Sequence[Box]) -> str:
        lat, lon = self._degrees()
        inside = " or ".join(
            f"({lat} between {where.mark(box.south)} and {where.mark(box.north)} "
            f"and {lon} between {where.mark(box.west)} and {where.mark(box.east)})"
            for box in boxes
        )
        return f"({inside})"

    def _degrees(self) -> tuple[str, str]:
        geo = self.of.dataset.geo
        if geo is None:
            raise LookupError(f"dataset {self.of.dataset.name!r} has no places")
        return quoted(geo[0]), quoted(geo[1])

    def _matched(
        self,
        where: Where,
        terms: Sequence[Term],
        most: int,
        *,
        whole: Sequence[str] = (),
    ) -> list[tuple[Any, ...]]:
        """Find rows by the index of words; one more than are wanted."""
        table = quoted(self.of.dataset.name)
        if not terms:
            return self._rows(f"{table} where {where}", where, most, whole=whole)
        self._insist_on_index()
        same = " and ".join(
            f"{quoted(name)} = _key_{at}" for at, name in enumerate(self.of.dataset.key)
        )
        # in this order: the index gives rows one by one, until there are enough
        found = f"({self._keys(where, terms)}) cross join {table} on {same}"
        return self._rows(f"{found} where {where}", where, most, whole=whole)

    def _keys(self, where: Where, terms: Sequence[Term]) -> str:
        """Compose the keys of the rows that have all words, as the index knows them."""
        words, entries = words_name(self.of.dataset), entries_name(self.of.dataset)
        columns = ", ".join(
            f"{column} as _key_{at}"
            for at, column in enumerate(key_columns(self.of.dataset))
        )
        return (
            f"select {columns} from {words} cross join {entries} "
            f"on {entries}.id = {words}.rowid "
            f"where {words} match {where.mark(match_of(terms))}"
        )

    def _rows(
        self, source: str, where: Where, most: int, *, whole: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """Read of many rows what is compared, and no more of them into memory."""
        dataset = self.of.dataset
        compared = {*dataset.key, *(dataset.geo or ()), *whole}
        columns = ", ".join(
            quoted(field.name)
            if field.name in compared
            else f"substr({quoted(field.name)}, 1, {LONGEST_TEXT})"
            if field.name in dataset.search
            else "null"
            for field in dataset.fields
        )
        found = self.connection.execute(
            f"select {columns} from {source} limit {most + 1:d}", where.given
        )
        return [tuple(row) for row in found]

    def _judged(
        self,
        rows: Sequence[tuple[Any, ...]],
        terms: Sequence[Term],
        spot: Spot | None = None,
    ) -> Iterator[Candidate]:
        """Yield rows that have all words as they are now, whatever the index knows."""
        dataset = self.of.dataset
        key = self._places(dataset.key)
        geo = self._places(dataset.geo or ())
        is_doubted = bool(terms) and self.is_behind()
        for row in rows:
            if is_doubted:
                tokens = set(text_tokens(" ".join(self._folded(row))))
                if not all(term.is_in(tokens) for term in terms):
                    continue
            km = None
            if spot is not None:
                km = distance(spot, Spot(*(row[at] for at in geo)))
            yield Candidate(row, tuple(row[at] for at in key), km)

    def _folded(self, row: Sequence[Any]) -> list[str]:
        """Return the folded texts that are searched in."""
        return [fold(str(row[at] or "")) for at in self._places(self.of.dataset.search)]

    def _places(self, names: Iterable[str]) -> list[int]:
        fields = [field.name for field in self.of.dataset.fields]
        return [fields.index(name) for name in names]

    def _insist_on_index(self) -> None:
        """Refuse to search in a part of the rows as if that were all of them."""
        state = self._entries.state()
        if state is not None and not state.is_complete(self.of.dataset):
            raise StoreTooSlow(
                f"dataset {self.of.dataset.name!r} cannot be searched yet: its index "
                "is being built"
            )

    @property
    def _entries(self) -> Entries:
        return Entries(self.of, self.connection, self.statements)


def once(*found: Candidate) -> list[Candidate]:
    return [*{each.key: each for each in found}.values()]


def match_of(terms: Sequence[Term]) -> str:
    """Write what is looked for as FTS5 reads it."""
    return " AND ".join(f"({' OR '.join(choices(term))})" for term in terms)


def choices(term: Term) -> Iterator[str]:
    if term.prefix is not None:
        yield f'"{term.prefix}" *'
    else:
        yield f"({' AND '.join(map(quoted, term.tokens))})"
    yield from map(quoted, term.variants)
