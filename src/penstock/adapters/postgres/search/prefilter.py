"""Exclude rows that cannot have a word by a regular expression, before folding.

Folding a text takes the server ten times as long as matching the letters of a word,
with or without accents. A plain word is in a text letter by letter, or its first
letters are followed or replaced by a character that may be folded to anything. A match
proves nothing, but a text that does not match does not have the word.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from penstock.adapters.postgres.search.sql import text_of
from penstock.adapters.sqlstore.where_builder import Where
from penstock.domain.dataset import Dataset
from penstock.domain.search.tokenizer import Term, fold

# folded words whose letters are all in the text, except for accents
PLAIN = re.compile("[a-z0-9]{1,40}")
# fractions, letters in brackets, and other characters that contain the start of a word
COMPOUND = (
    r"[\u00bc-\u00be\u0149\u2100-\u218f\u2460-\u24ff\u3300-\u33ff"
    r"\U0001f100-\U0001f1ff]"
)
# the code points of accented Latin letters
ACCENTED = range(0xC0, 0x250)


def prefilters(dataset: Dataset, terms: Sequence[Term], where: Where) -> Iterator[str]:
    """Yield conditions that hold for all rows with the words."""
    for term in terms:
        words = words_for(term)
        if all(map(PLAIN.fullmatch, words)):
            pattern = where.param("|".join(map(word_pattern, words)))
            yield matches_pattern(text_of(dataset), pattern)


def are_plain(terms: Sequence[Term]) -> bool:
    """Return whether there is a prefilter for each word."""
    return all(PLAIN.fullmatch(word) for term in terms for word in words_for(term))


def words_for(term: Term) -> Sequence[str]:
    finished = term.tokens if term.prefix is None else (term.prefix,)
    return [*finished, *term.variants]


def matches_pattern(text: str, pattern: str) -> str:
    # a short text is not copied
    start = f"case when octet_length({text}) > 10000 then left({text}, 10000)"
    return f'({start} else {text} end collate "C") ~* {pattern}'


def word_pattern(word: str) -> str:
    """Return the regular expression that a text with the word matches."""
    accents = accented()
    every = "".join(accents.values())
    letters = [f"[{letter}{accents.get(letter, '')}]" for letter in word]
    prefix = ""
    for letter in reversed(letters):
        prefix = f"(?:{letter}{prefix})?"
    before, foreign = f"(?:^|[^a-z0-9{every}])", f"[^\\u0001-\\u007f{every}]"
    return f"{before}(?:{''.join(letters)}|{prefix}{foreign})|{COMPOUND}"


@cache
def accented() -> Mapping[str, str]:
    """Return the accented letters that are folded to each plain one."""
    accents: dict[str, str] = {}
    for letter in map(chr, ACCENTED):
        # between others, since some are folded to a space
        folded = fold(f"a{letter}z")[1:-1]
        if PLAIN.fullmatch(folded) and len(folded) == 1:
            accents[folded] = accents.get(folded, "") + letter
    return accents
