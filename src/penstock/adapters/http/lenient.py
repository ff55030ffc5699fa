"""Cut JSON that a strict reader refuses into its parts, without losing the others.

A single unpaired surrogate, a NaN or one overly deep record makes `msgspec` refuse a
whole page. Here the page is cut by its brackets only; each part must still be JSON to
Python's own reader, so that a broken answer never passes for data.
"""

import json
import re
from collections.abc import Iterator

# possessive, and an open string runs to the end: a hostile one must cost one pass
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
MEMBER = re.compile(rb'\s*+("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*+:', re.DOTALL)
CLOSING = {b"[": b"]", b"{": b"}"}


class WrongKind(ValueError):
    """The text is JSON, but not the kind that was asked for."""


def items(text: bytes) -> list[bytes]:
    """Return the elements of a list."""
    elements = list(parts(text.strip(), b"["))
    for element in elements:
        check(element)
    return elements


def members(text: bytes) -> dict[str, bytes]:
    """Return the members of an object; the last of two equal names counts."""
    found = {}
    for part in parts(text.strip(), b"{"):
        name = MEMBER.match(part)
        if name is None:
            raise ValueError("a member without a name")
        found[json.loads(name[1])] = part[name.end() :].strip()
    return found


def parts(text: bytes, bracket: bytes) -> Iterator[bytes]:
    """Yield what stands between the commas of the outermost brackets."""
    if text[:1] != bracket:
        raise WrongKind if text[:1] in CLOSING else ValueError("no brackets")
    closing: list[bytes] = []
    start = 1
    for token in TOKEN.finditer(text):
        sign = token[0]
        if sign in CLOSING:
            closing.append(CLOSING[sign])
        elif sign in CLOSING.values() and sign != closing.pop():
            raise ValueError("a bracket is closed by another kind")
        if not closing or (len(closing) == 1 and sign == b","):
            part = text[start : token.start()].strip()
            if part:
                yield part
            elif closing or start > 1:
                raise ValueError("a comma without a value")
            start = token.end()
        if not closing:
            break
    if closing or start != len(text):
        raise ValueError("the brackets do not close at the end")


def check(element: bytes) -> None:
    """Raise `ValueError` if an element is not JSON to a lenient reader."""
    try:
        # how many digits a number has is for the row to judge
        json.loads(element.decode(errors="replace"), parse_int=str)
    except RecursionError:
        # too deep to read, but well-formed as far as its brackets go
        return
