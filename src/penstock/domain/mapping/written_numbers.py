"""Compare numbers with the text that they were written as.

A float has 53 bits, so that many texts have the same float. Text and int fields take a
number as it was written; a float field takes it unless digits would be lost.
"""

from collections.abc import Iterable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from math import isfinite
from typing import Self

# digits that tell any two floats apart; more are not compared
FLOAT_DIGITS = 17
TO_FLOAT_DIGITS = Context(prec=FLOAT_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)
# the smallest floats have 767 digits
EXACT = Context(prec=1_000, Emax=MAX_EMAX, Emin=MIN_EMIN)
# a text of this length has so few digits that its float has them, too
SAFE_LENGTH = 15


class WrittenNumber(float):
    """A finite float with the text that it was read from."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        if not isfinite(number):
            raise ValueError("number out of range")
        number.text = str(text)
        return number


def with_exact_numbers(values: Sequence[object]) -> Sequence[object]:
    """Return values with a decimal for each float: the number that was written.

    Raises `ValueError` if a number has an exponent of more digits than decimals have.
    """
    return [to_exact(value) for value in values]


def to_exact(value: object) -> object:
    if not isinstance(value, float):
        return value
    text = value.text if isinstance(value, WrittenNumber) else repr(value)
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text[:60]} has too large an exponent") from None


def to_exact_int(text: str) -> int | None:
    """Return the integer that a number of JSON is equal to, however it is written."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        # an exponent with too many digits
        return None
    if not number:
        return 0
    return int(number) if number == number.to_integral_value() else None


def may_lose_digits(texts: Sequence[str], joined: str) -> bool:
    """Return whether some of these texts need a comparison with their floats."""
    return max(map(len, texts)) > SAFE_LENGTH or "e" in joined or "E" in joined


def any_loses_digits(texts: Iterable[str], numbers: Iterable[float]) -> bool:
    return any(map(loses_digits, texts, numbers))


def loses_digits(text: str, number: float) -> bool:
    """Return whether a float differs from its text in the digits that it can have."""
    if len(text) <= SAFE_LENGTH and "e" not in text and "E" not in text:
        return False
    # most long texts were written from a float
    return repr(number) != text and not has_digits(number, text)


def has_digits(number: float, text: str) -> bool:
    """Compare as many digits as the text has, and no more than tell floats apart."""
    try:
        written = TO_FLOAT_DIGITS.create_decimal(text).normalize(TO_FLOAT_DIGITS)
    except InvalidOperation:
        # an exponent with too many digits
        return False
    distance = EXACT.subtract(Decimal(number), written).copy_abs()
    last_digit = EXACT.scaleb(
        Decimal(1), written.adjusted() - len(written.as_tuple().digits) + 1
    )
    # half of it is a tie, which programs round up or to even
    return EXACT.add(distance, distance) <= last_digit
