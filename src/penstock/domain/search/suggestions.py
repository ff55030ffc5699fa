"""Complete the last word of a text from stored rows."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from penstock.domain.search.tokenizer import (
    SearchTerms,
    Term,
    find_as_written,
    fold,
    is_unspaced,
    written_words,
)

# characters that are suggested after the typed ones in a text without spaces
MAX_UNSPACED_COMPLETION = 8
SPACES = re.compile(r"\s+")


def complete_text(words: SearchTerms, last: str) -> str:
    """Replace the last word of a typed text."""
    start, unfinished = written_words(words.text)[-1]
    # a character may fold to several words, of which only the last is replaced
    finished = [f"{word} " for word in fold(unfinished).split()[:-1]]
    before = "".join([words.text[:start].lstrip(), *finished])
    return SPACES.sub(" ", before) + last


def suggest_from_texts(
    words: SearchTerms, texts: Sequence[str], *, limit: int
) -> list[tuple[str, int]]:
    """Complete the last word from these texts, the most frequent first."""
    term = words.terms[-1]
    counted: Counter[str] = Counter()
    sources: dict[str, str] = {}
    for text in texts:
        for word in dict.fromkeys(find_completions(term, fold(text))):
            counted[word] += 1
            sources.setdefault(word, text)
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return [
        (complete_text(words, find_as_written(sources[word], word) or word), rows)
        for word, rows in ordered[:limit]
    ]


def find_completions(term: Term, folded: str) -> Iterator[str]:
    if is_unspaced(term.word):
        return find_unspaced_completions(term.word, folded.split())
    return (word for word in folded.split() if word.startswith(term.word))


def find_unspaced_completions(start: str, words: Iterable[str]) -> Iterator[str]:
    for word in words:
        at = word.find(start)
        if at >= 0 and is_unspaced(word):
            yield word[at : at + len(start) + MAX_UNSPACED_COMPLETION]
