"""Bounded questions in words, by distance, and for an overview."""

from dataclasses import dataclass

from penstock.domain.dataset import Dataset, Field
from penstock.domain.queries.geo import Spot
from penstock.domain.queries.query import Condition
from penstock.domain.queries.words import Words

# how many rows are ranked at most; a search is not read beyond them
MOST_CANDIDATES = 500
# where fewer rows have the words as they stand, they may be mistyped
TOO_FEW = 10
# how many rows an overview looks at before it becomes one of a sample
MOST_SAMPLED = 10_000
# values that a facet tells one by one, the most frequent first
MOST_VALUES = 20


@dataclass(frozen=True, kw_only=True)
class SearchQuery:
    """Which rows, in words, by distance, or both, and which of them to tell.

    With `near` the nearest come first, otherwise those that fit best.
    """

    dataset: Dataset
    # None where only the distance counts
    words: Words | None = None
    conditions: tuple[Condition, ...] = ()
    near: Spot | None = None
    # in kilometres from there; None is as far as it takes
    within: float | None = None
    fields: tuple[Field, ...]
    limit: int
    # how many of the candidates were told before
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class FacetQuery:
    """By which fields the rows are to be counted, and which rows."""

    dataset: Dataset
    by: tuple[Field, ...]
    words: Words | None = None
    conditions: tuple[Condition, ...] = ()
