"""Names and keys as they are written in SQL and in the ledger."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime

import msgspec


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def plain_value(value: object) -> object:
    """Write a time as text: all of one width, so that their order is that of time."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return value


# built once: json.dumps would build an encoder for every key
encode_key = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=plain_value
).encode


# what every encoder writes alike
ALIKE = frozenset({int, str, bool})


def key_text(key: Sequence[object]) -> str:
    """Write a key as it stands in events and in quarantine."""
    return encode_key(key)


def keys_text(keys: Sequence[Sequence[object]]) -> str:
    """Write keys of one table as a list, a tenth of the cost where they are plain."""
    if keys and ALIKE.issuperset(map(type, keys[0])):
        return msgspec.json.encode(keys).decode()
    return encode_key(keys)
