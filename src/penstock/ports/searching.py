"""Finding records: by words in any script, by distance, and counted by their values."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.domain.dataset import Dataset
from penstock.domain.queries.search import FacetQuery, SearchQuery
from penstock.domain.queries.words import Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A row that was found, as a JSON object."""

    body: bytes
    # how well it fits the words, compared with other rows of the same answer
    score: float
    # how far away it is, where a place was given
    km: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The best rows first, or the nearest."""

    rows: Sequence[Match]
    # whether a greater offset gives more
    has_more: bool = False
    # whether there are rows that were not looked at, because there are too many
    is_capped: bool = False
    # as what else words were read, of which hardly a row has just those letters
    forgiven: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What was typed, completed."""

    text: str
    # roughly how many rows have its last word
    rows: int


@dataclass(frozen=True, slots=True)
class ValueCount:
    # as JSON has it
    value: str | float | bool
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeCount:
    """How many rows lie in a range; the first bound is in it, the last is not."""

    start: str | float
    end: str | float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """The rows counted by one field: values, or ranges where values are too many."""

    field: str
    values: Sequence[ValueCount] = ()
    ranges: Sequence[RangeCount] = ()
    # rows of values that are not told, and without a value
    others: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    facets: Sequence[Facet]
    # the rows that were counted: all there are, unless it is a sample
    rows: int
    is_sampled: bool = False


class Search(Protocol):
    """What clients may look for; each call is one bounded question.

    It is asked of datasets that declare `search`, and of `geo` for distances; while the
    index of a large dataset is being built, `StoreUnavailable` is raised.
    """

    @abstractmethod
    def search(self, asked: SearchQuery) -> Matches:
        """Return live rows that have all words, fit the conditions, and lie near.

        The last word may be unfinished. Where fewer rows than a handful have the words
        just so, one letter may be wrong in words of five or more. If more rows fit than
        can be ranked, some of them are, and the answer says so.
        """
        ...

    @abstractmethod
    def suggest(
        self, dataset: Dataset, words: Words, *, limit: int
    ) -> Sequence[Suggestion]:
        """Complete the last word, by words that rows have together with the others.

        The most frequent come first.
        """
        ...

    @abstractmethod
    def facets(self, asked: FacetQuery) -> Facets:
        """Count rows by the values of fields; a sample of them if there are too many.

        Whatever a word was also read as in a search counts here, too.
        """
        ...
