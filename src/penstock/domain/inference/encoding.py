"""Guess the encoding of bytes.

UTF-8 is recognised by its byte sequences. Other bytes are decoded in each common
encoding, and the one wins whose words are most plausible: of one script, capitals
first, common letters.
"""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.domain.inference.guess import Guess

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# enough to judge by, and few enough to be decoded in every encoding
JUDGED_BYTES = 2**16
# from this score on, a text is in an encoding even if it has some UTF-8 characters
CERTAIN_SCORE = 0.9
# below this score in all encodings, a text is damaged UTF-8
MIN_SCORE = 0.5
# the minimum score of encodings other than the Western one, and their margin over it
MIN_OTHER_SCORE, MARGIN = 0.8, 0.1
# the share of zero bytes on one side from which ASCII text is UTF-16
MIN_ZERO_SHARE = 0.3

# letters of any script, and adjacent characters outside of ASCII
TOKEN = re.compile(r"[A-Za-z\x80-\U0010ffff]+")
PUNCTUATION = (
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

# points of a text in an encoding, and the maximum that it could have
Score = tuple[float, float]


@dataclass(frozen=True, slots=True)
class EncodingCandidate:
    name: str
    judge: Callable[[str], Score]
    script: str


def find_byte_order_mark(beginning: bytes) -> tuple[int, str | None]:
    """Return the length of the byte order mark, and its encoding."""
    for mark, encoding in BYTE_ORDER_MARKS:
        if beginning.startswith(mark):
            return len(mark), encoding
    return 0, None


def guess_encoding(chunks: Sequence[bytes], *, is_whole: bool) -> Guess[str]:
    """Recognise UTF-8 by its byte sequences, and other encodings by their words.

    A few invalid bytes among valid characters are damage, not another encoding. The
    last character of a chunk may be truncated, unless the chunk is the whole file.
    """
    utf16 = guess_utf16(chunks[0])
    if utf16 is not None:
        return Guess(utf16, "every other byte is zero")
    if all(map(bytes.isascii, chunks)):
        return Guess("utf-8", "plain ASCII so far")
    valid = broken = 0
    for chunk in chunks:
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(chunk, is_whole)
        # replacement characters in the file itself are valid
        invalid = text.count(REPLACEMENT) - chunk.count(REPLACEMENT.encode())
        broken += invalid
        valid += len(text) - len(text.encode("ascii", "ignore")) - invalid
    if not broken:
        return Guess("utf-8", "valid UTF-8")
    best, score = best_candidate([*map(non_ascii_lines, chunks)])
    if valid > broken or (valid and score < CERTAIN_SCORE) or score < MIN_SCORE:
        reason = f"valid UTF-8, but for {broken:,} broken characters"
        doubt = (
            f"{broken:,} characters are no UTF-8: rows that hold one go to quarantine; "
            "if all of the file looks wrong, declare its encoding"
        )
        return Guess("utf-8", f"{reason}: their rows would be bad", doubt)
    if best.name == "cp1252":
        reason = "no UTF-8 by its bytes; maybe another of Windows or ISO 8859"
    else:
        reason = f"no UTF-8 by its bytes; its words read as {best.script}"
    doubt = (
        f"the file is not UTF-8, and encoding {best.name!r} ({best.script}) is a guess "
        "by its words: look at the letters of some rows after the import"
    )
    return Guess(best.name, reason, doubt)


def guess_utf16(chunk: bytes) -> str | None:
    """Recognise UTF-16 without a byte order mark by the zeros of ASCII characters."""
    sample = chunk[:JUDGED_BYTES]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    if odd > MIN_ZERO_SHARE * half and not even:
        return "utf-16-le"
    if even > MIN_ZERO_SHARE * half and not odd:
        return "utf-16-be"
    return None


def non_ascii_lines(chunk: bytes) -> bytes:
    """Return some of the lines that differ from encoding to encoding."""
    lines = [line for line in chunk.splitlines() if not line.isascii()]
    return b"\n".join(lines)[:JUDGED_BYTES]


def best_candidate(chunks: Sequence[bytes]) -> tuple[EncodingCandidate, float]:
    """Return the most plausible encoding of these bytes, and its score."""
    western, *others = CANDIDATES
    if None in decode_chunks(western.name, chunks):
        # five bytes are undefined in cp1252, and none in latin-1
        western = EncodingCandidate("latin-1", western.judge, western.script)
    best, highest = western, score_chunks(western, chunks)
    threshold = max(MIN_OTHER_SCORE, highest + MARGIN)
    for candidate in others:
        score = score_chunks(candidate, chunks)
        if score > highest and score >= threshold:
            best, highest = candidate, score
    return best, highest


def score_chunks(candidate: EncodingCandidate, chunks: Sequence[bytes]) -> float:
    """Return the score of an encoding, from 0 to 1."""
    points = maximum = 0.0
    for text in decode_chunks(candidate.name, chunks):
        if text is None:
            return 0.0
        text_points, text_maximum = candidate.judge(text)
        points, maximum = points + text_points, maximum + text_maximum
    return points / maximum if maximum else 0.0


def decode_chunks(name: str, chunks: Sequence[bytes]) -> Iterator[str | None]:
    for chunk in chunks:
        try:
            # incremental: a truncated character at the end is no error
            yield codecs.getincrementaldecoder(name)().decode(chunk)
        except UnicodeDecodeError:
            yield None


def judge_alphabet(common: frozenset[str], *, is_latin: bool) -> Callable[[str], Score]:
    """Judge words of one script, with capitals at the start or everywhere."""

    def judge(text: str) -> Score:
        points = maximum = 0.0
        for token in TOKEN.findall(text):
            non_ascii = [character for character in token if not character.isascii()]
            if not non_ascii:
                continue
            maximum += len(non_ascii)
            word = token.strip(PUNCTUATION).replace(APOSTROPHE, "")
            letters = [character for character in word if not character.isascii()]
            has_ascii = len(letters) < len(word)
            is_mixed = has_ascii != is_latin if len(word) > 2 else has_ascii > is_latin  # noqa: PLR2004 (à, É)
            if letters and (is_mixed or not word.isalpha() or has_late_capital(word)):
                continue
            points += sum(0.5 + 0.5 * (letter in common) for letter in letters)
            # punctuation is weaker evidence
            points += 0.95 * (len(non_ascii) - len(letters))
        return points, maximum

    return judge


def has_late_capital(word: str) -> bool:
    """Return whether a capital outside of ASCII follows a small letter."""
    return any(
        before.islower() and after.isupper() and not after.isascii()
        for before, after in pairwise(word)
    )


def judge_ideographs(
    name: str, first: int, last: int, *, has_kana: bool = False
) -> Callable[[str], Score]:
    """Judge characters by the range of first bytes that common ones have."""

    def judge(text: str) -> Score:
        points = maximum = 0.0
        for sign in text:
            if sign.isascii():
                continue
            raw = sign.encode(name, "replace")
            maximum += len(raw)
            is_kana = has_kana and "\u3040" <= sign <= "\u30ff"
            is_common = len(raw) == 2 and (is_kana or first <= raw[0] <= last)  # noqa: PLR2004
            is_fullwidth = "\u3000" <= sign <= "\u3020" or "\uff01" <= sign <= "\uff5e"
            points += len(raw) * (is_common or 0.9 * is_fullwidth)
        return points, maximum

    return judge


# name, range of the first bytes of common characters, and language
MULTIBYTE = (
    ("cp932", 0x88, 0x98, "Japanese"),
    ("gb18030", 0xB0, 0xD7, "Chinese"),
    ("cp949", 0xB0, 0xC8, "Korean"),
    ("big5", 0xA4, 0xC6, "Chinese"),
    ("euc_jp", 0xB0, 0xCF, "Japanese"),
)
# not supported by imports: a byte of a character may equal a delimiter
EAST_ASIAN_ENCODINGS = frozenset(name for name, *_ in MULTIBYTE)
CANDIDATES = (
    EncodingCandidate(
        "cp1252", judge_alphabet(WESTERN, is_latin=True), "Western European"
    ),
    EncodingCandidate("cp1251", judge_alphabet(CYRILLIC, is_latin=False), "Cyrillic"),
    EncodingCandidate(
        "cp1250", judge_alphabet(CENTRAL, is_latin=True), "Central European"
    ),
    EncodingCandidate("cp1253", judge_alphabet(GREEK, is_latin=False), "Greek"),
    EncodingCandidate("cp1254", judge_alphabet(TURKISH, is_latin=True), "Turkish"),
    EncodingCandidate("koi8_r", judge_alphabet(CYRILLIC, is_latin=False), "Cyrillic"),
    EncodingCandidate("cp866", judge_alphabet(CYRILLIC, is_latin=False), "Cyrillic"),
    EncodingCandidate("cp1255", judge_alphabet(HEBREW, is_latin=False), "Hebrew"),
    EncodingCandidate("cp1256", judge_alphabet(ARABIC, is_latin=False), "Arabic"),
    *(
        EncodingCandidate(
            name,
            judge_ideographs(name, first, last, has_kana=script == "Japanese"),
            script,
        )
        for name, first, last, script in MULTIBYTE
    ),
)
