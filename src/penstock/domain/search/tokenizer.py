"""Fold and tokenize text in any script, ignoring case and accents.

The databases fold what they store, and this module folds queries, by the same rules.
PostgreSQL has them in a migration; a test verifies that both are the same.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property, lru_cache
from itertools import groupby

# characters that modify letters: accents, points, joiners, directions
MARKS = (
    "\u00ad\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u2064\u20d0-\u20ff"
    "\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\U0001f3fb-\U0001f3ff\U000e0000-\U000e01ef"
)
# characters between words; all others are part of a word
GAPS = (
    "\u0000-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00bf\u00d7\u00f7\u02b9-\u02df"
    "\u037e\u0387\u055a-\u055f\u0589-\u058f\u05be\u05c0\u05c3\u05c6\u05f3\u05f4"
    "\u0600-\u060f\u061b-\u061f\u066a-\u066d\u06d4\u0700-\u070d\u0964\u0965\u0970"
    "\u0f01-\u0f14\u0f3a-\u0f3d\u104a-\u104f\u1360-\u1368\u1680\u17d4-\u17db"
    "\u1800-\u180f\u2000-\u206f\u20a0-\u20cf\u2190-\u22ff\u2400-\u25ff\u27c0-\u2aff"
    "\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030\u303d-\u303f\u309b\u309c\u30a0\u30fb\ufd3e\ufd3f"
    "\ufffc\ufffd"
)
# scripts without spaces between words, and symbols that are words of their own
UNSPACED = (
    "\u0e01-\u0eff\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17dc-\u17ff\u1950-\u19df"
    "\u1a20-\u1aaf\u1b00-\u1b7f\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\u2e80-\u2fdf"
    "\u3005-\u3007\u3021-\u302f\u3031-\u303c\u3040-\u309a\u309d-\u309f\u30a1-\u30fa"
    "\u30fc-\u312f\u3190-\u4dbf\u4e00-\ua4cf\ua980-\ua9ff\uaa60-\uaadf\uf900-\ufaff"
    "\U0001f000-\U0001faff\U00020000-\U000323af"
)
# letters that Unicode does not decompose, but people do
LETTERS = str.maketrans(
    {
        **dict(zip("ıøłđðħŧςىیکة", "iolddhtσييكه", strict=True)),  # noqa: RUF001
        **dict(zip("٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹", "0123456789" * 2, strict=True)),
        "ß": "ss",
        "æ": "ae",
        "œ": "oe",
        "þ": "th",
    }
)

MARK = re.compile(f"[{MARKS}]+")
GAP = re.compile(f"[{GAPS}]+")
RUN = re.compile(f"([{UNSPACED}]+)")
PLAIN_GAP = re.compile(r"[^a-z0-9]+")
DIGIT = re.compile("[0-9]")
NUMBER = re.compile("[0-9]+")

# only texts that are longer can have a word that is cut
MIN_CUT_TEXT = 500
LONG_WORD = re.compile(f"([^ {UNSPACED}]{{200}})[^ {UNSPACED}]+")
# shorter words differ from too many others in one letter
MIN_TYPO_LENGTH = 5
# letters at the start of a word from which its deletion keys are made
DELETION_KEY_LETTERS = 7
# characters whose kind is cached: as many as most texts have
CACHED_KINDS = 65_536
MAX_DELETION_KEY_WORD = 40


def fold(text: str) -> str:
    """Return the folded words of a text with single spaces between them."""
    if text.isascii():
        folded = PLAIN_GAP.sub(" ", text.lower()).strip()
    else:
        bare = MARK.sub("", unicodedata.normalize("NFKD", text))
        folded = unicodedata.normalize("NFC", bare.lower().translate(LETTERS))
        folded = " ".join(RUN.sub(r" \1 ", GAP.sub(" ", folded)).split())
    # long words are cut: no query has them, and indexes limit the length of an entry
    return LONG_WORD.sub(r"\1", folded) if len(folded) > MIN_CUT_TEXT else folded


def is_unspaced(word: str) -> bool:
    """Return whether a folded word is of a script without spaces."""
    return RUN.match(word) is not None


def word_tokens(word: str) -> Sequence[str]:
    """Return the index tokens of a folded word.

    An unspaced word has its bigrams and its last character as tokens, so that any part
    of it can be found.
    """
    if not is_unspaced(word):
        return [word]
    pairs = [word[at : at + 2] for at in range(len(word) - 1)]
    return [*pairs, word[-1]]


def text_tokens(folded: str) -> Iterator[str]:
    """Yield the index tokens of a folded text."""
    for word in folded.split():
        yield from word_tokens(word)


@dataclass(frozen=True, slots=True)
class Term:
    """A folded word of a query, and the tokens that a matching row has."""

    word: str
    # all of these tokens
    tokens: tuple[str, ...]
    # or a token with this prefix
    prefix: str | None = None
    # all stored words with the prefix, if they have been looked up
    known: tuple[str, ...] = ()
    # or one of these words, which are one edit away
    variants: tuple[str, ...] = ()

    @property
    def whole(self) -> "Term":
        """The same word without prefix matches."""
        return replace(self, prefix=None, known=()) if self.tokens else self

    def is_in(self, text: Collection[str]) -> bool:
        """Return whether the tokens of a text match."""
        return (
            (bool(self.tokens) and all(token in text for token in self.tokens))
            or (self.prefix is not None and any(map(self._has_prefix, text)))
            or any(variant in text for variant in self.variants)
        )

    def _has_prefix(self, token: str) -> bool:
        return self.prefix is not None and token.startswith(self.prefix)


@dataclass(frozen=True)
class SearchTerms:
    """The words of a query."""

    # as typed
    text: str

    @cached_property
    def folded(self) -> str:
        return fold(self.text)

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The distinct words that a row must have; the last may be a prefix."""
        *words, last = self.folded.split() or [""]
        others = [word for word in dict.fromkeys(words) if word != last]
        finished = [build_term(word, is_last=False) for word in others]
        return (*finished, build_term(last, is_last=True)) if last else ()


