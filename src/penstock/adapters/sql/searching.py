"""What clients may look for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from typing_extensions import override

from penstock.adapters.sql.database import Database, Outcome, Transaction
from penstock.adapters.sql.keys import plain_value
from penstock.adapters.sql.searched import SearchedTable, Tally
from penstock.adapters.sql.states import observe
from penstock.domain.dataset import Dataset, Field
from penstock.domain.queries.facets import is_ranged, ranges
from penstock.domain.queries.search import (
    MOST_CANDIDATES,
    MOST_VALUES,
    TOO_FEW,
    FacetQuery,
    SearchQuery,
)
from penstock.domain.queries.suggestions import completed, from_texts
from penstock.domain.queries.words import (
    Term,
    Words,
    as_written,
    is_forgiven,
    is_one_edit_away,
    is_unspaced,
)
from penstock.domain.text import format_instant
from penstock.ports.searching import (
    Facet,
    Facets,
    Matches,
    RangeCount,
    Search,
    Suggestion,
    ValueCount,
)

# words that one word is also read as
MOST_VARIANTS = 8
# rows from which the last of several words is completed
MOST_TEXTS = 300


class SqlSearch(Search):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def search(self, asked: SearchQuery) -> Matches:
        return self._ask(asked.dataset, lambda table: search(table, asked))

    @override
    def suggest(
        self, dataset: Dataset, words: Words, *, limit: int
    ) -> Sequence[Suggestion]:
        return self._ask(dataset, lambda table: suggest(table, words, limit=limit))

    @override
    def facets(self, asked: FacetQuery) -> Facets:
        return self._ask(asked.dataset, lambda table: facets(table, asked))

    def _ask(
        self, dataset: Dataset, question: Callable[[SearchedTable], Outcome]
    ) -> Outcome:
        def attempt(look: Transaction) -> Outcome | None:
            table = look.searched(dataset)
            return None if table.is_behind() else answered(look)

        def answered(look: Transaction) -> Outcome:
            outcome = question(look.searched(dataset))
            observe(look, dataset)
            return outcome

        def catch_up(transaction: Transaction) -> None:
            transaction.searched(dataset).catch_up()

        answer = self._database.read(attempt)
        if answer is not None:
            return answer
        self._database.write(catch_up)
        return self._database.read(answered)


def search(table: SearchedTable, asked: SearchQuery) -> Matches:
    terms = terms_of(asked.words)
    found = table.matches(asked, terms)
    if terms and found.candidates < TOO_FEW:
        forgiving = forgive(table, terms)
        if forgiving != terms:
            terms, found = forgiving, table.matches(asked, forgiving)
    told = min(found.candidates, MOST_CANDIDATES)
    return Matches(
        rows=found.rows,
        # fewer may be told than are asked for, where they are large
        has_more=asked.offset + len(found.rows) < told,
        is_capped=found.is_capped,
        forgiven={each.word: each.variants for each in terms if each.variants},
    )


def terms_of(words: Words | None) -> tuple[Term, ...]:
    return () if words is None else words.terms


def forgive(table: SearchedTable, terms: Sequence[Term]) -> tuple[Term, ...]:
    """Read words that hardly a row has also as those that are a letter away."""
    doubted = [each.word for each in terms if is_forgiven(each.word)]
    if not doubted:
        return tuple(terms)
    known = table.near_words(doubted)
    return tuple(
        replace(each, variants=variants(each.word, known.get(each.word, {})))
        for each in terms
    )


def variants(word: str, known: Mapping[str, int]) -> tuple[str, ...]:
    if known.get(word, 0) >= TOO_FEW:
        return ()
    near = [each for each in known if is_one_edit_away(word, each)]
    near.sort(key=lambda each: (-known[each], each))
    return tuple(near[:MOST_VARIANTS])


def suggest(table: SearchedTable, words: Words, *, limit: int) -> list[Suggestion]:
    terms = words.terms
    last = terms[-1]
    known: Sequence[tuple[str, int, str]] = ()
    # together with other words, only what stands beside them is told
    if len(terms) == 1 and not is_unspaced(last.word):
        known = table.completions(last.word, limit=limit)
    if known:
        return [
            Suggestion(completed(words, as_written(text, word) or word), rows)
            for word, rows, text in known
        ]
    texts = table.texts(terms, limit=MOST_TEXTS)
    return [Suggestion(*each) for each in from_texts(words, texts, limit=limit)]


def facets(table: SearchedTable, asked: FacetQuery) -> Facets:
    terms = terms_of(asked.words)
    found = table.tallies(asked, terms)
    if terms and found.rows < TOO_FEW:
        forgiving = forgive(table, terms)
        if forgiving != terms:
            found = table.tallies(asked, forgiving)
    return Facets(
        facets=[
            facet_of(of, tally, found.rows)
            for of, tally in zip(asked.by, found.fields, strict=True)
        ],
        rows=found.rows,
        is_sampled=found.is_sampled,
    )


def facet_of(of: Field, tally: Tally, rows: int) -> Facet:
    missing = rows - tally.filled
    if is_ranged(of.type, len(tally.counted)):
        found = [
            RangeCount(start=told(each.start), end=told(each.end), rows=each.rows)
            for each in ranges(tally.counted)
        ]
        return Facet(field=of.name, ranges=found, missing=missing)
    ordered = sorted(tally.counted.items(), key=lambda item: -item[1])[:MOST_VALUES]
    return Facet(
        field=of.name,
        values=[ValueCount(told(value), count) for value, count in ordered],
        others=tally.filled - sum(count for _, count in ordered),
        missing=missing,
    )


def told(value: object) -> Any:
    """Return a value as JSON has it."""
    return format_instant(value) if isinstance(value, datetime) else plain_value(value)
