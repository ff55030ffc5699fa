"""Dates and waiting times in the headers of a response."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

# what a provider may ask us to wait; more is not a wait
LONGEST_WAIT = timedelta(days=366)


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Read how long to wait, told in seconds or as a date; None if it is not told."""
    told = headers.get("Retry-After", "").strip()
    if told.isascii() and told.removeprefix("-").isdigit():
        # so many digits are beyond any clock, and beyond int()
        seconds = int(told[:10])
        return min(timedelta(seconds=max(seconds, 0)), LONGEST_WAIT)
    until = parse_date(told)
    if until is None:
        return None
    # their date by their clock: ours may differ
    since = parse_date(headers.get("Date")) or now
    return min(max(until - since, timedelta()), LONGEST_WAIT)


def parse_date(text: str | None) -> datetime | None:
    """Read an HTTP date; None if it is none."""
    if not text:
        return None
    try:
        instant = parsedate_to_datetime(text)
        if instant.tzinfo is None:
            return instant.replace(tzinfo=UTC)
        return instant.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