def build_term(word: str, *, is_last: bool) -> Term:
    if not is_unspaced(word):
        return Term(word, (word,), word if is_last else None)
    if len(word) == 1:
        return Term(word, (), word)
    return Term(word, tuple(dict.fromkeys(word_tokens(word)[:-1])))


def allows_typos(word: str) -> bool:
    """Return whether a word is also searched with a typo."""
    return (
        len(word) >= MIN_TYPO_LENGTH
        and not is_unspaced(word)
        and DIGIT.search(word) is None
    )


def is_suggestible(word: str) -> bool:
    """Return whether a token is a word that can be suggested."""
    return not is_unspaced(word) and NUMBER.fullmatch(word) is None


def has_deletion_keys(word: str) -> bool:
    """Return whether a stored word can be the correction of a typo."""
    return (
        MIN_TYPO_LENGTH - 1 <= len(word) <= MAX_DELETION_KEY_WORD
        and DIGIT.search(word) is None
    )


def deletion_keys(word: str, letters: int) -> set[str]:
    """Return the deletion keys of a word for a number of letters.

    These are the start of the word, and that without each of its letters. Two words
    that are one edit apart (a letter that is wrong, missing, extra, or swapped with the
    next) have a key in common, for the same number of letters.
    """
    start = word[:DELETION_KEY_LETTERS]
    return {f"{letters}{start[:at]}{start[at + 1 :]}" for at in range(len(start) + 1)}


def near_deletion_keys(word: str) -> set[str]:
    """Return the deletion keys that words one edit away have in common with a word."""
    lengths = range(len(word) - 1, len(word) + 2)
    return {key for letters in lengths for key in deletion_keys(word, letters)}


def is_one_edit_away(one: str, other: str) -> bool:
    """Return whether two words differ by a wrong, missing, extra or swapped letter."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    start = 0
    shorter = min(len(one), len(other))
    while start < shorter and one[start] == other[start]:
        start += 1
    rest, other_rest = one[start:], other[start:]
    return (
        rest[1:] == other_rest
        or rest == other_rest[1:]
        or rest[1:] == other_rest[1:]
        or (rest[1::-1] == other_rest[:2] and rest[2:] == other_rest[2:])
    )


class TermKind(Enum):
    """The kind of a character after folding."""

    LETTER = auto()
    # of a script without spaces between words
    SIGN = auto()
    GAP = auto()
    # folds to nothing, and does not separate words
    MARK = auto()


@lru_cache(CACHED_KINDS)
def kind_of(character: str) -> TermKind:
    folded = fold(character)
    if folded:
        return TermKind.SIGN if is_unspaced(folded) else TermKind.LETTER
    bare = MARK.sub("", unicodedata.normalize("NFKD", character))
    return TermKind.GAP if bare else TermKind.MARK


def written_words(text: str) -> list[tuple[int, str]]:
    """Return the words of a text as written, with their offsets.

    A character counts as what it folds to, so that a text has the words of its folded
    form: "²" is a digit, and a wide "!" a gap. Only one that folds to several words,
    such as "¼", is not split.
    """
    kinds = [kind_of(character) for character in text]
    for at, kind in enumerate(kinds):
        if kind is TermKind.MARK:
            kinds[at] = kinds[at - 1] if at else TermKind.GAP
    runs = groupby(range(len(text)), kinds.__getitem__)
    spans = [(kind, [*offsets]) for kind, offsets in runs]
    return [
        (offsets[0], text[offsets[0] : offsets[-1] + 1])
        for kind, offsets in spans
        if kind is not TermKind.GAP
    ]


def find_as_written(text: str, word: str) -> str | None:
    """Find a folded word in a text, and return it as written there.

    A character that folds to several words, such as "¼", is written as none of them.
    """
    for _, written in written_words(text):
        if fold(written) == word:
            return written
    return None
