"""A dataset's table as it is searched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from penstock.adapters.postgres.asking import BY_WORDS
from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.counting import tallies
from penstock.adapters.postgres.inquiry import Inquiry, Limits
from penstock.adapters.postgres.nearest import Outwards
from penstock.adapters.postgres.searched import (
    in_sample,
    lexeme,
    short_text_of,
    words_of,
)
from penstock.adapters.postgres.tables import Table
from penstock.adapters.sql import searched as sql
from penstock.adapters.sql.searched import Found, Tallies
from penstock.adapters.sql.selects import after_prefix
from penstock.domain.queries.search import FacetQuery, SearchQuery
from penstock.domain.queries.words import Term
from penstock.errors import StoreTooSlow

# a table of so few rows is searched without an index, too
FEW_ROWS = 20_000
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
            return Outwards(self._inquiry, asked, terms, asked.near)()
        pool = self._inquiry.best_pool(asked, terms)
        return self._inquiry.told(asked, terms, pool)

    @override
    def tallies(self, asked: FacetQuery, terms: Sequence[Term]) -> Tallies:
        self._insist_on_indexes(has_words=bool(terms), near=False)
        return tallies(self._inquiry, asked, terms)

    @override
    def texts(self, terms: Sequence[Term], *, limit: int) -> Sequence[str]:
        self._insist_on_indexes(has_words=True, near=False)
        pool = self._inquiry.text_pool(terms, most=limit)
        found = self._inquiry.ask(
            f"{pool} select {short_text_of(self.of.dataset)} "
            f"from _pool limit {limit:d}",
            pool.where.given,
            settings=BY_WORDS,
        )
        return [text for (text,) in found]

    @override
    def near_words(self, words: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        found: dict[str, dict[str, int]] = {}
        rows = self._inquiry.ask(
            self.statements["near_words"],
            {"dataset": self.of.dataset.name, "words": list(words)},
        )
        for asked, word, count in rows:
            found.setdefault(asked, {})[word] = count
        return found

    @override
    def completions(self, prefix: str, *, limit: int) -> Sequence[tuple[str, int, str]]:
        self._insist_on_indexes(has_words=True, near=False)
        dataset = self.of.dataset
        known = self._inquiry.ask(
            self.statements["words_from"],
            {
                "dataset": dataset.name,
                "start": prefix,
                "end": after_prefix(prefix),
                # some may be words of rows that are gone
                "limit": 2 * limit,
            },
        )
        row = (
            f"select {short_text_of(dataset)} from {self.of.name} where "
            f"_deleted_at is null and {words_of(dataset)} @@ _known._word::tsquery"
        )
        found = self._inquiry.ask(
            "select _place, _text from unnest(%(words)s::text[]) with ordinality "
            "as _known (_word, _place) cross join lateral (select coalesce("
            f"({row} and {in_sample(dataset)} limit 1), ({row} limit 1)) as _text) "
            "as _first where _text is not null order by _place",
            {"words": [lexeme(word) for word, _ in known]},
            settings=BY_WORDS,
        )
        return [(*known[place - 1], text) for place, text in found[:limit]]

    def _insist_on_indexes(self, *, has_words: bool, near: bool) -> None:
        """Refuse what takes too long without an index that is still to be built."""
        needed = {
            *((self.of.words_index, self.of.sample_index) if has_words else ()),
            *((self.of.place_index,) if near else ()),
        }
        if needed <= self.of.valid_indexes:
            return
        asked = {"dataset": self.of.dataset.name}
        valid = self._inquiry.ask(self.statements["valid_indexes"], asked)
        self.of.valid_indexes |= {name for (name,) in valid}
        if needed <= self.of.valid_indexes or self._has_few_rows():
            return
        raise StoreTooSlow(
            f"dataset {self.of.dataset.name!r} cannot be searched yet: its index is "
            "built when its first rows are in"
        )

    def _has_few_rows(self) -> bool:
        rows = f"select from {self.of.name} limit {FEW_ROWS + 1:d}"
        found = self._inquiry.ask(f"select count(*) from ({rows}) as _some", {})
        return bool(found[0][0] <= FEW_ROWS)

    @property
    def _inquiry(self) -> Inquiry:
        return Inquiry(self.of, self.connection, self.statements, self.limits)
