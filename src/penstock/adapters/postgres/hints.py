"""Tell cheaply that a row cannot have a word, before its text is folded to be judged.

Folding a text takes the server ten times as long as to look for the letters of a word
in it. A plain word stands in the text as it is, whatever its case; or something that is
not plain stands after its first letters, or instead of them: an accent, a letter that
loses one, a sign between two words. Neither is a proof, but without them it has not got
the word.
"""

import re
from collections.abc import Iterator, Sequence

from penstock.adapters.postgres.searched import text_of
from penstock.adapters.sql.selects import Where
from penstock.domain.dataset import Dataset
from penstock.domain.queries.words import Term

# as folded words are whose letters all stand in a text as they are
PLAIN = re.compile("[a-z0-9]{1,40}")
BEFORE, FOREIGN = r"(?:^|[^a-z0-9])", r"[^\u0001-\u007f]"
# fractions, letters in brackets, and other signs within which a word begins
SPLIT = (
    r"[\u00bc-\u00be\u0149\u2100-\u218f\u2460-\u24ff\u3300-\u33ff\U0001f100-\U0001f1ff]"
)


def hints(dataset: Dataset, terms: Sequence[Term], where: Where) -> Iterator[str]:
    """Compose what is true of all rows that have the words."""
    for term in terms:
        words = choices(term)
        if all(map(PLAIN.fullmatch, words)):
            traces = where.mark("|".join(map(trace_of, words)))
            yield bears(text_of(dataset), traces)


def are_plain(terms: Sequence[Term]) -> bool:
    """Say whether there is a hint at each word."""
    return all(PLAIN.fullmatch(word) for term in terms for word in choices(term))


def choices(term: Term) -> Sequence[str]:
    finished = term.tokens if term.prefix is None else (term.prefix,)
    return [*finished, *term.variants]


def bears(text: str, trace: str) -> str:
    return f'lower(left({text}, 10000) collate "C") ~ {trace}'


def trace_of(word: str) -> str:
    """Write what a text with a word matches."""
    begun = ""
    for letter in reversed(word):
        begun = f"(?:{letter}{begun})?"
    return f"{BEFORE}(?:{word}|{begun}{FOREIGN})|{SPLIT}"
