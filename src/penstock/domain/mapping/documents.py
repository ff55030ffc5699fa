"""Read and write JSON documents whose numbers have the digits they were written with.

A document is stored without spaces and with the names of its objects in order; its
strings are stored with no more escapes than they need, and its numbers as they stand.
"""

import json
import marshal
from json.encoder import encode_basestring as write_string
from typing import Any

from penstock.domain.mapping.written_numbers import WrittenNumber

# of all but numbers with a point or an exponent, which it writes as floats
write_plain = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; readers disagree on which of two values of a name counts."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a name twice")
    return members


# raises ValueError on what is no JSON, and on numbers beyond all floats
read_document = json.JSONDecoder(
    parse_float=WrittenNumber, object_pairs_hook=unique_names
).decode


def write_document(document: Any) -> str:
    """Write a document in the form in which it is stored.

    Raises `TypeError`, `ValueError` or `RecursionError` on what is no JSON.
    """
    try:
        # fails on subclasses of float, in a tenth of the time of a search for them
        marshal.dumps(document)
    except ValueError:
        return write_exactly(document)
    return write_plain(document)


def write_spaced(document: object) -> str:
    """Write a document as most programs do: with spaces after its signs."""
    return write_exactly(document, between=", ", after=": ")


def write_exactly(value: object, *, between: str = ",", after: str = ":") -> str:
    # loops, because comprehensions would halve the depth that can be written
    parts: list[str] = []
    match value:
        case WrittenNumber():
            return value.text
        case dict():
            for name in sorted(value):
                text = write_exactly(value[name], between=between, after=after)
                parts.append(f"{write_name(name)}{after}{text}")
            return f"{{{between.join(parts)}}}"
        case list() | tuple():
            for item in value:
                parts.append(write_exactly(item, between=between, after=after))  # noqa: PERF401
            return f"[{between.join(parts)}]"
        case _:
            return write_plain(value)


def write_name(name: object) -> str:
    """Write a name, which may be a number in what a transform returns."""
    if isinstance(name, str):
        return write_string(name)
    return write_plain({name: None})[1:].removesuffix(":null}")
