"""Words as they are compared: in any script, whatever their case and accents.

The databases fold what they store, and we fold what is asked, by the same rules. Those
of PostgreSQL are written once more in its migration; a test holds both together.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property, lru_cache
from itertools import groupby

# what changes a letter without being one: accents, points, joiners, directions
MARKS = (
    "\u00ad\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u2064\u20d0-\u20ff"
    "\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\U0001f3fb-\U0001f3ff\U000e0000-\U000e01ef"
)
# what stands between words; whatever is not named here is part of one
GAPS = (
    "\u0000-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00bf\u00d7\u00f7\u02b9-\u02df"
    "\u037e\u0387\u055a-\u055f\u0589-\u058f\u05be\u05c0\u05c3\u05c6\u05f3\u05f4"
    "\u0600-\u060f\u061b-\u061f\u066a-\u066d\u06d4\u0700-\u070d\u0964\u0965\u0970"
    "\u0f01-\u0f14\u0f3a-\u0f3d\u104a-\u104f\u1360-\u1368\u1680\u17d4-\u17db"
    "\u1800-\u180f\u2000-\u206f\u20a0-\u20cf\u2190-\u22ff\u2400-\u25ff\u27c0-\u2aff"
    "\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030\u303d-\u303f\u309b\u309c\u30a0\u30fb\ufd3e\ufd3f"
    "\ufffc\ufffd"
)
# scripts that put no space between words, and signs that are words of their own
UNSPACED = (
    "\u0e01-\u0eff\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17dc-\u17ff\u1950-\u19df"
    "\u1a20-\u1aaf\u1b00-\u1b7f\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\u2e80-\u2fdf"
    "\u3005-\u3007\u3021-\u302f\u3031-\u303c\u3040-\u309a\u309d-\u309f\u30a1-\u30fa"
    "\u30fc-\u312f\u3190-\u4dbf\u4e00-\ua4cf\ua980-\ua9ff\uaa60-\uaadf\uf900-\ufaff"
    "\U0001f000-\U0001faff\U00020000-\U000323af"
)
# letters that Unicode does not take apart, but people do
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

LONG_TEXT = 500
LONG = re.compile(f"([^ {UNSPACED}]{{200}})[^ {UNSPACED}]+")
# shorter words differ from too many others in one letter
SHORTEST_FORGIVEN = 5
# letters of a word by which its neighbours are found
SHAPED = 7
# characters whose kind is cached: as many as most texts of the world have
CACHED_KINDS = 65_536
LONGEST_SHAPED = 40


def fold(text: str) -> str:
    """Return the words of a text with single spaces between them."""
    if text.isascii():
        folded = PLAIN_GAP.sub(" ", text.lower()).strip()
    else:
        bare = MARK.sub("", unicodedata.normalize("NFKD", text))
        folded = unicodedata.normalize("NFC", bare.lower().translate(LETTERS))
        folded = " ".join(RUN.sub(r" \1 ", GAP.sub(" ", folded)).split())
    # nobody types more of one word, and no index takes what has no end
    return LONG.sub(r"\1", folded) if len(folded) > LONG_TEXT else folded


def is_unspaced(word: str) -> bool:
    """Say whether a folded word is a run of signs that no space divides."""
    return RUN.match(word) is not None


def tokens(word: str) -> Sequence[str]:
    """Return under what a folded word of a text is found.

    A run without spaces is found by each two signs that follow each other, and its
    last sign alone, so that any part of it can be looked for.
    """
    if not is_unspaced(word):
        return [word]
    pairs = [word[at : at + 2] for at in range(len(word) - 1)]
    return [*pairs, word[-1]]


def text_tokens(folded: str) -> Iterator[str]:
    """Yield under what a folded text is found."""
    for word in folded.split():
        yield from tokens(word)


@dataclass(frozen=True, slots=True)
class Term:
    """A folded word that was asked for, and what has to be there for it."""

    word: str
    # all of them
    tokens: tuple[str, ...]
    # or one that begins so
    prefix: str | None = None
    # all of these that there are, if they are known
    known: tuple[str, ...] = ()
    # or one of these words instead, which are a letter away
    variants: tuple[str, ...] = ()

    @property
    def whole(self) -> "Term":
        """The same word, finished as it stands."""
        return replace(self, prefix=None, known=()) if self.tokens else self

    def is_in(self, text: Collection[str]) -> bool:
        """Say whether the tokens of a text are those that it wants."""
        return (
            (bool(self.tokens) and all(each in text for each in self.tokens))
            or (self.prefix is not None and any(map(self._begins, text)))
            or any(each in text for each in self.variants)
        )

    def _begins(self, token: str) -> bool:
        return self.prefix is not None and token.startswith(self.prefix)


@dataclass(frozen=True)
class Words:
    """What was asked for in words."""

    # as it was typed
    text: str

    @cached_property
    def folded(self) -> str:
        return fold(self.text)

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The words that a row must have, each once; the last may be unfinished."""
        *words, last = self.folded.split() or [""]
        others = [word for word in dict.fromkeys(words) if word != last]
        finished = [term(word, is_last=False) for word in others]
        return (*finished, term(last, is_last=True)) if last else ()


