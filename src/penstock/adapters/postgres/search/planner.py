"""Choose how rows with words are found: by posting lists, or by checking rows.

A GIN index reads the posting list of the rarest word, and those of all words that start
with an unfinished one. Where these are long, the rows that match the conditions, or
have the other words, may be few enough to be checked one by one. Where all are many, a
sample is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from penstock.adapters.postgres.record_table import DIALECT
from penstock.adapters.postgres.search.prefilter import are_plain
from penstock.adapters.postgres.search.session import BITMAP_SETTINGS, SearchSession
from penstock.adapters.postgres.search.sql import (
    SAMPLE_RATIO,
    has_prefix,
    query_of,
    words_of,
)
from penstock.adapters.postgres.table_sql import LIVE, PostgresTableSql
from penstock.adapters.sqlstore.where_builder import Where
from penstock.domain.search.query import Condition
from penstock.domain.search.tokenizer import Term

# what a row costs, in microseconds: read from the posting list of a word, or skipped in
# it by another word
LIST_COST, SKIP_COST = 0.5, 0.15
# read from the lists of all words with a prefix, or from the index of a condition
PREFIX_COST, CONDITION_COST = 0.65, 0.25
# checked by its text, with a prefilter or without
PREFILTERED_CHECK_COST, CHECK_COST = 3.5, 14.0
# read from the lists of words with a prefix that the dictionary has: the base, and for
# each word
KNOWN_BASE_COST, KNOWN_WORD_COST = 0.2, 0.01
# read from around a location, before it is looked up in the lists
AROUND_COST = 0.3
# for more words than this, reading all with the prefix is cheaper
MAX_KNOWN_WORDS = 16
MAX_COST = 40_000
# by how many times a sample of pages should exceed the requested rows
OVERSAMPLING = 3


class AccessPath(Enum):
    # by the posting lists of all words
    LISTS = auto()
    # by the lists of the finished words; the unfinished one is checked
    FINISHED = auto()
    # by the conditions; all words are checked
    CONDITIONS = auto()
    # only in a sample: anything else would take too long
    NONE = auto()


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """What the term dictionary has about words with a prefix."""

    # roughly how many rows have one
    rows: float = 0.0
    # all of the words, if they are few and the dictionary is complete
    words: tuple[str, ...] = ()

    @property
    def read_cost(self) -> float:
        """The microseconds to read the posting lists of these words."""
        return (KNOWN_BASE_COST + KNOWN_WORD_COST * len(self.words)) * self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """How rows are found that have the words as typed, or the last as a prefix."""

    whole: AccessPath
    prefix: AccessPath
    # microseconds to check a row, and to read the posting lists of all words
    check_cost: float
    list_cost: float
    # estimates of the rows that match the conditions, and, if there are none, of those
    # that have the words
    fitting: float
    rows_with_words: float | None
    # of the last word
    known: PrefixStats

    def list_cost_around(self, rows: float) -> float:
        """Return the microseconds to look up rows around a location in the lists."""
        cost = self.known.read_cost if self.known.words else self.list_cost
        return cost + AROUND_COST * rows

    def expand_prefix(self, terms: Sequence[Term]) -> Sequence[Term]:
        """Replace the prefix of the last word by all of its words, if known."""
        *finished, last = terms
        return [*finished, replace(last, known=self.known.words)]

    @property
    def is_filtered_late(self) -> bool:
        """Whether checking the conditions row by row is cheaper than by an index."""
        return (
            self.rows_with_words is None
            and CONDITION_COST * self.fitting > MAX_COST / 2
        )

    @property
    def share(self) -> float:
        """The estimated share of rows that have the words; 0 if unknown."""
        return (
            0.0
            if self.rows_with_words is None
            else self.rows_with_words / max(self.fitting, 1.0)
        )

    def percent_with(self, rows: int) -> float | None:
        """Return the percentage of a table that should have enough rows with the words.

        None if reading the lists of the sample index is cheaper than checking all rows
        there.
        """
        sample_cost = self.list_cost / SAMPLE_RATIO
        if (
            not self.rows_with_words
            or self.check_cost * rows / self.share > sample_cost
        ):
            return None
        return 100 * OVERSAMPLING * rows / self.rows_with_words


def plan_search(
    session: SearchSession,
    of: PostgresTableSql,
    terms: Sequence[Term],
    conditions: Sequence[Condition],
    *,
    begun: PrefixStats,
) -> SearchPlan:
    """Choose by the server's estimates for each word and for the conditions.

    For prefixes these cover only the most frequent words; the dictionary may have more.
    """
    where = Where(DIALECT)
    where.add(*conditions)
    queries = [
        *(query_of([term.whole]) for term in terms),
        # the last one as a prefix
        query_of(terms[-1:]),
    ]
    words = words_of(of.dataset)
    matches = [
        f"{LIVE} and {words} @@ {where.param(query)}::tsquery" for query in queries
    ]
    selects = " union all ".join(
        f"select from {of.name} where {condition}"
        for condition in (*matches, str(where))
    )
    explained = session(
        f"explain (format json) {selects}", where.given, settings=BITMAP_SETTINGS
    )
    plans = explained[0][0][0]["Plan"]["Plans"]
    *by_word, expected, fitting = (float(plan["Plan Rows"]) for plan in plans)
    with_prefix = max(expected, begun.rows)
    others = min(by_word[:-1], default=float("inf"))
    check_cost = PREFILTERED_CHECK_COST if are_plain(terms) else CHECK_COST
    # never check all rows of a table
    by_conditions = check_cost * fitting if conditions else float("inf")
    row_cost = LIST_COST if len(terms) == 1 else SKIP_COST
    by_lists, by_prefix = row_cost * min(by_word), PREFIX_COST * with_prefix
    return SearchPlan(
        whole=cheapest(
            {AccessPath.LISTS: by_lists, AccessPath.CONDITIONS: by_conditions}
        ),
        prefix=cheapest(
            {
                AccessPath.LISTS: by_prefix,
                AccessPath.FINISHED: check_cost * others,
                AccessPath.CONDITIONS: by_conditions,
            }
        ),
        check_cost=check_cost,
        list_cost=by_prefix if has_prefix(terms) else by_lists,
        fitting=fitting,
        # capped by all rows, since a row may have many words with the prefix
        rows_with_words=None if conditions else min(others, with_prefix, fitting),
        known=begun,
    )


def cheapest(costs: dict[AccessPath, float]) -> AccessPath:
    path = min(costs, key=costs.__getitem__)
    return path if costs[path] <= MAX_COST else AccessPath.NONE
