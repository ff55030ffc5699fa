"""Bounded queries: full-text and distance search, and facets."""

from dataclasses import dataclass

from penstock.domain.dataset import Dataset, Field
from penstock.domain.search.geo import GeoPoint
from penstock.domain.search.query import Condition
from penstock.domain.search.tokenizer import SearchTerms

# rows that are ranked; a search returns no more
MAX_CANDIDATES = 500
# with fewer exact matches, rows with typos are searched, too
MIN_EXACT_MATCHES = 10
# facets of more rows are counted over a sample of this size
MAX_SAMPLED_ROWS = 10_000
# values that a facet lists, the most frequent first
MAX_FACET_VALUES = 20


@dataclass(frozen=True, kw_only=True)
class SearchQuery:
    """A search by words, by distance, or by both.

    With `near` the nearest rows come first, otherwise the best matches.
    """

    dataset: Dataset
    # None to search by distance only
    words: SearchTerms | None = None
    conditions: tuple[Condition, ...] = ()
    near: GeoPoint | None = None
    # radius in kilometres; None is unlimited
    within: float | None = None
    fields: tuple[Field, ...]
    limit: int
    # candidates that were returned before
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class FacetQuery:
    """Which rows to count, and by which fields."""

    dataset: Dataset
    by: tuple[Field, ...]
    words: SearchTerms | None = None
    conditions: tuple[Condition, ...] = ()
