"""Guess in which encoding bytes are written.

UTF-8 is told by how its characters are built. Anything else is read in each encoding
that people use, and the one wins in which the words look most like words: of one
script, capitals first, letters that are common.
"""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.domain.guess.guessed import Guessed

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
REPLACED = "\N{REPLACEMENT CHARACTER}"
# enough to judge by, and few enough to be read in every encoding
JUDGED_BYTES = 2**16
# so plain a text is in that encoding, whatever single characters of UTF-8 it may hold
PLAIN = 0.9
# so odd a text is in none of them: it is damaged
ODD = 0.5
# how good another encoding than that of the West must be, and by how much better
LEAST, MARGIN = 0.8, 0.1
# ASCII text in UTF-16 has so large a share of zeros on one side
MOST_ZEROS = 0.3

# letters of any script and what stands beside them outside of ASCII
TOKEN = re.compile(r"[A-Za-z\x80-\U0010ffff]+")
MARKS_OF_TEXT = (
    "\u2018\u2019\u201a\u201c\u201d\u201e\u2013\u2014\u2026\u2022\u2122\u20ac"
    "\xa0\xa1\xa7\xa9\xaa\xab\xad\xae\xb0\xb2\xb3\xb4\xb5\xb7\xba\xbb\xbd\xbf\xd7"
)
APOSTROPHE = "\u2019"
WESTERN = frozenset("àáâãäåæçèéêëìíîïñòóôõöøùúûüßÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜœŒ")
CENTRAL = frozenset("ąćęłńóśźżĄĆĘŁŃÓŚŹŻáčďéěíňřšťúůýžÁČĎÉĚÍŇŘŠŤÚŮÝŽőűŐŰöüäÖÜÄßâîăşţ")
TURKISH = WESTERN - frozenset("ãõñÑÃÕ") | frozenset("ğıİşŞĞ")
CYRILLIC = frozenset(map(chr, range(0x410, 0x450))) | frozenset("ёЁіІїЇєЄўЎ")
GREEK = frozenset(map(chr, range(0x386, 0x3CF)))
HEBREW = frozenset(map(chr, range(0x5D0, 0x5EB)))
ARABIC = frozenset(map(chr, range(0x621, 0x64B)))

# what a text is worth in an encoding: how much of it counts as common, and as a whole
Worth = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Candidate:
    name: str
    # the share of a text that reads like one, from 0 to 1
    judge: Callable[[str], Worth]
    script: str


def find_mark(beginning: bytes) -> tuple[int, str | None]:
    """Return the length of the byte order mark, and the encoding that it names."""
    for mark, encoding in MARKS:
        if beginning.startswith(mark):
            return len(mark), encoding
    return 0, None


def guess_encoding(pieces: Sequence[bytes], *, is_whole: bool) -> Guessed[str]:
    """Tell UTF-8 by how its characters are built, and others by their words.

    A few broken bytes among whole characters are damage, not another encoding. The last
    character of a piece may go on behind it, unless it is whole.
    """
    wide = guess_wide(pieces[0])
    if wide is not None:
        return Guessed(wide, "every other byte is zero")
    if all(map(bytes.isascii, pieces)):
        return Guessed("utf-8", "plain ASCII so far")
    whole = broken = 0
    for piece in pieces:
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(piece, is_whole)
        # what somebody else has replaced before is whole
        lost = text.count(REPLACED) - piece.count(REPLACED.encode())
        broken += lost
        whole += len(text) - len(text.encode("ascii", "ignore")) - lost
    if not broken:
        return Guessed("utf-8", "valid UTF-8")
    best, worth = best_candidate([*map(telling_lines, pieces)])
    if whole > broken or (whole and worth < PLAIN) or worth < ODD:
        told = f"valid UTF-8, but for {broken:,} broken characters"
        doubt = (
            f"{broken:,} characters are no UTF-8: rows that hold one go to quarantine; "
            "if all of the file looks wrong, declare its encoding"
        )
        return Guessed("utf-8", f"{told}: their rows would be bad", doubt)
    if best.name == "cp1252":
        told = "no UTF-8 by its bytes; maybe another of Windows or ISO 8859"
    else:
        told = f"no UTF-8 by its bytes; its words read as {best.script}"
    doubt = (
        f"the file is not UTF-8, and encoding {best.name!r} ({best.script}) is a guess "
        "by its words: look at the letters of some rows after the import"
    )
    return Guessed(best.name, told, doubt)


def guess_wide(piece: bytes) -> str | None:
    """Tell UTF-16 without a mark by the zeros of its ASCII characters."""
    sample = piece[:JUDGED_BYTES]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    if odd > MOST_ZEROS * half and not even:
        return "utf-16-le"
    if even > MOST_ZEROS * half and not odd:
        return "utf-16-be"
    return None


