"""Parse a token strictly, so that it cannot be read in two ways."""

import base64
import json
from typing import NoReturn

from penstock.domain.auth_claims import MAX_TOKEN_LENGTH
from penstock.errors import Unauthenticated

NOT_A_JWT = "the token is not a signed JWT"
PARTS = 3


def parse_header(token: str) -> dict[str, object]:
    """Parse the header of a token; raises `Unauthenticated` if it has none."""
    if len(token) > MAX_TOKEN_LENGTH:
        raise Unauthenticated(f"the token is longer than {MAX_TOKEN_LENGTH} characters")
    parts = token.split(".")
    if len(parts) != PARTS or not all(parts) or not token.isascii():
        raise Unauthenticated(NOT_A_JWT)
    try:
        padded = parts[0] + "=" * (-len(parts[0]) % 4)
        raw = base64.b64decode(padded, b"-_", validate=True)
    except ValueError:
        raise Unauthenticated(NOT_A_JWT) from None
    return parse_claims(raw)


def parse_claims(raw: bytes) -> dict[str, object]:
    """Parse a part of a token, which is one JSON object."""
    try:
        return parse_object(raw)
    except ValueError:
        raise Unauthenticated(NOT_A_JWT) from None


def parse_object(raw: bytes) -> dict[str, object]:
    """Parse a JSON object; raises `ValueError` if it is ambiguous.

    Of a duplicate name some parsers take the first value and some the last.
    """
    try:
        value = json.loads(
            raw.decode(), object_pairs_hook=build_object, parse_constant=refuse_constant
        )
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("is not an object")  # noqa: TRY004 (one type for all callers)
    return value


def build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("names a member twice")
    return members


def refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
