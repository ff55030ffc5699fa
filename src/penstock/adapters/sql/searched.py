"""A dataset's table as it is searched, inside a transaction."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.domain.queries.search import FacetQuery, SearchQuery
from penstock.domain.queries.words import Term
from penstock.ports.searching import Match


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is told of the candidates, and how many there are."""

    rows: Sequence[Match]
    candidates: int
    is_capped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How often rows have the values of one field."""

    # all values, or the most frequent ones
    counted: Mapping[object, int] = field(default_factory=dict)
    # rows that have any value
    filled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tallies:
    # in the order of the fields that were asked for
    fields: Sequence[Tally]
    rows: int
    is_sampled: bool = False


class SearchedTable(Protocol):
    @abstractmethod
    def is_behind(self) -> bool:
        """Say whether rows have changed that the index does not know yet."""
        ...

    @abstractmethod
    def catch_up(self) -> bool:
        """Bring the index to the latest rows, or some way; say whether more is left."""
        ...

    @abstractmethod
    def matches(self, asked: SearchQuery, terms: Sequence[Term]) -> Found: ...

    @abstractmethod
    def tallies(self, asked: FacetQuery, terms: Sequence[Term]) -> Tallies: ...

    @abstractmethod
    def texts(self, terms: Sequence[Term], *, limit: int) -> Sequence[str]:
        """Return what is searched in of some rows that have all words."""
        ...

    @abstractmethod
    def near_words(self, words: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """Return the known words that may be a letter away from each, or are it.

        Each comes with how many rows have it.
        """
        ...

    @abstractmethod
    def completions(self, prefix: str, *, limit: int) -> Sequence[tuple[str, int, str]]:
        """Return words that begin so, the most frequent first.

        Each comes with its rows, and with what is searched in of one of them.
        """
        ...
