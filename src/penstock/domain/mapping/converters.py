"""Compile a field into a cast: from a raw value to the stored one, or `BadValue`."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, TypeAlias

from penstock.domain.dataset import Field, FieldType
from penstock.domain.exact_decimals import (
    MAX_FRACTION_DIGITS,
    MAX_WHOLE_DIGITS,
    parse_decimal,
    within_limits,
    without_trailing_zeros,
    write_decimal,
)
from penstock.domain.formats import in_utc, is_unicode, shorten
from penstock.domain.mapping.documents import read_document, write_document
from penstock.domain.mapping.exact_values import compile_exactness
from penstock.domain.mapping.written_numbers import (
    WrittenNumber,
    loses_digits,
    to_exact_int,
)
from penstock.domain.pages import Reason
from penstock.domain.time_formats import hint_of, time_reader

Cast: TypeAlias = Callable[[object], object]
Check: TypeAlias = Callable[[Any], None]

# int() and float() accept more ("1_000", digits of other scripts)
WHOLE = re.compile(r"[+-]?[0-9]+")
DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
SMALLEST_INT, LARGEST_INT = -(2**63), 2**63 - 1
# what str() makes of floats that are no numbers
NOT_FINITE = frozenset({"inf", "-inf", "nan"})
BEYOND_DECIMALS = (
    f"beyond the {MAX_WHOLE_DIGITS} digits before the point and the "
    f"{MAX_FRACTION_DIGITS} after it that a decimal has"
)
TRUE_WORDS = frozenset({"true", "yes", "y", "t", "1"})
FALSE_WORDS = frozenset({"false", "no", "n", "f", "0"})
UNPAIRED_SURROGATE = "holds half of a character (an unpaired surrogate)"
NUL = "holds a NUL character"
# an escaped NUL, unless the backslash itself is escaped
NUL_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class JsonText(str):
    """A cell of a file that contains a JSON document, to be parsed by the cast."""

    __slots__ = ()


class BadValue(ValueError):
    """A value that its field does not allow."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class LostDigits(BadValue):
    """A number that would have other digits as a float."""

    def __init__(self, text: str, number: float) -> None:
        shown = shorten(text).strip("'")
        detail = f"{shown} would lose digits as a float; declare its field as decimal"
        super().__init__(Reason.RANGE, detail)
        self.number = number


def compile_cast(field: Field) -> Cast:
    """Build the one function that checks and converts the values of a field."""
    convert = CONVERTERS[field.type](field)
    if field.exact:
        convert = exact_converter(field, convert)
    checks = tuple(compile_checks(field))
    required, default = field.required, field.default

    def cast(value: object) -> object:
        if value is not None:
            value = convert(value)
        if value is None:
            if required:
                raise BadValue(Reason.MISSING, "is required, and missing or empty")
            return default
        for check in checks:
            check(value)
        return value

    def cast_unchecked(value: object) -> object:
        if value is not None and (converted := convert(value)) is not None:
            return converted
        return default

    return cast if checks or required else cast_unchecked


def exact_converter(field: Field, convert: Cast) -> Cast:
    """Refuse texts that cannot be written back from what would be stored."""
    is_exact = compile_exactness(field)
    # a text in JSON is a document, and no text of one
    text_type = JsonText if field.type is FieldType.JSON else str

    def convert_exactly(value: object) -> object:
        stored = convert(value)
        if stored is None or not isinstance(value, text_type):
            return stored
        if not is_exact(value.strip(), stored):
            detail = f"{shorten(value)} would be stored as {stored}; exact = true"
            raise BadValue(Reason.TYPE, f"{detail} allows no other form")
        return stored

    return convert_exactly


def compile_checks(field: Field) -> Iterable[Check]:
    """Yield only the checks that the field declares."""
    if field.min is not None or field.max is not None:
        yield range_check(field.min, field.max)
    if field.max_length is not None:
        yield length_check(field.max_length)
    if field.pattern is not None:
        yield pattern_check(field.pattern)
    if field.choices is not None:
        yield choice_check(field.choices)


