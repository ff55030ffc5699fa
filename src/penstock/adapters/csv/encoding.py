"""Encodings in which the end of a record can be found before decoding."""

import codecs
from dataclasses import dataclass
from functools import cache

from penstock.errors import Misconfigured

# every byte, and sequences that codecs with shifts or escapes read as one character
PROBE = bytes(range(256)) + b'~{<:Ky~}\x1b$B$"\x1b(B'
ASCII = bytes(range(128))


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How the bytes of a file become text, and how positions in both relate.

    Delimiters, quotes and newlines are searched for in code units: one character for
    each byte, or, in UTF-16, one for each character. Lenient decoding loses nothing:
    invalid bytes become surrogates, which encode to the same bytes again.
    """

    name: str
    # the bytes of a code unit
    unit_size: int
    # each byte is a character
    is_single: bool
    lenient: str

    def code_units(self, raw: bytes) -> str:
        if self.unit_size == 1:
            return raw.decode("latin-1")
        complete = len(raw) // self.unit_size * self.unit_size
        return raw[:complete].decode(self.name, self.lenient)

    def size_of_units(self, units: str) -> int:
        """Return how many bytes these code units were read from."""
        if self.unit_size == 1:
            return len(units)
        return len(units.encode(self.name, self.lenient))

    def code_unit(self, character: str) -> str | None:
        """Return the code unit of a character; None if it takes more than one."""
        try:
            units = self.code_units(character.encode(self.name))
        except UnicodeEncodeError:
            return None
        return units if len(units) == 1 else None

    def decode_leniently(self, raw: bytes) -> str:
        complete = len(raw) // self.unit_size * self.unit_size
        text = raw[:complete].decode(self.name, self.lenient)
        # half a character at the end of a file counts as a character
        return text if complete == len(raw) else f"{text}\N{REPLACEMENT CHARACTER}"

    def size(self, text: str) -> int:
        """Return how many bytes a text was decoded from, leniently or not."""
        if self.is_single or (self.unit_size == 1 and text.isascii()):
            return len(text)
        return len(text.encode(self.name, self.lenient))


UTF_8 = Encoding(name="utf-8", unit_size=1, is_single=False, lenient="surrogateescape")
UTF_16_LE = Encoding(
    name="utf-16-le", unit_size=2, is_single=False, lenient="surrogatepass"
)
UTF_16_BE = Encoding(
    name="utf-16-be", unit_size=2, is_single=False, lenient="surrogatepass"
)

UNICODE = {
    "utf-8": UTF_8,
    "utf-8-sig": UTF_8,
    # without a byte order mark, the byte order of most machines
    "utf-16": UTF_16_LE,
    "utf-16-le": UTF_16_LE,
    "utf-16-be": UTF_16_BE,
}


@cache
def find_encoding(encoding: str) -> Encoding:
    """Return an encoding by name; refuse one in which records cannot be found."""
    try:
        name = codecs.lookup(encoding).name
        unicode = UNICODE.get(name)
        if unicode is not None:
            return unicode
        is_single = len(PROBE.decode(name, "replace")) == len(PROBE)
        is_ascii = is_single and ASCII.decode(name) == ASCII.decode("ascii")
    except (LookupError, ValueError):
        raise Misconfigured(f"encoding {encoding!r} is not known") from None
    if not is_ascii:
        raise Misconfigured(
            f"encoding {encoding!r} is not supported",
            advice=["convert the file to UTF-8 first"],
        )
    return Encoding(name=name, unit_size=1, is_single=True, lenient="surrogateescape")
