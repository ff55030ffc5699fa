"""Search: full text in any script, distance, facets, suggestions."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from penstock.domain.dataset import Dataset
from penstock.domain.search.search_query import FacetQuery, SearchQuery
from penstock.domain.search.tokenizer import SearchTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A matching row as a JSON object."""

    body: bytes
    # the relevance, comparable within one response
    score: float
    # the distance, if the search has a point
    km: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The best rows first, or the nearest."""

    rows: Sequence[Match]
    # whether a greater offset gives more
    has_more: bool = False
    # whether some rows were not ranked, because there are too many
    is_capped: bool = False
    # word -> similar words that were searched too, because it is rare
    forgiven: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A completion of the query text."""

    text: str
    # roughly how many rows have its last word
    rows: int


@dataclass(frozen=True, slots=True)
class ValueCount:
    # a JSON value
    value: str | float | Decimal | bool
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeCount:
    """The number of rows in a half-open range."""

    start: str | float | Decimal
    end: str | float | Decimal
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """Row counts by the values of a field, or by ranges if values are too many."""

    field: str
    values: Sequence[ValueCount] = ()
    ranges: Sequence[RangeCount] = ()
    # rows of values that are not listed, and rows without a value
    others: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    facets: Sequence[Facet]
    # the rows that were counted: all, unless it is a sample
    rows: int
    is_sampled: bool = False


class Search(Protocol):
    """Bounded searches of datasets that declare `search`, or `geo` for distances.

    Raises `StoreUnavailable` while the index of a large dataset is being built.
    """

    @abstractmethod
    def search(self, query: SearchQuery) -> Matches:
        """Return live rows that have all words, match the conditions, and lie near.

        The last word may be a prefix. If only a handful of rows match exactly, words of
        five or more letters may have one typo. If more rows match than can be ranked,
        the result is capped.
        """
        ...

    @abstractmethod
    def suggest(
        self, dataset: Dataset, words: SearchTerms, *, limit: int
    ) -> Sequence[Suggestion]:
        """Complete the last word with words that occur together with the others.

        The most frequent come first.
        """
        ...

    @abstractmethod
    def facets(self, query: FacetQuery) -> Facets:
        """Count rows by the values of fields; a sample of them if there are too many.

        Typos are corrected as in `search`.
        """
        ...
