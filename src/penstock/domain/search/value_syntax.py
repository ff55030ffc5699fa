"""The syntax of values in URLs and in JSON.

Each parser accepts exactly what its pattern allows. The patterns mean the same in
Python and in ECMAScript, so that the OpenAPI document can contain them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import TypeVar

from penstock.domain.dataset import FieldType
from penstock.domain.exact_decimals import (
    MAX_FRACTION_DIGITS,
    MAX_WHOLE_DIGITS,
    parse_decimal,
)
from penstock.domain.formats import in_utc

Value = TypeVar("Value")


def patterns_below(limit: str) -> Iterator[str]:
    """Yield patterns of the numbers below a limit with the same number of digits."""
    for at, digit in enumerate(limit):
        rest = len(limit) - at - 1
        if digit != "0":
            any_digits = f"[0-9]{{{rest}}}" if rest else ""
            yield f"{limit[:at]}[0-{int(digit) - 1}]{any_digits}"


MAX_INT = str(2**63 - 1)
DIGITS = "|".join(["[0-9]{1,18}", *patterns_below(MAX_INT), MAX_INT])
# signed 64 bits
WHOLE = rf"(?:[+-]?(?:{DIGITS})|-{2**63})"
# exponents that do not overflow a double; numbers with one digit before the point, as
# programs write them, may have larger ones
EXPONENT = "[eE](?:-[0-9]{1,3}|[+]?(?:[0-9]{1,2}|1[0-9]{2}|2[0-8][0-9]))"
GREAT_EXPONENT = "[eE][+]?(?:29[0-9]|30[0-7])"
NUMBER = (
    rf"[+-]?(?:(?:[0-9]{{1,18}}(?:\.[0-9]*)?|\.[0-9]+)(?:{EXPONENT})?"
    rf"|[0-9](?:\.[0-9]*)?{GREAT_EXPONENT})"
)
# without an exponent
DECIMAL = (
    rf"[+-]?(?:[0-9]{{1,{MAX_WHOLE_DIGITS}}}(?:\.[0-9]{{0,{MAX_FRACTION_DIGITS}}})?"
    rf"|\.[0-9]{{1,{MAX_FRACTION_DIGITS}}})"
)
TRUTH = "(?:true|false)"

MONTHS_AND_DAYS = (
    "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
    "02-(?:0[1-9]|1[0-9]|2[0-8])",
)
LEAP_YEAR = (
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
)
DAY = f"(?!0000)(?:[0-9]{{4}}-(?:{'|'.join(MONTHS_AND_DAYS)})|{LEAP_YEAR}-02-29)"
HOUR = "(?:[01][0-9]|2[0-3])"
SECONDS = r":[0-5][0-9](?:\.[0-9]{1,9})?"
CLOCK = f"{HOUR}:[0-5][0-9]"
ZONE = f"(?:Z|[+-]{HOUR}:[0-5][0-9])"
# without a time it is midnight, without a zone UTC
INSTANT = f"{DAY}(?:T{CLOCK}(?:{SECONDS})?{ZONE}?)?"
# in JSON, no part is optional
WHOLE_INSTANT = f"{DAY}T{CLOCK}{SECONDS}{ZONE}"
# databases store no NUL in a text
TEXT = r"[^\x00]*"

PATTERNS: Mapping[FieldType, str] = {
    FieldType.TEXT: TEXT,
    FieldType.INT: WHOLE,
    FieldType.FLOAT: NUMBER,
    FieldType.DECIMAL: DECIMAL,
    FieldType.BOOL: TRUTH,
    FieldType.DATE: DAY,
    FieldType.TIMESTAMP: INSTANT,
}


def build_parser(
    pattern: str, parse: Callable[[str], Value]
) -> Callable[[str], Value | None]:
    """Return a parser that returns None for a text that does not match a pattern."""
    fits = re.compile(pattern).fullmatch
    return lambda text: None if fits(text) is None else parse(text)


def parse_utc(text: str) -> datetime:
    return in_utc(datetime.fromisoformat(text))


parse_int = build_parser(WHOLE, int)
number = build_parser(NUMBER, float)
decimal = build_parser(DECIMAL, parse_decimal)
truth = build_parser(TRUTH, "true".__eq__)
parse_date = build_parser(DAY, date.fromisoformat)
parse_json_timestamp = build_parser(WHOLE_INSTANT, parse_utc)
parse_url_instant = build_parser(INSTANT, parse_utc)


def instant(text: str) -> datetime | None:
    # an unescaped plus in a URL is decoded as a space
    return parse_url_instant(text.replace(" ", "+"))


# what `in` takes: comma-separated values, quoted where they contain commas
CHOICE = r'(?:"(?:[^"\x00]|"")*"|[^",\x00][^,\x00]*|)'
CHOICES = f"{CHOICE}(?:,{CHOICE})*"
ONE_CHOICE = re.compile(r'(?:^|,)("(?:[^"]|"")*"|[^,]*)')


def choices(text: str) -> list[str] | None:
    """Parse comma-separated values; None if a quote is not closed."""
    if re.fullmatch(CHOICES, text) is None:
        return None
    return [*map(unquote, ONE_CHOICE.findall(text))]


def unquote(text: str) -> str:

    return text[1:-1].replace('""', '"') if text.startswith('"') else text
