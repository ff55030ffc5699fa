"""Dates and waiting times in the headers of a response."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from penstock.domain.budget import MAX_CLOSURE

# instead of a wait that is unreadable, or longer than any provider can mean
DEFAULT_WAIT = timedelta(hours=1)
# seconds; some providers send fractions of one
SECONDS = re.compile(r"-?[0-9]{1,10}(\.[0-9]{1,9})?", re.ASCII)
# the characters of a useless header that an error message shows
MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """How long to wait by a Retry-After."""

    wait: timedelta
    # the header itself, if it could not be honoured
    useless: str | None = None

    def __str__(self) -> str:
        if self.useless is None:
            return f"it asks to wait for {self.wait.total_seconds():g} s"
        return (
            f"its Retry-After of {self.useless!r} is unreadable or "
            "beyond 24 hours: waiting for 1 hour"
        )


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> RetryAfter | None:
    """Return how long Retry-After asks to wait; None if there is none.

    Up to a day is honoured. Waiting a day for a typing error would be worse than
    asking again after an hour.
    """
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    wait = parse_wait(text, parse_date(headers.get("Date")) or now)
    if wait is None or wait > MAX_CLOSURE:
        return RetryAfter(DEFAULT_WAIT, useless=text[:MAX_SHOWN])
    return RetryAfter(wait)


def parse_wait(text: str, server_time: datetime) -> timedelta | None:
    """Parse seconds, or a date by the server's clock, since ours may differ."""
    if SECONDS.fullmatch(text):
        return timedelta(seconds=max(math.ceil(float(text)), 0))
    until = parse_date(text)
    return None if until is None else max(until - server_time, timedelta())


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
