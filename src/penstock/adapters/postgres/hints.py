"""Tell cheaply that a row cannot have a word, before its text is folded to be judged.

Folding a text takes the server ten times as long as to look for the letters of a word
in it, with or without accents. A plain word stands in a text letter by letter; or after
its first letters, or instead of them, something stands that may become anything when it
is folded. Neither is a proof, but without them the text has not got the word.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from penstock.adapters.postgres.searched import text_of
from penstock.adapters.sql.selects import Where
from penstock.domain.dataset import Dataset
from penstock.domain.queries.words import Term, fold

# as folded words are whose letters all stand in a text, but for their accents
PLAIN = re.compile("[a-z0-9]{1,40}")
# fractions, letters in brackets, and other signs within which a word begins
SPLIT = (
    r"[\u00bc-\u00be\u0149\u2100-\u218f\u2460-\u24ff\u3300-\u33ff"
    r"\U0001f100-\U0001f1ff]"
)
# where letters stand that are plain ones with an accent
ACCENTED = range(0xC0, 0x250)


def hints(dataset: Dataset, terms: Sequence[Term], where: Where) -> Iterator[str]:
    """Compose what is true of all rows that have the words."""
    for term in terms:
        words = words_for(term)
        if all(map(PLAIN.fullmatch, words)):
            traces = where.mark("|".join(map(trace_of, words)))
            yield bears(text_of(dataset), traces)


def are_plain(terms: Sequence[Term]) -> bool:
    """Say whether there is a hint at each word."""
    return all(PLAIN.fullmatch(word) for term in terms for word in words_for(term))


def words_for(term: Term) -> Sequence[str]:
    finished = term.tokens if term.prefix is None else (term.prefix,)
    return [*finished, *term.variants]


def bears(text: str, trace: str) -> str:
    # of a short one the beginning need not be looked for
    short = f"case when octet_length({text}) > 10000 then left({text}, 10000)"
    return f'({short} else {text} end collate "C") ~* {trace}'


def trace_of(word: str) -> str:
    """Write what a text with a word matches."""
    known = accented()
    every = "".join(known.values())
    letters = [f"[{letter}{known.get(letter, '')}]" for letter in word]
    begun = ""
    for letter in reversed(letters):
        begun = f"(?:{letter}{begun})?"
    before, foreign = f"(?:^|[^a-z0-9{every}])", f"[^\\u0001-\\u007f{every}]"
    return f"{before}(?:{''.join(letters)}|{begun}{foreign})|{SPLIT}"


@cache
def accented() -> Mapping[str, str]:
    """Return which letters with an accent are folded to each plain one."""
    known: dict[str, str] = {}
    for each in map(chr, ACCENTED):
        # between others, as some leave a gap
        folded = fold(f"a{each}z")[1:-1]
        if PLAIN.fullmatch(folded) and len(folded) == 1:
            known[folded] = known.get(folded, "") + each
    return known
