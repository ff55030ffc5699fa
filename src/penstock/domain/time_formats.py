"""Format and parse instants by a declared format.

A format has the directives of strftime, and two that strptime does not support: `%s` is
seconds since 1970 in UTC, `%Q` milliseconds. Both may have a fraction in the input, and
may be JSON numbers where the format has nothing else.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

from penstock.domain.formats import EPOCH, MICROSECOND, in_utc, parse_instant

# returns None for a value that does not match the format
TimeReader: TypeAlias = Callable[[object], datetime | None]

SECONDS, MILLISECONDS = "%s", "%Q"
EPOCH_UNITS = {
    SECONDS: timedelta(seconds=1),
    MILLISECONDS: timedelta(milliseconds=1),
}
# directives that strftime has on some systems only, and strptime nowhere
SHORTHANDS = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S"}
DIRECTIVE = re.compile(r"(%.)", re.DOTALL)
NUMBER = r"([+-]?[0-9]{1,20}(?:\.[0-9]{1,20})?)"
WHOLE, FRACTION = r"([+-]?[0-9]{1,20})", r"(?P<fraction>[0-9]{1,6})"
# each component has a different value
PROBE = datetime(2001, 2, 13, 14, 15, 16, 171819, tzinfo=UTC)
# a day with or without a time, in numbers
DAY = re.compile(
    r"([0-9]{4}|[0-9]{1,2})([./-])([0-9]{1,2})\2([0-9]{4}|[0-9]{1,2})"
    r"([ T][0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)?"
)
FOUR_DIGITS, MONTHS = 4, 12
# a number between these is probably a time since 1970: 2001 to 2100
FIRST_SECOND, LAST_SECOND = 1_000_000_000, 4_102_444_800


def format_unit(form: str) -> timedelta:
    """Return the smallest difference that a format can express."""
    for directive, unit in (
        ("%f", MICROSECOND),
        *reversed(EPOCH_UNITS.items()),
        ("%S", timedelta(seconds=1)),
        ("%T", timedelta(seconds=1)),
        ("%M", timedelta(minutes=1)),
        ("%H", timedelta(hours=1)),
    ):
        if directive in form:
            return unit
    return timedelta(days=1)


def round_down(instant: datetime, unit: timedelta) -> datetime:
    return instant - (instant - EPOCH) % unit


def format_time(instant: datetime, form: str) -> str:
    """Format an instant in UTC.

    Epoch directives are replaced here: the C library would interpret `%s` in the zone
    of the host.
    """
    utc = instant.astimezone(UTC)
    expanded = expand_shorthands(form)
    for directive, unit in EPOCH_UNITS.items():
        count = str((utc - EPOCH) // unit)
        expanded = replace_directive(expanded, directive, count)
    return utc.strftime(expanded)


def expand_shorthands(form: str) -> str:
    for short, long in SHORTHANDS.items():
        form = replace_directive(form, short, long)
    return form


def replace_directive(form: str, directive: str, text: str) -> str:
    """Replace a directive, but not one whose percent sign is escaped."""
    parts = DIRECTIVE.split(form)
    return "".join(text if part == directive else part for part in parts)


def is_time_format(form: str) -> bool:
    """Return whether what a format writes can be parsed again."""
    try:
        return "%" in form and time_reader(form)(format_time(PROBE, form)) is not None
    except ValueError:
        # the C library rejects some formats
        return False


def time_reader(form: str | None) -> TimeReader:
    """Return a parser of one format that keeps the zone; None is ISO 8601."""
    if form is None:
        return parse_instant
    parts = DIRECTIVE.split(expand_shorthands(form))
    for directive in EPOCH_UNITS:
        if directive in parts:
            return epoch_reader(parts, directive)
    expanded = "".join(parts)

    def read(value: object) -> datetime | None:
        if not isinstance(value, str):
            return None
        try:
            return datetime.strptime(value.strip(), expanded)  # noqa: DTZ007 (as written)
        except (ValueError, re.error):
            return None

    return read


def epoch_reader(parts: list[str], directive: str) -> TimeReader:
    """Return a parser of a count since 1970, alone or among other characters."""
    unit = EPOCH_UNITS[directive]
    patterns = {directive: WHOLE if "%f" in parts else NUMBER, "%f": FRACTION}
    # the count is the whole time, so other directives are ignored
    pattern = "".join(
        patterns.get(part, ".+?" if DIRECTIVE.fullmatch(part) else re.escape(part))
        for part in parts
    )
    try:
        matches = re.compile(pattern, re.DOTALL).fullmatch
    except re.error:
        return lambda _: None
    is_alone = "".join(parts) == directive

    def read(value: object) -> datetime | None:
        try:
            if isinstance(value, str):
                found = matches(value.strip())
                return None if found is None else EPOCH + since_epoch(found, unit)
            if not is_alone or isinstance(value, bool):
                return None
            if isinstance(value, int):
                return EPOCH + value * unit
            if isinstance(value, float) and math.isfinite(value):
                return EPOCH + timedelta(seconds=value * unit.total_seconds())
        except (OverflowError, ValueError):
            # beyond the calendar: perhaps milliseconds that are parsed as seconds
            return None
        return None

    return read


def since_epoch(found: re.Match[str], unit: timedelta) -> timedelta:
    count = Decimal(found[1]) * (unit // MICROSECOND)
    fraction = found.groupdict().get("fraction") or ""
    return timedelta(microseconds=round(count) + int(fraction.ljust(6, "0")))


def any_time_reader(*forms: str) -> TimeReader:
    """Return a parser that tries these formats in order, then ISO 8601.

    Many providers take bounds in one format and write their records in another.
    """
    readers = [parse_instant if is_iso(form) else time_reader(form) for form in forms]
    first, *others = dict.fromkeys((*readers, parse_instant))

    def read(value: object) -> datetime | None:
        found = first(value)
        for fallback in others:
            if found is not None:
                break
            found = fallback(value)
        return None if found is None else in_utc(found)

    return read


def is_iso(form: str) -> bool:
    """Return whether a format writes ISO 8601, which is parsed ten times as fast."""
    probe = round_down(PROBE, format_unit(form))
    return parse_instant(format_time(probe, form)) == probe


def recognise_day(text: str) -> tuple[str, ...]:
    """Return the formats in which a text would be a date, with or without a time."""
    found = DAY.fullmatch(text.strip())
    if found is None:
        return ()
    first, sign, second, third, time = found.groups()
    time = (
        "" if not time else time[0] + ("%H:%M:%S" if time.count(":") > 1 else "%H:%M")
    )
    if len(first) == FOUR_DIGITS:
        orders = [("%Y", "%m", "%d")]
    else:
        orders = [("%d", "%m", "%Y")] if int(second) <= MONTHS else []
        orders += [("%m", "%d", "%Y")] if int(first) <= MONTHS else []
    del third
    return tuple(sign.join(order) + time for order in orders)


def recognise_epoch_format(value: object) -> str | None:
    """Return the format of a number that is probably a time since 1970."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{10,13}(\.[0-9]{1,9})?", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    for form, unit in EPOCH_UNITS.items():
        per_second = EPOCH_UNITS[SECONDS] // unit
        if FIRST_SECOND * per_second <= value < LAST_SECOND * per_second:
            return form
    return None


def hint_of(value: object) -> str:
    """Return a suggestion of the format that a rejected time seems to have."""
    form = recognise_epoch_format(value)
    if form is None and isinstance(value, str):
        days = " or ".join(f'"{day}"' for day in recognise_day(value))
        return f"; if it is a day, declare format = {days}" if days else ""
    if form is None:
        return ""
    unit = "seconds" if form == SECONDS else "milliseconds"
    return f'; if it counts {unit} since 1970, declare format = "{form}"'