def term(word: str, *, is_last: bool) -> Term:
    if not is_unspaced(word):
        return Term(word, (word,), word if is_last else None)
    if len(word) == 1:
        return Term(word, (), word)
    return Term(word, tuple(dict.fromkeys(tokens(word)[:-1])))


def is_forgiven(word: str) -> bool:
    """Say whether a word may be looked for with a letter more, less or other."""
    return (
        len(word) >= SHORTEST_FORGIVEN
        and not is_unspaced(word)
        and DIGIT.search(word) is None
    )


def is_known(word: str) -> bool:
    """Say whether a token belongs to the words that are suggested."""
    return not is_unspaced(word) and NUMBER.fullmatch(word) is None


def is_shaped(word: str) -> bool:
    """Say whether a known word may be what somebody meant who mistyped it."""
    return (
        SHORTEST_FORGIVEN - 1 <= len(word) <= LONGEST_SHAPED
        and DIGIT.search(word) is None
    )


def shapes(word: str, letters: int) -> set[str]:
    """Return what a word of so many letters has in common with those next to it.

    These are its beginning, and that without each of its letters. Two words of which
    one comes from the other by one letter that is wrong, missing, too many, or swapped
    with its neighbour, have one of them in common, if the letters are counted alike.
    """
    start = word[:SHAPED]
    return {f"{letters}{start[:at]}{start[at + 1 :]}" for at in range(len(start) + 1)}


def near_shapes(word: str) -> set[str]:
    """Return the shapes of which words next to this one have some."""
    lengths = range(len(word) - 1, len(word) + 2)
    return {shape for letters in lengths for shape in shapes(word, letters)}


def is_one_edit_away(one: str, other: str) -> bool:
    """Say whether a letter that is wrong, missing, too many or swapped divides two."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    start = 0
    shortest = min(len(one), len(other))
    while start < shortest and one[start] == other[start]:
        start += 1
    mine, theirs = one[start:], other[start:]
    return (
        mine[1:] == theirs
        or mine == theirs[1:]
        or mine[1:] == theirs[1:]
        or (mine[1::-1] == theirs[:2] and mine[2:] == theirs[2:])
    )


class Kind(Enum):
    """What a character of a text is once the text is folded."""

    LETTER = auto()
    # of a script that puts no space between words
    SIGN = auto()
    GAP = auto()
    # leaves nothing, and divides nothing
    MARK = auto()


@lru_cache(CACHED_KINDS)
def kind_of(character: str) -> Kind:
    folded = fold(character)
    if folded:
        return Kind.SIGN if is_unspaced(folded) else Kind.LETTER
    bare = MARK.sub("", unicodedata.normalize("NFKD", character))
    return Kind.GAP if bare else Kind.MARK


def written_words(text: str) -> list[tuple[int, str]]:
    """Return the words of a text as they are written, and where each begins.

    A character is judged by what it is folded to, so that a text has the words that
    its folded form has: "²" is a digit, and a wide "!" a gap. Only one that is folded
    to several words, such as "¼", stays in one piece.
    """
    kinds = [kind_of(each) for each in text]
    for at, kind in enumerate(kinds):
        if kind is Kind.MARK:
            kinds[at] = kinds[at - 1] if at else Kind.GAP
    runs = groupby(range(len(text)), kinds.__getitem__)
    found = [(kind, [*places]) for kind, places in runs]
    return [
        (places[0], text[places[0] : places[-1] + 1])
        for kind, places in found
        if kind is not Kind.GAP
    ]


def as_written(text: str, word: str) -> str | None:
    """Find a folded word in a text, and return it as it stands there."""
    for _, written in written_words(text):
        if word in fold(written).split():
            return written
    return None
