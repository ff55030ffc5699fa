"""How values are written in an address and in JSON.

What a pattern allows, its reader reads, and nothing else. The patterns mean the same in
Python and in ECMAScript, so that the OpenAPI document can show them as they are.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import TypeVar

from penstock.domain.dataset import FieldType
from penstock.domain.text import in_utc

Value = TypeVar("Value")


def below(limit: str) -> Iterator[str]:
    """Yield patterns of the numbers below a limit that have as many digits."""
    for at, digit in enumerate(limit):
        rest = len(limit) - at - 1
        if digit != "0":
            behind = f"[0-9]{{{rest}}}" if rest else ""
            yield f"{limit[:at]}[0-{int(digit) - 1}]{behind}"


LARGEST = str(2**63 - 1)
DIGITS = "|".join(["[0-9]{1,18}", *below(LARGEST), LARGEST])
# 64 bits, one of which is the sign
WHOLE = rf"(?:[+-]?(?:{DIGITS})|-{2**63})"
# with exponents by which no 64 bits overflow; numbers as programs write them have one
# digit before the point, and may have greater ones
EXPONENT = "[eE](?:-[0-9]{1,3}|[+]?(?:[0-9]{1,2}|1[0-9]{2}|2[0-8][0-9]))"
GREAT_EXPONENT = "[eE][+]?(?:29[0-9]|30[0-7])"
NUMBER = (
    rf"[+-]?(?:(?:[0-9]{{1,18}}(?:\.[0-9]*)?|\.[0-9]+)(?:{EXPONENT})?"
    rf"|[0-9](?:\.[0-9]*)?{GREAT_EXPONENT})"
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
# without a clock it is midnight, without a zone UTC
INSTANT = f"{DAY}(?:T{CLOCK}(?:{SECONDS})?{ZONE}?)?"
# in JSON, nothing of it is left to be guessed
WHOLE_INSTANT = f"{DAY}T{CLOCK}{SECONDS}{ZONE}"
# no database stores a NUL in a text
TEXT = r"[^\x00]*"

PATTERNS: Mapping[FieldType, str] = {
    FieldType.TEXT: TEXT,
    FieldType.INT: WHOLE,
    FieldType.FLOAT: NUMBER,
    FieldType.BOOL: TRUTH,
    FieldType.DATE: DAY,
    FieldType.TIMESTAMP: INSTANT,
}


def reader(pattern: str, read: Callable[[str], Value]) -> Callable[[str], Value | None]:
    """Return what reads a text that fits a pattern, and None of any other."""
    fits = re.compile(pattern).fullmatch
    return lambda text: None if fits(text) is None else read(text)


whole = reader(WHOLE, int)
number = reader(NUMBER, float)
truth = reader(TRUTH, "true".__eq__)
day = reader(DAY, date.fromisoformat)
instant_in_json = reader(
    WHOLE_INSTANT, lambda text: in_utc(datetime.fromisoformat(text))
)
instant_as_written = reader(INSTANT, lambda text: in_utc(datetime.fromisoformat(text)))


def instant(text: str) -> datetime | None:
    # a plus that was not escaped has become a space
    return instant_as_written(text.replace(" ", "+"))


# what `in` takes: values with commas between them, quoted where they hold commas
CHOICE = r'(?:"(?:[^"\x00]|"")*"|[^",\x00][^,\x00]*|)'
CHOICES = f"{CHOICE}(?:,{CHOICE})*"
ONE_CHOICE = re.compile(r'(?:^|,)("(?:[^"]|"")*"|[^,]*)')


def choices(text: str) -> list[str] | None:
    """Read values with commas between them; None where a quote is left open."""
    if re.fullmatch(CHOICES, text) is None:
        return None
    return [*map(unquoted, ONE_CHOICE.findall(text))]


def unquoted(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text
