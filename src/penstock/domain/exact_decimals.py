"""Numbers with all of their digits: values of fields of type decimal.

A number is what its text says: 1.10 and 1.1 are equal, and each is written as it was
read. Both databases hold every number within the limits exactly.
"""

from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation

# more digits than any quantity has, and few enough for the entry of an index
MAX_WHOLE_DIGITS = 250
MAX_FRACTION_DIGITS = 250
# rounds no number within the limits
EXACT = Context(
    prec=2 * (MAX_WHOLE_DIGITS + MAX_FRACTION_DIGITS), Emax=MAX_EMAX, Emin=MIN_EMIN
)
ZERO = Decimal()
# of numbers of any size, where they are written as others may read them
MAX_PLAIN_DIGITS = 1_000


def parse_decimal(text: str) -> Decimal | None:
    """Parse the text of a number; None if it is out of the limits."""
    try:
        return within_limits(Decimal(text))
    except InvalidOperation:
        # an exponent with too many digits
        return None


def within_limits(number: Decimal) -> Decimal | None:
    """Return a finite number without an exponent; None if it is out of the limits."""
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > MAX_FRACTION_DIGITS:
        return None
    if not number:
        # neither -0 nor 0e9 is stored by all databases
        return number.copy_abs() if exponent <= 0 else ZERO
    if number.adjusted() >= MAX_WHOLE_DIGITS:
        return None
    return number if exponent <= 0 else Decimal(write_decimal(number))


def write_decimal(number: Decimal) -> str:
    """Write a number with all of its digits, never with an exponent."""
    return format(number, "f")


def write_briefly(number: Decimal) -> str:
    """Write a number as JSON, without an exponent unless it were very long."""
    is_long = abs(number.adjusted()) > MAX_PLAIN_DIGITS
    return str(number) if is_long else write_decimal(number)


def write_decimals(column: Sequence[Decimal | None]) -> Sequence[str | None]:
    return [None if number is None else format(number, "f") for number in column]


def without_trailing_zeros(number: Decimal) -> Decimal:
    """Return the one form that equal numbers have: 1.1 for 1.10, and 100 for 100.0."""
    if number == number.to_integral_value():
        return EXACT.quantize(number, Decimal(1))
    return EXACT.normalize(number)
