"""Encodings in which the end of a record can be found before anything is decoded."""

import codecs
from dataclasses import dataclass
from functools import cache

from penstock.errors import Misconfigured

# every byte, and what the codecs with shifts and escapes would read as one character
PROBE = bytes(range(256)) + b'~{<:Ky~}\x1b$B$"\x1b(B'
ASCII = bytes(range(128))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """How the bytes of a file become text, and how positions in both relate.

    Signs are what delimiters, quotes and newlines are looked for in: one character for
    each byte, or, in UTF-16, one for each character. Lenient decoding loses nothing:
    what cannot be read becomes surrogates, from which the same bytes come back.
    """

    name: str
    # the bytes of a code unit
    unit: int
    # each byte is a character
    is_single: bool
    lenient: str

    def signs(self, raw: bytes) -> str:
        if self.unit == 1:
            return raw.decode("latin-1")
        whole = len(raw) // self.unit * self.unit
        return raw[:whole].decode(self.name, self.lenient)

    def size_of_signs(self, signs: str) -> int:
        """Return how many bytes these signs came from."""
        if self.unit == 1:
            return len(signs)
        return len(signs.encode(self.name, self.lenient))

    def sign(self, character: str) -> str | None:
        """Return the sign of a character; None if it takes more than one."""
        try:
            signs = self.signs(character.encode(self.name))
        except UnicodeEncodeError:
            return None
        return signs if len(signs) == 1 else None

    def decode_leniently(self, raw: bytes) -> str:
        whole = len(raw) // self.unit * self.unit
        text = raw[:whole].decode(self.name, self.lenient)
        # half a character at the end of a file is not nothing; it counts as a whole one
        return text if whole == len(raw) else f"{text}\N{REPLACEMENT CHARACTER}"

    def size(self, text: str) -> int:
        """Return how many bytes a text came from that was decoded, leniently or not."""
        if self.is_single or (self.unit == 1 and text.isascii()):
            return len(text)
        return len(text.encode(self.name, self.lenient))


UTF_8 = Coding(name="utf-8", unit=1, is_single=False, lenient="surrogateescape")
UTF_16_LE = Coding(name="utf-16-le", unit=2, is_single=False, lenient="surrogatepass")
UTF_16_BE = Coding(name="utf-16-be", unit=2, is_single=False, lenient="surrogatepass")

UNICODE = {
    "utf-8": UTF_8,
    "utf-8-sig": UTF_8,
    # without a mark, the order of most machines
    "utf-16": UTF_16_LE,
    "utf-16-le": UTF_16_LE,
    "utf-16-be": UTF_16_BE,
}


@cache
def coding_of(encoding: str) -> Coding:
    """Return the coding of that name, or refuse one whose records cannot be found."""
    try:
        name = codecs.lookup(encoding).name
        known = UNICODE.get(name)
        if known is not None:
            return known
        is_single = len(PROBE.decode(name, "replace")) == len(PROBE)
        is_ascii = is_single and ASCII.decode(name) == ASCII.decode("ascii")
    except (LookupError, ValueError):
        raise Misconfigured(f"encoding {encoding!r} is not known") from None
    if not is_ascii:
        raise Misconfigured(
            f"encoding {encoding!r} is not supported",
            advice=["convert the file to UTF-8 first"],
        )
    return Coding(name=name, unit=1, is_single=True, lenient="surrogateescape")
