"""Take a token apart so that it can be read in one way only."""

import base64
import json
from typing import NoReturn

from penstock.domain.access import LONGEST_TOKEN
from penstock.errors import Unauthenticated

NOT_A_JWT = "the token is not a signed JWT"
PARTS = 3


def header_of(token: str) -> dict[str, object]:
    """Read the header of a token; raises `Unauthenticated` if it has none."""
    if len(token) > LONGEST_TOKEN:
        raise Unauthenticated(f"the token is longer than {LONGEST_TOKEN} characters")
    parts = token.split(".")
    if len(parts) != PARTS or not all(parts) or not token.isascii():
        raise Unauthenticated(NOT_A_JWT)
    try:
        padded = parts[0] + "=" * (-len(parts[0]) % 4)
        raw = base64.b64decode(padded, b"-_", validate=True)
    except ValueError:
        raise Unauthenticated(NOT_A_JWT) from None
    return claims_of(raw)


def claims_of(raw: bytes) -> dict[str, object]:
    """Read a part of a token, which is one JSON object."""
    try:
        return read_object(raw)
    except ValueError:
        raise Unauthenticated(NOT_A_JWT) from None


def read_object(raw: bytes) -> dict[str, object]:
    """Read a JSON object; raises `ValueError` for what two readers may read twice.

    Of a name that stands there twice some take the first value and some the last.
    """
    try:
        value = json.loads(
            raw.decode(), object_pairs_hook=unambiguous, parse_constant=refuse
        )
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("is no object")  # noqa: TRY004 (one kind for all callers)
    return value


def unambiguous(pairs: list[tuple[str, object]]) -> dict[str, object]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise ValueError("names a member twice")
    return read


def refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
