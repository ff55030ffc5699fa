"""Read and write the few values that have one text form everywhere."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime

# names in one sentence
SHOWN = 5
# an escaped half of a character without its other half
LONE_SURROGATE = re.compile(
    rb"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)


def format_instant(instant: datetime) -> str:
    """Write an instant in UTC, with a fraction only where there is one."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_instant(value: object) -> datetime | None:
    """Read an ISO 8601 instant; one without a zone is taken as UTC."""
    if not isinstance(value, str):
        return None
    try:
        instant = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return in_utc(instant)


def in_utc(instant: datetime) -> datetime:
    """Return the same instant in UTC; one without a zone is taken as UTC."""
    if instant.tzinfo is None:
        return instant.replace(tzinfo=UTC)
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        # the first and last day of the calendar have no neighbour to shift into
        return instant.replace(tzinfo=UTC)


def key_as_text(key: Sequence[object]) -> str:
    """Write a key of one field as that, and one of several as a list."""
    if len(key) == 1:
        return key_part(key[0])
    return json.dumps(key, ensure_ascii=False, default=key_part)


def key_part(value: object) -> str:
    return format_instant(value) if isinstance(value, datetime) else str(value)


def as_number(value: object) -> float | None:
    """Read a number, also one that was sent as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def explain_bad_json(raw: bytes, message: str) -> str:
    """Say what is wrong with JSON; decoders take half of a character for its end."""
    if LONE_SURROGATE.search(raw):
        return "it holds half of a character (an unpaired surrogate such as \\ud83d)"
    return message


def shorten(value: object, limit: int = 60) -> str:
    try:
        told = repr(value)
    except (ValueError, RecursionError):
        # thousands of digits, or of levels
        told = "a value too large to be shown"
    return told if len(told) <= limit else f"{told[: limit - 1]}…"


def in_short(names: Sequence[str]) -> str:
    """Write some names, and how many others there are."""
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