def range_check(low: float | Decimal | None, high: float | Decimal | None) -> Check:
    lowest = -math.inf if low is None else low
    highest = math.inf if high is None else high

    def check(value: Any) -> None:
        if not lowest <= value <= highest:
            shown = write_decimal(value) if isinstance(value, Decimal) else repr(value)
            raise BadValue(Reason.RANGE, f"{shown} is not in {lowest:g}..{highest:g}")

    return check


def length_check(max_length: int) -> Check:
    def check(value: Any) -> None:
        if len(value) > max_length:
            detail = f"{len(value)} characters are more than {max_length}"
            raise BadValue(Reason.LENGTH, detail)

    return check


def pattern_check(pattern: str) -> Check:
    fits = re.compile(pattern).search

    def check(value: Any) -> None:
        if fits(value) is None:
            detail = f"{shorten(value)} does not match {pattern}"
            raise BadValue(Reason.PATTERN, detail)

    return check


def choice_check(choices: Sequence[object]) -> Check:
    allowed = frozenset(choices)

    def check(value: Any) -> None:
        if value not in allowed:
            listed = ", ".join(map(str, choices))
            raise BadValue(Reason.CHOICE, f"{shorten(value)} is not one of {listed}")

    return check


def wrong_type(field: Field, value: object) -> BadValue:
    names = {dict: "an object", list: "a list", bool: "a truth value"}
    shown = value.text if isinstance(value, WrittenNumber) else shorten(value)
    name = names.get(type(value), shown)
    return BadValue(Reason.TYPE, f"{name} is not of type {field.type}")


def text_converter(field: Field) -> Cast:
    trim = field.trim

    def convert(value: object) -> object:
        if isinstance(value, str):
            if "\x00" in value:
                raise BadValue(Reason.TYPE, NUL)
            # most texts are ASCII, which is cheap to check
            if not value.isascii() and not is_unicode(value):
                raise BadValue(Reason.TYPE, UNPAIRED_SURROGATE)
            return (value.strip() if trim else str(value)) or None
        if isinstance(value, WrittenNumber):
            return value.text
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type(field, value)
        try:
            return str(value)
        except ValueError:
            # more digits than Python converts to text
            raise wrong_type(field, value) from None

    return convert


def int_converter(field: Field) -> Cast:
    def convert(value: object) -> object:
        # the most frequent case first
        if type(value) is int and SMALLEST_INT <= value <= LARGEST_INT:
            return value
        if isinstance(value, str) and not value.strip():
            return None
        number = to_whole_number(value)
        if number is None:
            raise wrong_type(field, value)
        if not SMALLEST_INT <= number <= LARGEST_INT:
            raise BadValue(Reason.RANGE, f"{shorten(number)} does not fit in 64 bits")
        return number

    return convert


def to_whole_number(value: object) -> int | None:
    """Return the integer that a value is equal to, or None."""
    if isinstance(value, WrittenNumber):
        return to_exact_int(value.text)
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        text = value.strip()
        try:
            return int(text) if WHOLE.fullmatch(text) else None
        except ValueError:
            # more digits than Python parses
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def float_converter(field: Field) -> Cast:
    def convert(value: object) -> object:
        # the most frequent case first; 0.0 and -0.0 are equal, but not as bytes
        if type(value) is float and math.isfinite(value):
            return value or 0.0
        text = number_text(field, value)
        if text is None:
            return None
        number = float(text)
        if not math.isfinite(number):
            raise BadValue(Reason.RANGE, f"{shorten(value)} is not a finite number")
        if loses_digits(text, number):
            raise LostDigits(text, number)
        return number or 0.0

    return convert


