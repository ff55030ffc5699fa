"""Encode names and keys for SQL and for the ledger."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime

import msgspec


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def plain_value(value: object) -> object:
    """Write a time as text of fixed width, so that text order is time order."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return value


# built once: json.dumps would build an encoder for each key
encode_key = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=plain_value
).encode


# types that every JSON encoder writes the same way
PLAIN_TYPES = frozenset({int, str, bool})


def encode_key_text(key: Sequence[object]) -> str:
    """Encode a key as in change events and in quarantine."""
    return encode_key(key)


def encode_keys_text(keys: Sequence[Sequence[object]]) -> str:
    """Encode keys of one table as a list, ten times faster where they are plain."""
    if keys and PLAIN_TYPES.issuperset(map(type, keys[0])):
        return msgspec.json.encode(keys).decode()
    return encode_key(keys)
