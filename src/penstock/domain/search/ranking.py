"""Score rows by how well they match a search, with the same numbers in all databases.

All found rows have all words. The score depends on where and how they have them: an
earlier field before a later one, exact before prefix before typo, and best where the
query is the whole field.
"""

from collections.abc import Iterator, Sequence

from penstock.domain.search.tokenizer import Term, is_unspaced

# a word as typed, as a prefix, or with a typo
EXACT, PREFIX, TYPO = 1.0, 0.7, 0.5
# a field that is the query
PHRASE_IS_FIELD = 1.0
# a field that starts with the query
PHRASE_STARTS_FIELD = 0.5
# a field that contains the query
PHRASE_IN_FIELD = 0.25


def field_weight(index: int) -> float:
    """Return the weight of a field by its index in `search`."""
    return 1 / (1 + index)


def pad(folded: str) -> str:
    """Return a folded text in which every word is between two spaces."""
    return f" {folded} "


def match_patterns(term: Term) -> Iterator[tuple[str, float]]:
    """Yield what to find of a word in a padded text, and its score, the best first."""
    if is_unspaced(term.word):
        yield term.word, EXACT
        return
    yield f" {term.word} ", EXACT
    if term.prefix is not None:
        yield f" {term.word}", PREFIX
    for variant in term.variants:
        yield f" {variant} ", TYPO


def score_row(terms: Sequence[Term], phrase: str, texts: Sequence[str]) -> float:
    """Score a row by its folded texts, in the order of the fields."""
    fields = [pad(text) for text in texts]
    by_words = sum(
        max(
            field_weight(index) * score_term(term, text)
            for index, text in enumerate(fields)
        )
        for term in terms
    )
    by_phrase = max(
        field_weight(index) * score_phrase(phrase, text)
        for index, text in enumerate(fields)
    )
    return by_words / len(terms) + by_phrase


def score_term(term: Term, text: str) -> float:
    return next((points for part, points in match_patterns(term) if part in text), 0.0)


def score_phrase(phrase: str, text: str) -> float:
    prefix = f" {phrase}"
    if text == pad(phrase):
        return PHRASE_IS_FIELD
    if text.startswith(prefix):
        return PHRASE_STARTS_FIELD
    return PHRASE_IN_FIELD if prefix in text else 0.0