def decimal_converter(field: Field) -> Cast:
    def convert(value: object) -> object:
        if isinstance(value, Decimal):
            number = within_limits(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            number = within_limits(Decimal(value))
        else:
            text = number_text(field, value)
            if text is None:
                return None
            number = None if text in NOT_FINITE else parse_decimal(text)
        if number is None:
            raise BadValue(Reason.RANGE, f"{shorten(value)} is {BEYOND_DECIMALS}")
        return without_trailing_zeros(number) if field.is_normalized else number

    return convert


def number_text(field: Field, value: object) -> str | None:
    """Return the text of a number, with a point; None if it is empty."""
    if isinstance(value, WrittenNumber):
        return value.text
    if isinstance(value, str):
        value = value.strip()
        if not value:
            return None
        text = value if field.decimal == "." else with_point(value, field.decimal)
        if DECIMAL.fullmatch(text) is None:
            raise wrong_type(field, value)
        return text
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(field, value)
    try:
        return str(value) if math.isfinite(value) else repr(float(value))
    except (ValueError, OverflowError):
        # more digits than a float, or a text of Python, can have
        raise wrong_type(field, value) from None


def with_point(text: str, point: str) -> str:
    """Replace the decimal separator of a number by a point.

    A point in the text then makes it invalid: 1.234,5 is not a number.
    """
    return text.replace(".", "?").replace(point, ".")


def bool_converter(field: Field) -> Cast:
    def convert(value: object) -> object:
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            word = value.strip().casefold()
            if not word:
                return None
            if word in TRUE_WORDS:
                return True
            if word in FALSE_WORDS:
                return False
        if isinstance(value, int) and value in {0, 1}:
            return bool(value)
        raise wrong_type(field, value)

    return convert


def date_converter(field: Field) -> Cast:
    read = time_reader(field.format)

    def read_day(value: object) -> object:
        if field.format is None:
            return parse_day(value)
        instant = read(value)
        # the date as written, whatever the zone
        return None if instant is None else instant.date()

    return time_converter(field, read_day)


def timestamp_converter(field: Field) -> Cast:
    read = time_reader(field.format)

    def read_instant(value: object) -> object:
        instant = read(value)
        return None if instant is None else in_utc(instant)

    return time_converter(field, read_instant)


def time_converter(field: Field, read: Cast) -> Cast:
    """Build a converter from a parser that returns None for invalid times."""

    def convert(value: object) -> object:
        if isinstance(value, str) and not value.strip():
            return None
        found = read(value)
        if found is None:
            bad = wrong_type(field, value)
            raise BadValue(bad.reason, f"{bad.detail}{time_hint(field, value)}")
        return found

    return convert


def parse_day(value: object) -> date | None:
    try:
        return date.fromisoformat(value.strip()) if isinstance(value, str) else None
    except ValueError:
        return None


def time_hint(field: Field, value: object) -> str:
    if field.format is None:
        return hint_of(value)
    return f" in format {field.format!r}{hint_of(value)}"


def json_converter(field: Field) -> Cast:
    def convert(value: object) -> object:
        document = value
        try:
            if isinstance(value, JsonText):
                document = read_document(value) if value.strip() else None
                if document is None:
                    return None
            text = write_document(document)
        except (TypeError, ValueError, RecursionError):
            raise wrong_type(field, value) from None
        if not is_unicode(text):
            raise BadValue(Reason.TYPE, UNPAIRED_SURROGATE)
        if NUL_IN_JSON.search(text):
            raise BadValue(Reason.TYPE, NUL)
        return text

    return convert


CONVERTERS: dict[FieldType, Callable[[Field], Cast]] = {
    FieldType.TEXT: text_converter,
    FieldType.INT: int_converter,
    FieldType.FLOAT: float_converter,
    FieldType.DECIMAL: decimal_converter,
    FieldType.BOOL: bool_converter,
    FieldType.DATE: date_converter,
    FieldType.TIMESTAMP: timestamp_converter,
    FieldType.JSON: json_converter,
}
