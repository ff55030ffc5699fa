"""Choose how rows with words are found: by the list of a word, or by judging some.

An index of words reads all rows of the rarest word, and all rows of all words that
begin as an unfinished one does. Where these are many, the rows that fit the conditions,
or have the other words, may be few enough to be judged one by one. Where all are many,
a sample has to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from penstock.adapters.postgres.asking import BY_WORDS, Asking
from penstock.adapters.postgres.hints import are_plain
from penstock.adapters.postgres.searched import (
    SAMPLED_OF,
    is_begun,
    query_of,
    words_of,
)
from penstock.adapters.postgres.served import DIALECT
from penstock.adapters.postgres.tables import LIVE, Table
from penstock.adapters.sql.selects import Where
from penstock.domain.queries.query import Condition
from penstock.domain.queries.words import Term

# what a row costs, in microseconds: read from the list of a word, or passed by in it
# for the sake of another word, read from those of words with a beginning, from that of
# a condition, or judged by its text, with hints or without
LISTED, PASSED, BEGUN, FITTED, HINTED, JUDGED = 0.5, 0.15, 0.65, 0.25, 3.5, 14.0
# what it costs in the lists of words that are known one by one: at least, and a word
AT_LEAST, A_WORD = 0.2, 0.01
# and what one costs that lies around a place, before it is looked for in the lists
AROUND = 0.3
# of more words than this, it is less work to read whatever begins so
FEW_WORDS = 16
MOST_COST = 40_000
# how many times the rows that are wanted should be among those drawn from all
DRAWN = 3


class Way(Enum):
    # by the lists of all words
    LISTS = auto()
    # by the lists of the finished words; the unfinished one is judged
    FINISHED = auto()
    # by the conditions; all words are judged
    CONDITIONS = auto()
    # not at all: it would take too long
    NONE = auto()


@dataclass(frozen=True, slots=True)
class Begun:
    """What is known of words that begin as an unfinished one does."""

    # roughly how many rows have one
    rows: float = 0.0
    # all of the words, if they are few, and surely all
    words: tuple[str, ...] = ()

    @property
    def reading(self) -> float:
        """Microseconds that it takes to read the lists of these words."""
        return (AT_LEAST + A_WORD * len(self.words)) * self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How rows are found that have the words as typed, or as beginnings."""

    whole: Way
    begun: Way
    # microseconds that it takes to judge a row, and to read the lists of all words
    judging: float
    listing: float
    # rows that are expected to fit the conditions, and, if there are none, those that
    # are expected to have the words
    fitting: float
    having: float | None
    # as what the last word may go on
    known: Begun

    def listing_around(self, rows: float) -> float:
        """Microseconds that it takes to read all lists for so many rows at a place."""
        reading = self.known.reading if self.known.words else self.listing
        return reading + AROUND * rows

    def by_words(self, terms: Sequence[Term]) -> Sequence[Term]:
        """Write the last word as all that it may be, if that is known."""
        *finished, last = terms
        return [*finished, replace(last, known=self.known.words)]

    @property
    def is_filtered_late(self) -> bool:
        """Whether the conditions are better looked at row by row than looked up."""
        return self.having is None and FITTED * self.fitting > MOST_COST / 2

    @property
    def share(self) -> float:
        """The part of all rows that is expected to have the words; 0 if unknown."""
        return 0.0 if self.having is None else self.having / max(self.fitting, 1.0)

    def percent_with(self, rows: int) -> float | None:
        """Say which part of a table should have so many rows with the words.

        None if it is less work to read the list of a sample than to judge all rows
        there.
        """
        if not self.having or self.judging * rows / self.share > self.listing_sample:
            return None
        return 100 * DRAWN * rows / self.having

    @property
    def listing_sample(self) -> float:
        return self.listing / SAMPLED_OF


def ways_to(
    ask: Asking,
    of: Table,
    terms: Sequence[Term],
    conditions: Sequence[Condition],
    *,
    begun: Begun,
) -> Ways:
    """Choose by what the server expects of each word and of the conditions.

    Of beginnings it knows only the most frequent words; we may know more.
    """
    where = Where(DIALECT)
    where.add(*conditions)
    asked = [
        *(query_of([each.whole]) for each in terms),
        # the last one as it may go on
        query_of(terms[-1:]),
    ]
    words = words_of(of.dataset)
    wanted = [f"{LIVE} and {words} @@ {where.mark(query)}::tsquery" for query in asked]
    parts = " union all ".join(
        f"select from {of.name} where {each}" for each in (*wanted, str(where))
    )
    plan = ask(f"explain (format json) {parts}", where.given, settings=BY_WORDS)
    rows = [float(each["Plan Rows"]) for each in plan[0][0][0]["Plan"]["Plans"]]
    *by_word, expected, fitting = rows
    by_beginning = max(expected, begun.rows)
    others = min(by_word[:-1], default=float("inf"))
    judging = HINTED if are_plain(terms) else JUDGED
    # all rows of a table are never judged
    by_conditions = judging * fitting if conditions else float("inf")
    listed = LISTED if len(terms) == 1 else PASSED
    by_lists, by_beginnings = listed * min(by_word), BEGUN * by_beginning
    return Ways(
        whole=cheapest({Way.LISTS: by_lists, Way.CONDITIONS: by_conditions}),
        begun=cheapest(
            {
                Way.LISTS: by_beginnings,
                Way.FINISHED: judging * others,
                Way.CONDITIONS: by_conditions,
            }
        ),
        judging=judging,
        listing=by_beginnings if is_begun(terms) else by_lists,
        fitting=fitting,
        # a row may have many words that begin so
        having=None if conditions else min(others, by_beginning, fitting),
        known=begun,
    )


def cheapest(costs: dict[Way, float]) -> Way:
    way = min(costs, key=costs.__getitem__)
    return way if costs[way] <= MOST_COST else Way.NONE
