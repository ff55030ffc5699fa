"""Complete what somebody types, from rows that have it already."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from penstock.domain.queries.words import (
    Term,
    Words,
    as_written,
    fold,
    is_unspaced,
    written_words,
)

# signs that are told of a run without spaces behind those that were typed
MORE_SIGNS = 8
SPACES = re.compile(r"\s+")


def completed(words: Words, last: str) -> str:
    """Return what was typed, with another last word."""
    start, unfinished = written_words(words.text)[-1]
    # a character may be folded to several words, of which only the last is replaced
    finished = [f"{word} " for word in fold(unfinished).split()[:-1]]
    before = "".join([words.text[:start].lstrip(), *finished])
    return SPACES.sub(" ", before) + last


def from_texts(
    words: Words, texts: Sequence[str], *, limit: int
) -> list[tuple[str, int]]:
    """Complete the last word by what stands in these texts, the frequent first."""
    term = words.terms[-1]
    counted: Counter[str] = Counter()
    seen: dict[str, str] = {}
    for text in texts:
        for found in dict.fromkeys(continuations(term, fold(text))):
            counted[found] += 1
            seen.setdefault(found, text)
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return [
        (completed(words, as_written(seen[found], found) or found), rows)
        for found, rows in ordered[:limit]
    ]


def continuations(term: Term, folded: str) -> Iterator[str]:
    if is_unspaced(term.word):
        return runs_from(term.word, folded.split())
    return (word for word in folded.split() if word.startswith(term.word))


def runs_from(start: str, words: Iterable[str]) -> Iterator[str]:
    for word in words:
        at = word.find(start)
        if at >= 0 and is_unspaced(word):
            yield word[at : at + len(start) + MORE_SIGNS]
