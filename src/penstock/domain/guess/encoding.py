"""Guess in which encoding bytes are written."""

import codecs
from collections.abc import Sequence

from penstock.domain.guess.guessed import Guessed

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
REPLACED = "\N{REPLACEMENT CHARACTER}"


def find_mark(beginning: bytes) -> tuple[int, str | None]:
    """Return the length of the byte order mark, and the encoding that it names."""
    for mark, encoding in MARKS:
        if beginning.startswith(mark):
            return len(mark), encoding
    return 0, None


def guess_encoding(pieces: Sequence[bytes], *, is_whole: bool) -> Guessed[str]:
    """Tell UTF-8 from the code pages of the West by how its characters are built.

    A few broken bytes among many whole characters are damage, not another encoding.
    The last character of a piece may go on behind it, unless it is whole.
    """
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
    if whole > broken:
        told = f"valid UTF-8, but for {broken:,} broken characters"
        return Guessed("utf-8", f"{told}: their rows would be bad")
    told = "no UTF-8 by its bytes; maybe another of Windows or ISO 8859"
    # five bytes mean nothing in the first, and every byte something in the second
    return Guessed("cp1252" if all(map(is_windows, pieces)) else "latin-1", told)


def is_windows(piece: bytes) -> bool:
    try:
        piece.decode("cp1252")
    except UnicodeDecodeError:
        return False
    return True
