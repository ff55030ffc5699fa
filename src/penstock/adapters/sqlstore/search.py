"""Search, suggestions and facets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, Outcome, Transaction
from penstock.adapters.sqlstore.dataset_versions import observe
from penstock.adapters.sqlstore.key_encoding import plain_value
from penstock.adapters.sqlstore.schema import refusing_stale
from penstock.adapters.sqlstore.table_protocols import FacetCount, SearchTable
from penstock.domain.dataset import Dataset, Field
from penstock.domain.formats import format_instant
from penstock.domain.search.facets import build_ranges, is_ranged
from penstock.domain.search.search_query import (
    MAX_CANDIDATES,
    MAX_FACET_VALUES,
    MIN_EXACT_MATCHES,
    FacetQuery,
    SearchQuery,
)
from penstock.domain.search.suggestions import complete_text, suggest_from_texts
from penstock.domain.search.tokenizer import (
    SearchTerms,
    Term,
    allows_typos,
    find_as_written,
    is_one_edit_away,
    is_unspaced,
)
from penstock.ports.search import (
    Facet,
    Facets,
    Matches,
    RangeCount,
    Search,
    Suggestion,
    ValueCount,
)

# similar words that one word also matches
MAX_VARIANTS = 8
# rows read to complete the last of several words
MAX_TEXTS = 300


class SqlSearch(Search):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def search(self, query: SearchQuery) -> Matches:
        return self._run(query.dataset, lambda table: search(table, query))

    @override
    def suggest(
        self, dataset: Dataset, words: SearchTerms, *, limit: int
    ) -> Sequence[Suggestion]:
        return self._run(dataset, lambda table: suggest(table, words, limit=limit))

    @override
    def facets(self, query: FacetQuery) -> Facets:
        return self._run(query.dataset, lambda table: facets(table, query))

    def _run(self, dataset: Dataset, work: Callable[[SearchTable], Outcome]) -> Outcome:
        def run_if_current(transaction: Transaction) -> Outcome | None:
            table = transaction.search_table(dataset)
            return None if table.is_behind() else run(transaction)

        def run(transaction: Transaction) -> Outcome:
            outcome = work(transaction.search_table(dataset))
            observe(transaction, dataset)
            return outcome

        def catch_up(transaction: Transaction) -> None:
            transaction.search_table(dataset).catch_up()

        with refusing_stale(self._database, dataset):
            outcome = self._database.read(run_if_current)
            if outcome is not None:
                return outcome
            self._database.write(catch_up)
            return self._database.read(run)


def search(table: SearchTable, query: SearchQuery) -> Matches:
    terms = query_terms(query.words)
    found = table.matches(query, terms)
    if terms and found.candidates < MIN_EXACT_MATCHES:
        relaxed = add_variants(table, terms)
        if relaxed != terms:
            terms, found = relaxed, table.matches(query, relaxed)
    return Matches(
        rows=found.rows,
        # large rows may be fewer than the requested limit
        has_more=query.offset + len(found.rows) < min(found.candidates, MAX_CANDIDATES),
        is_capped=found.is_capped,
        forgiven={term.word: term.variants for term in terms if term.variants},
    )


def query_terms(words: SearchTerms | None) -> tuple[Term, ...]:
    return () if words is None else words.terms


def add_variants(table: SearchTable, terms: Sequence[Term]) -> tuple[Term, ...]:
    """Let words that hardly any row has also match words that are one edit away."""
    words = [term.word for term in terms if allows_typos(term.word)]
    if not words:
        return tuple(terms)
    near = table.near_words(words)
    return tuple(
        replace(term, variants=choose_variants(term.word, near.get(term.word, {})))
        for term in terms
    )


def choose_variants(word: str, rows_by_word: Mapping[str, int]) -> tuple[str, ...]:
    if rows_by_word.get(word, 0) >= MIN_EXACT_MATCHES:
        return ()
    near = [other for other in rows_by_word if is_one_edit_away(word, other)]
    near.sort(key=lambda other: (-rows_by_word[other], other))
    return tuple(near[:MAX_VARIANTS])


def suggest(table: SearchTable, words: SearchTerms, *, limit: int) -> list[Suggestion]:
    terms = words.terms
    last = terms[-1]
    completions: Sequence[tuple[str, int, str]] = ()
    # after other words, only words of rows that have all of them are suggested
    if len(terms) == 1 and not is_unspaced(last.word):
        completions = table.completions(last.word, limit=limit)
    if completions:
        return [
            Suggestion(complete_text(words, find_as_written(text, word) or word), rows)
            for word, rows, text in completions
        ]
    texts = table.texts(terms, limit=MAX_TEXTS)
    suggested = suggest_from_texts(words, texts, limit=limit)
    return [Suggestion(*suggestion) for suggestion in suggested]


def facets(table: SearchTable, query: FacetQuery) -> Facets:
    terms = query_terms(query.words)
    found = table.count_facets(query, terms)
    if terms and found.rows < MIN_EXACT_MATCHES:
        relaxed = add_variants(table, terms)
        if relaxed != terms:
            found = table.count_facets(query, relaxed)
    return Facets(
        facets=[
            build_facet(field, counts, found.rows)
            for field, counts in zip(query.by, found.fields, strict=True)
        ],
        rows=found.rows,
        is_sampled=found.is_sampled,
    )


def build_facet(field: Field, counts: FacetCount, rows: int) -> Facet:
    missing = rows - counts.filled
    if is_ranged(field.type, len(counts.counted)):
        found = [
            RangeCount(
                start=to_json_value(span.start),
                end=to_json_value(span.end),
                rows=span.rows,
            )
            for span in build_ranges(counts.counted)
        ]
        return Facet(field=field.name, ranges=found, missing=missing)
    ordered = sorted(counts.counted.items(), key=lambda item: -item[1])[
        :MAX_FACET_VALUES
    ]
    return Facet(
        field=field.name,
        values=[ValueCount(to_json_value(value), count) for value, count in ordered],
        others=counts.filled - sum(count for _, count in ordered),
        missing=missing,
    )


def to_json_value(value: object) -> Any:
    """Convert a value to one that JSON has; decimals have their digits."""
    if isinstance(value, Decimal):
        return value
    return format_instant(value) if isinstance(value, datetime) else plain_value(value)
