"""Read durations, rates, sizes and times as people write them."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from penstock.domain.budget import Limit
from penstock.domain.time_formats import format_unit, write_time
from penstock.settings.problems import Unfit

# longer texts are no unit, and must not cost time
LONGEST_TEXT = 40
LONGEST_DURATION = timedelta(days=36_500)
LARGEST_SIZE = 2**40
MOST_REQUESTS = 10**9
# outside of it %Y is not four digits, or a step leaves the calendar
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
    """Read a duration of one or more amounts with their units."""
    text = written(value, DURATION_FORM).lower()
    if DURATION.fullmatch(text) is None:
        raise Unfit(f"{value!r} is not {DURATION_FORM}")
    total = Decimal(0)
    for amount, unit in re.findall(AMOUNT, text):
        if unit not in MICROSECONDS:
            raise Unfit(f"{value!r}: unknown unit {unit!r}; write {DURATION_FORM}")
        total += Decimal(amount) * MICROSECONDS[unit]
    if total > LONGEST_DURATION // timedelta(microseconds=1):
        raise Unfit(f"{value!r} is longer than {LONGEST_DURATION.days}d")
    return timedelta(microseconds=int(total))


def parse_positive_duration(value: object) -> timedelta:
    duration = parse_duration(value)
    if not duration:
        raise Unfit(f"{value!r} must be longer than nothing")
    return duration


def parse_rate(value: object) -> Limit:
    """Read so many requests in a period."""
    text = written(value, RATE_FORM).lower()
    found = RATE.fullmatch(text)
    if found is None or found[3] not in PERIODS:
        raise Unfit(f"{value!r} is not {RATE_FORM}")
    requests, count = int(found[1]), int(found[2] or 1)
    if not 1 <= requests <= MOST_REQUESTS:
        raise Unfit(f"{value!r} must allow 1 to {MOST_REQUESTS} requests")
    if not 1 <= count <= LONGEST_DURATION // PERIODS[found[3]]:
        raise Unfit(f"{value!r} has an impossible period; write {RATE_FORM}")
    return Limit(requests=requests, period=PERIODS[found[3]] * count)


def parse_size(value: object) -> int:
    """Read a number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        text = written(value, SIZE_FORM).lower()
        found = re.fullmatch(AMOUNT, text)
        if found is None or found[2] not in BYTES:
            raise Unfit(f"{value!r} is not {SIZE_FORM}")
        size = int(Decimal(found[1]) * BYTES[found[2]])
    if not 1 <= size <= LARGEST_SIZE:
        raise Unfit(f"{value!r} must be between 1 byte and 1024GiB")
    return size


def parse_instant(value: object) -> datetime:
    """Read a time that says its zone, as UTC."""
    instant = value
    if isinstance(value, str):
        try:
            instant = datetime.fromisoformat(value.strip())
        except ValueError:
            raise Unfit(f"{value!r} is not {INSTANT_FORM}") from None
    if not isinstance(instant, datetime):
        raise Unfit(f"must be {INSTANT_FORM}")
    if instant.tzinfo is None:
        raise Unfit(f"{str(value)!r} does not say its zone; say the zone, e.g. Z")
    if not FIRST_YEAR <= instant.year <= LAST_YEAR:
        raise Unfit(f"the year must lie in {FIRST_YEAR}..{LAST_YEAR}")
    return instant.astimezone(UTC)


def parse_time_format(value: object) -> str:
    """Accept a strftime form that tells any two instants of its unit apart."""
    if not isinstance(value, str):
        raise Unfit("must be text in quotes, such as '%Y-%m-%dT%H:%M:%SZ'")
    for directive in re.findall(r"%(.?)", value, re.DOTALL):
        if not directive or directive not in DIRECTIVES:
            known = " ".join(f"%{each}" for each in DIRECTIVES)
            example = "such as '%Y-%m-%dT%H:%M:%SZ', or '%s' for seconds since 1970"
            raise Unfit(f"'%{directive}' cannot be used; use {known}, {example}")
    first, unit = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC), format_unit(value)
    steps = ({"seconds": 1}, {"minutes": 1}, {"hours": 1}, {"days": 1}, {"days": 31})
    lengths = [timedelta(**each) for each in (*steps, {"days": 365})]
    for length in (unit, *(each for each in lengths if each >= unit)):
        if write_time(first, value) == write_time(first + length, value):
            raise Unfit(f"{value!r} writes times that are {length} apart alike")
    return value


def written(value: object, form: str) -> str:
    if not isinstance(value, str):
        raise Unfit(f"must be {form}, in quotes")
    text = value.strip()
    if len(text) > LONGEST_TEXT:
        raise Unfit(f"is not {form}")
    return text


def spell_duration(duration: timedelta) -> str:
    return f"{duration.total_seconds():g}s"
