"""Rank rows by how well they fit what was asked, by numbers that all databases share.

All rows of an answer have all words, so what tells them apart is where they have them
and how: in an earlier field before a later one, whole before begun before forgiven,
and best as the whole of a field.
"""

from collections.abc import Iterator, Sequence

from penstock.domain.queries.words import Term, is_unspaced

# a word that is there as it was typed, as a beginning, with another letter
WHOLE, BEGUN, FORGIVEN = 1.0, 0.7, 0.5
# a field that is what was typed, begins with it, or has it somewhere in a row
SAME, FIRST, TOGETHER = 1.0, 0.5, 0.25


def weight(place: int) -> float:
    """Return what a field counts, by its place in `search`."""
    return 1 / (1 + place)


def padded(folded: str) -> str:
    """Return a folded text in which every word stands between two spaces."""
    return f" {folded} "


def signs(term: Term) -> Iterator[tuple[str, float]]:
    """Yield what a padded text may hold of a word, and its worth, the best first."""
    if is_unspaced(term.word):
        yield term.word, WHOLE
        return
    yield f" {term.word} ", WHOLE
    if term.prefix is not None:
        yield f" {term.word}", BEGUN
    for variant in term.variants:
        yield f" {variant} ", FORGIVEN


def score(terms: Sequence[Term], asked: str, texts: Sequence[str]) -> float:
    """Rate a row by its folded texts, in the order of the fields."""
    fields = [padded(text) for text in texts]
    found = sum(
        max(weight(place) * worth_of(term, text) for place, text in enumerate(fields))
        for term in terms
    )
    phrase = max(
        weight(place) * worth_of_phrase(asked, text)
        for place, text in enumerate(fields)
    )
    return found / len(terms) + phrase


def worth_of(term: Term, text: str) -> float:
    return next((worth for sign, worth in signs(term) if sign in text), 0.0)


def worth_of_phrase(asked: str, text: str) -> float:
    begun = f" {asked}"
    if text == padded(asked):
        return SAME
    if text.startswith(begun):
        return FIRST
    return TOGETHER if begun in text else 0.0