def telling_lines(piece: bytes) -> bytes:
    """Return some of the lines that do not read alike in every encoding."""
    lines = [line for line in piece.splitlines() if not line.isascii()]
    return b"\n".join(lines)[:JUDGED_BYTES]


def best_candidate(pieces: Sequence[bytes]) -> tuple[Candidate, float]:
    """Return the encoding in which these bytes read most like text, and how much so."""
    west, *others = CANDIDATES
    if None in decoded(west.name, pieces):
        # five bytes mean nothing in the first, and every byte something in this one
        west = Candidate("latin-1", west.judge, west.script)
    best, highest = west, share_of(west, pieces)
    threshold = max(LEAST, highest + MARGIN)
    for candidate in others:
        share = share_of(candidate, pieces)
        if share > highest and share >= threshold:
            best, highest = candidate, share
    return best, highest


def share_of(candidate: Candidate, pieces: Sequence[bytes]) -> float:
    common = all_of_it = 0.0
    for text in decoded(candidate.name, pieces):
        if text is None:
            return 0.0
        some, total = candidate.judge(text)
        common, all_of_it = common + some, all_of_it + total
    return common / all_of_it if all_of_it else 0.0


def decoded(name: str, pieces: Sequence[bytes]) -> Iterator[str | None]:
    for piece in pieces:
        try:
            # what goes on behind the sample is not broken
            yield codecs.getincrementaldecoder(name)().decode(piece)
        except UnicodeDecodeError:
            yield None


def alphabet(common: frozenset[str], *, is_latin: bool) -> Callable[[str], Worth]:
    """Judge words of one script, in which capitals stand first or everywhere."""

    def judge(text: str) -> Worth:
        worth = total = 0.0
        for token in TOKEN.findall(text):
            strange = [each for each in token if not each.isascii()]
            if not strange:
                continue
            total += len(strange)
            word = token.strip(MARKS_OF_TEXT).replace(APOSTROPHE, "")
            letters = [each for each in word if not each.isascii()]
            has_ascii = len(letters) < len(word)
            is_mixed = has_ascii != is_latin if len(word) > 2 else has_ascii > is_latin  # noqa: PLR2004 (à, É)
            if letters and (is_mixed or not word.isalpha() or has_late_capital(word)):
                continue
            # marks alone say little
            worth += sum(0.5 + 0.5 * (each in common) for each in letters)
            worth += 0.95 * (len(strange) - len(letters))
        return worth, total

    return judge


def has_late_capital(word: str) -> bool:
    """Say whether a capital outside of ASCII follows a small letter."""
    return any(
        before.islower() and after.isupper() and not after.isascii()
        for before, after in pairwise(word)
    )


def ideographs(
    name: str, first: int, last: int, *, has_kana: bool = False
) -> Callable[[str], Worth]:
    """Judge characters by where the common ones stand: their first bytes."""

    def judge(text: str) -> Worth:
        worth = total = 0.0
        for each in text:
            if each.isascii():
                continue
            raw = each.encode(name, "replace")
            total += len(raw)
            is_kana = has_kana and "\u3040" <= each <= "\u30ff"
            is_common = len(raw) == 2 and (is_kana or first <= raw[0] <= last)  # noqa: PLR2004
            is_fullwidth = "\u3000" <= each <= "\u3020" or "\uff01" <= each <= "\uff5e"
            worth += len(raw) * (is_common or 0.9 * is_fullwidth)
        return worth, total

    return judge


# name, the first bytes of common characters, and what is written in it
WIDE = (
    ("cp932", 0x88, 0x98, "Japanese"),
    ("gb18030", 0xB0, 0xD7, "Chinese"),
    ("cp949", 0xB0, 0xC8, "Korean"),
    ("big5", 0xA4, 0xC6, "Chinese"),
    ("euc_jp", 0xB0, 0xCF, "Japanese"),
)
# no import can read them: a byte of a character may look like a delimiter
EAST_ASIAN = frozenset(name for name, *_ in WIDE)
CANDIDATES = (
    Candidate("cp1252", alphabet(WESTERN, is_latin=True), "Western European"),
    Candidate("cp1251", alphabet(CYRILLIC, is_latin=False), "Cyrillic"),
    Candidate("cp1250", alphabet(CENTRAL, is_latin=True), "Central European"),
    Candidate("cp1253", alphabet(GREEK, is_latin=False), "Greek"),
    Candidate("cp1254", alphabet(TURKISH, is_latin=True), "Turkish"),
    Candidate("koi8_r", alphabet(CYRILLIC, is_latin=False), "Cyrillic"),
    Candidate("cp866", alphabet(CYRILLIC, is_latin=False), "Cyrillic"),
    Candidate("cp1255", alphabet(HEBREW, is_latin=False), "Hebrew"),
    Candidate("cp1256", alphabet(ARABIC, is_latin=False), "Arabic"),
    *(
        Candidate(
            name, ideographs(name, first, last, has_kana=script == "Japanese"), script
        )
        for name, first, last, script in WIDE
    ),
)
