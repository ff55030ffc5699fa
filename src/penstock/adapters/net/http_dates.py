"""Dates and waiting times in the headers of a response."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

# the longest wait that is accepted from a provider
MAX_WAIT = timedelta(days=366)


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return how long Retry-After asks to wait; None if it is missing or invalid."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.removeprefix("-").isdigit():
        # more digits are beyond any clock, and beyond int()
        seconds = int(value[:10])
        return min(timedelta(seconds=max(seconds, 0)), MAX_WAIT)
    until = parse_date(value)
    if until is None:
        return None
    # relative to the server's clock: ours may differ
    server_time = parse_date(headers.get("Date")) or now
    return min(max(until - server_time, timedelta()), MAX_WAIT)


def parse_date(text: str | None) -> datetime | None:
    """Parse an HTTP date; None if it is invalid."""
    if not text:
        return None
    try:
        instant = parsedate_to_datetime(text)
        if instant.tzinfo is None:
            return instant.replace(tzinfo=UTC)
        return instant.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
