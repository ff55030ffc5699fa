"""Parse durations, rates, sizes and times."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from penstock.domain.budget import Limit
from penstock.domain.time_formats import format_time, format_unit
from penstock.settings.validation_errors import InvalidValue

# longer texts are refused before they are parsed
MAX_TEXT_LENGTH = 40
MAX_DURATION = timedelta(days=36_500)
MAX_SIZE = 2**40
MAX_REQUESTS = 10**9
# outside of these %Y is not four digits, or a step leaves the calendar
FIRST_YEAR, LAST_YEAR = 1000, 9000

MICROSECONDS = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
PERIODS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
}
BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}

AMOUNT = r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*"
DURATION = re.compile(f"(?:{AMOUNT})+")
RATE = re.compile(r"([0-9]+)\s*(?:/|per)\s*([0-9]+)?\s*([a-z]+)")

DURATION_FORM = "a duration such as '250ms', '60s', '5m', '1h30m' or '365d'"
RATE_FORM = "a rate such as '10/s', '600/min', '1000/h', '20000/day' or '1/2s'"
SIZE_FORM = "a size such as '64MiB', '10MB' or a number of bytes"
INSTANT_FORM = "a time with its zone, such as '2026-01-01T00:00:00Z'"

DIRECTIVES = "YymdjbBHMSfzFTsQ"


def parse_duration(value: object) -> timedelta:
    """Parse a duration of one or more amounts with their units."""
    text = read_text(value, DURATION_FORM).lower()
    if DURATION.fullmatch(text) is None:
        raise InvalidValue(f"{value!r} is not {DURATION_FORM}")
    total = Decimal(0)
    for amount, unit in re.findall(AMOUNT, text):
        if unit not in MICROSECONDS:
            raise InvalidValue(
                f"{value!r}: unknown unit {unit!r}; write {DURATION_FORM}"
            )
        total += Decimal(amount) * MICROSECONDS[unit]
    if total > MAX_DURATION // timedelta(microseconds=1):
        raise InvalidValue(f"{value!r} is longer than {MAX_DURATION.days}d")
    return timedelta(microseconds=int(total))


def parse_positive_duration(value: object) -> timedelta:
    duration = parse_duration(value)
    if not duration:
        raise InvalidValue(f"{value!r} must be longer than nothing")
    return duration


def parse_rate(value: object) -> Limit:
    """Parse a number of requests per period."""
    text = read_text(value, RATE_FORM).lower()
    found = RATE.fullmatch(text)
    if found is None or found[3] not in PERIODS:
        raise InvalidValue(f"{value!r} is not {RATE_FORM}")
    requests, count = int(found[1]), int(found[2] or 1)
    if not 1 <= requests <= MAX_REQUESTS:
        raise InvalidValue(f"{value!r} must allow 1 to {MAX_REQUESTS} requests")
    if not 1 <= count <= MAX_DURATION // PERIODS[found[3]]:
        raise InvalidValue(f"{value!r} has an impossible period; write {RATE_FORM}")
    return Limit(requests=requests, period=PERIODS[found[3]] * count)


def parse_size(value: object) -> int:
    """Parse a number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        text = read_text(value, SIZE_FORM).lower()
        found = re.fullmatch(AMOUNT, text)
        if found is None or found[2] not in BYTES:
            raise InvalidValue(f"{value!r} is not {SIZE_FORM}")
        size = int(Decimal(found[1]) * BYTES[found[2]])
    if not 1 <= size <= MAX_SIZE:
        raise InvalidValue(f"{value!r} must be between 1 byte and 1024GiB")
    return size


def parse_instant(value: object) -> datetime:
    """Parse a time with a time zone, and return it in UTC."""
    instant = value
    if isinstance(value, str):
        try:
            instant = datetime.fromisoformat(value.strip())
        except ValueError:
            raise InvalidValue(f"{value!r} is not {INSTANT_FORM}") from None
    if not isinstance(instant, datetime):
        raise InvalidValue(f"must be {INSTANT_FORM}")
    if instant.tzinfo is None:
        raise InvalidValue(
            f"{str(value)!r} does not say its zone; say the zone, e.g. Z"
        )
    if not FIRST_YEAR <= instant.year <= LAST_YEAR:
        raise InvalidValue(f"the year must lie in {FIRST_YEAR}..{LAST_YEAR}")
    return instant.astimezone(UTC)


def parse_time_format(value: object) -> str:
    """Check a strftime format: two instants of its unit must be written differently."""
    if not isinstance(value, str):
        raise InvalidValue("must be text in quotes, such as '%Y-%m-%dT%H:%M:%SZ'")
    for directive in re.findall(r"%(.?)", value, re.DOTALL):
        if not directive or directive not in DIRECTIVES:
            allowed = " ".join(f"%{item}" for item in DIRECTIVES)
            example = "such as '%Y-%m-%dT%H:%M:%SZ', or '%s' for seconds since 1970"
            raise InvalidValue(
                f"'%{directive}' cannot be used; use {allowed}, {example}"
            )
    first, unit = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC), format_unit(value)
    steps = ({"seconds": 1}, {"minutes": 1}, {"hours": 1}, {"days": 1}, {"days": 31})
    lengths = [timedelta(**item) for item in (*steps, {"days": 365})]
    for length in (unit, *(item for item in lengths if item >= unit)):
        if format_time(first, value) == format_time(first + length, value):
            raise InvalidValue(f"{value!r} writes times that are {length} apart alike")
    return value


def read_text(value: object, form: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"must be {form}, in quotes")
    text = value.strip()
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidValue(f"is not {form}")
    return text


def format_duration(duration: timedelta) -> str:
    return f"{duration.total_seconds():g}s"
