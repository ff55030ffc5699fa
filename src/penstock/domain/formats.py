"""Format and parse instants, keys and numbers; recognise files that are not CSV."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock.domain.exact_decimals import write_decimal

# names in one message
MAX_NAMES_SHOWN = 5
# an escaped surrogate without its other half
LONE_SURROGATE = re.compile(
    rb"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)


def format_instant(instant: datetime) -> str:
    """Format an instant in UTC, with a fraction only where there is one."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_instant(value: object) -> datetime | None:
    """Parse an ISO 8601 instant; without a zone it is UTC."""
    if not isinstance(value, str):
        return None
    try:
        instant = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return in_utc(instant)


def in_utc(instant: datetime) -> datetime:
    """Return the same instant in UTC; without a zone it is UTC already."""
    if instant.tzinfo is None:
        return instant.replace(tzinfo=UTC)
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        # on the first and last day of the calendar it would be out of range
        return instant.replace(tzinfo=UTC)


def format_key(key: Sequence[object]) -> str:
    """Format a key of one field as its value, and one of several as a JSON list."""
    if len(key) == 1:
        return format_key_part(key[0])
    return json.dumps(key, ensure_ascii=False, default=format_key_part)


def format_key_part(value: object) -> str:
    if isinstance(value, Decimal):
        return write_decimal(value)
    return format_instant(value) if isinstance(value, datetime) else str(value)


def parse_number(value: object) -> float | None:
    """Parse a number, also one that is text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def is_unicode(text: str) -> bool:
    """Return whether a text can be encoded, and so stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def explain_bad_json(raw: bytes, message: str) -> str:
    """Return what is wrong with JSON; decoders misreport an unpaired surrogate."""
    if LONE_SURROGATE.search(raw):
        return "it holds half of a character (an unpaired surrogate such as \\ud83d)"
    return message


def shorten(value: object, limit: int = 60) -> str:
    try:
        text = write_decimal(value) if isinstance(value, Decimal) else repr(value)
    except (ValueError, RecursionError):
        # thousands of digits, or of levels
        text = "a value too large to be shown"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def summarize_names(names: Sequence[str]) -> str:
    """List the first names, and how many others there are."""
    more = (
        f" and {len(names) - MAX_NAMES_SHOWN:,} more"
        if len(names) > MAX_NAMES_SHOWN
        else ""
    )
    return ", ".join(names[:MAX_NAMES_SHOWN]) + more


# Instants as numbers: microseconds since 1970 in UTC; dates: their ordinal.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def time_to_number(value: Any) -> object:
    """Return a number for a time or a date, and any other value as it is."""
    if isinstance(value, datetime):
        return (value - EPOCH) // MICROSECOND
    if isinstance(value, date):
        return value.toordinal()
    return value


def times_to_numbers(column: Sequence[Any]) -> Sequence[Any]:
    """Convert a column of times or dates, at half the cost where all are times."""
    if set(map(type, column)) == {datetime}:
        return [(value - EPOCH) // MICROSECOND for value in column]
    return [*map(time_to_number, column)]


ZIP = b"PK\x03\x04"
EXCEL = ("an Excel workbook", "save the sheet as CSV UTF-8, and import that")
DECOMPRESS = "decompress it, or compress the CSV file with gzip"
# what users send instead of CSV, by its first bytes
OTHER_FORMATS = {
    ZIP: ("a ZIP archive", "import the CSV files in it, or save the sheet as CSV"),
    b"PK\x05\x06": ("an empty ZIP archive", "import a CSV file"),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": EXCEL,
    **{
        b"BZh%d1AY&SY" % level: ("compressed with bzip2", DECOMPRESS)
        for level in range(1, 10)
    },
    b"\xfd7zXZ\x00": ("compressed with xz", DECOMPRESS),
    b"\x28\xb5\x2f\xfd": ("compressed with Zstandard", DECOMPRESS),
    b"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", "import the CSV files in it"),
    b"PAR1\x15": ("a Parquet file", "export it as CSV"),
    b"%PDF-": ("a PDF document", "export its table as CSV"),
    b"SQLite format 3\x00": ("a SQLite database", "export its table as CSV"),
}
# enough to contain the names of the first files in an archive
MAX_MAGIC_BYTES = 4096


def describe_format(beginning: bytes, name: str) -> str | None:
    """Return what a file is and what to do with it, if it is known not to be CSV."""
    found = next(filter(beginning.startswith, OTHER_FORMATS), None)
    if found is None:
        return None
    is_sheet = name.lower().endswith((".xlsx", ".xlsm")) or b"xl/" in beginning
    kind, remedy = EXCEL if found == ZIP and is_sheet else OTHER_FORMATS[found]
    return f"it is {kind}, not CSV; {remedy}"
