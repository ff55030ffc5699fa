"""Choose how rows with words are found: by the list of a word, or by judging some.

An index of words reads all rows of the rarest word, and all rows of all words that
begin as an unfinished one does. Where these are many, the rows that fit the conditions,
or have the other words, may be few enough to be judged one by one. Where all are many,
a sample has to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from penstock.adapters.postgres.asking import BY_WORDS, Asking
from penstock.adapters.postgres.hints import are_plain
from penstock.adapters.postgres.searched import query_of, words_of
from penstock.adapters.postgres.served import DIALECT
from penstock.adapters.postgres.tables import Table
from penstock.adapters.sql.selects import Where
from penstock.domain.queries.query import Condition
from penstock.domain.queries.words import Term

# what a row costs, in microseconds: read from the list of a word, from those of words
# with a beginning, or judged by its text, with hints or without
LISTED, BEGUN, HINTED, JUDGED = 0.15, 0.45, 4.0, 14.0
MOST_COST = 50_000


class Way(Enum):
    # by the lists of all words
    LISTS = auto()
    # by the lists of the finished words; the unfinished one is judged
    FINISHED = auto()
    # by the conditions; all words are judged
    CONDITIONS = auto()
    # not at all: it would take too long
    NONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How rows are found that have the words as typed, or as beginnings."""

    whole: Way
    begun: Way
    # of the rows that fit, those that are expected to have the words, if they fit any
    share: float


def ways_to(
    ask: Asking,
    of: Table,
    terms: Sequence[Term],
    conditions: Sequence[Condition] = (),
) -> Ways:
    """Choose by what the server expects of each word and of the conditions."""
    where = Where(DIALECT)
    where.add(*conditions)
    asked = [
        *(query_of([each.whole]) for each in terms),
        # the last one as it may go on
        query_of(terms[-1:]),
    ]
    words = words_of(of.dataset)
    wanted = [f"{words} @@ {where.mark(query)}::tsquery" for query in asked]
    parts = " union all ".join(
        f"select from {of.name} where {each}" for each in (*wanted, str(where))
    )
    plan = ask(f"explain (format json) {parts}", where.given, settings=BY_WORDS)
    rows = [float(each["Plan Rows"]) for each in plan[0][0][0]["Plan"]["Plans"]]
    *by_word, by_beginning, fitting = rows
    others = min(by_word[:-1], default=float("inf"))
    judged = HINTED if are_plain(terms) else JUDGED
    # all rows of a table are never judged
    by_conditions = judged * fitting if conditions else float("inf")
    return Ways(
        whole=cheapest(
            {Way.LISTS: LISTED * min(by_word), Way.CONDITIONS: by_conditions}
        ),
        begun=cheapest(
            {
                Way.LISTS: BEGUN * by_beginning,
                Way.FINISHED: judged * others,
                Way.CONDITIONS: by_conditions,
            }
        ),
        share=0.0 if conditions else min(others, by_beginning) / max(fitting, 1.0),
    )


def cheapest(costs: dict[Way, float]) -> Way:
    way = min(costs, key=costs.__getitem__)
    return way if costs[way] <= MOST_COST else Way.NONE
