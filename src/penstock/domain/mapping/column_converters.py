"""Cast a whole column at once, where its values are of the usual form.

Loops over single values are the main cost of a page. So each column is first converted
as a whole, by functions that loop in C; columns with other values are cast value by
value, with the same result.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any, TypeAlias

from penstock.domain.dataset import Field, FieldType
from penstock.domain.exact_decimals import MAX_FRACTION_DIGITS, MAX_WHOLE_DIGITS
from penstock.domain.formats import is_unicode
from penstock.domain.mapping.converters import (
    LARGEST_INT,
    SMALLEST_INT,
    BadValue,
    Cast,
    compile_cast,
)
from penstock.domain.mapping.exact_values import compile_exactness
from penstock.domain.mapping.written_numbers import (
    WrittenNumber,
    any_loses_digits,
    may_lose_digits,
)

Column: TypeAlias = Sequence[Any]
# returns the cast values, and the indexes of bad ones
ColumnCast: TypeAlias = Callable[[Column], tuple[Column, Sequence[int]]]
# returns the converted values, or None if they must be cast one by one
BulkConverter: TypeAlias = Callable[[Column], Column | None]
Test: TypeAlias = Callable[[Column], bool]

# of these characters only, a text that float() accepts is a valid number
PLAIN_DECIMALS = re.compile(r"[0-9.eE+-]*")
# of these characters only, a text that Decimal() accepts has no exponent and no sign
UNSIGNED_DECIMALS = re.compile(r"[0-9.]*")
# shorter ones are within the limits
MAX_SAFE_LENGTH = min(MAX_WHOLE_DIGITS, MAX_FRACTION_DIGITS)
# numbers with no more digits fit into 64 bits
MAX_SAFE_DIGITS = 18


def compile_column(field: Field) -> ColumnCast:
    """Build the function that casts a column.

    It returns None for bad values, and their indexes.
    """
    cast = compile_cast(field)
    compile_bulk = BULK_CONVERTERS.get(field.type)
    if compile_bulk is None or field.format is not None:
        return lambda column: cast_each(column, cast)
    convert = compile_bulk(field)
    if field.exact:
        convert = exact_bulk_converter(field, convert)
    return ColumnConverter(field, cast, convert)


def exact_bulk_converter(field: Field, convert: BulkConverter) -> BulkConverter:
    """Refuse a column that has texts which cannot be written back."""
    is_exact = compile_exactness(field)

    def convert_exactly(column: Column) -> Column | None:
        converted = convert(column)
        if converted is None or not is_all(column, str):
            return converted
        exact = map(is_exact, map(str.strip, column), converted)
        return converted if all(exact) else None

    return convert_exactly


def cast_each(column: Column, cast: Cast) -> tuple[Column, Sequence[int]]:
    """Cast value by value."""
    converted: list[object] = []
    bad: list[int] = []
    for index, value in enumerate(column):
        try:
            converted.append(cast(value))
        except BadValue:
            converted.append(None)
            bad.append(index)
    return converted, bad


class ColumnConverter:
    def __init__(self, field: Field, cast: Cast, convert: BulkConverter) -> None:
        self._cast = cast
        self._convert = convert
        self._tests = tuple(compile_tests(field))
        self._required = field.required
        self._default = field.default

    def __call__(self, column: Column) -> tuple[Column, Sequence[int]]:
        converted = self._try(column)
        return cast_each(column, self._cast) if converted is None else (converted, ())

    def _try(self, column: Column) -> Column | None:
        converted = self._try_present(column)
        # most columns have no missing values, and need no search for them
        if converted is not None or self._required or None not in column:
            return converted
        converted = self._try_present([value for value in column if value is not None])
        if converted is None:
            return None
        present = iter(converted)
        default = self._default
        return [default if value is None else next(present) for value in column]

    def _try_present(self, column: Column) -> Column | None:
        if not column:
            return column
        converted = self._convert(column)
        if converted is None or not all(test(converted) for test in self._tests):
            return None
        return converted


def compile_tests(field: Field) -> list[Test]:
    """Return only the tests that the field declares."""
    tests: list[Test] = []
    low, high = field.min, field.max
    if low is not None:
        tests.append(lambda column: min(column) >= low)
    if high is not None:
        tests.append(lambda column: max(column) <= high)
    max_length = field.max_length
    if max_length is not None:
        tests.append(lambda column: max(map(len, column)) <= max_length)
    if field.pattern is not None:
        fits = re.compile(field.pattern).search
        tests.append(lambda column: all(map(fits, column)))
    if field.choices is not None:
        tests.append(frozenset(field.choices).issuperset)
    return tests


def texts_of(column: Column) -> Column:
    """Return the texts of a column of written numbers."""
    return [number.text for number in column]


def is_all(column: Column, kind: type) -> bool:
    return set(map(type, column)) == {kind}


def convert_text_column(field: Field) -> BulkConverter:
    trim = field.trim

    def convert(column: Column) -> Column | None:
        try:
            # raises unless all values are texts
            joined = "".join(column)
        except TypeError:
            return texts_of(column) if is_all(column, WrittenNumber) else None
        if "\x00" in joined or not (joined.isascii() or is_unicode(joined)):
            return None
        # str() turns the subclass JsonText into plain text
        texts = [*map(str.strip if trim else str, column)]
        # empty texts are missing values
        return None if "" in texts else texts

    return convert


def convert_int_column(_field: Field) -> BulkConverter:
    def convert(column: Column) -> Column | None:
        if is_all(column, str):
            joined = "".join(column)
            if not (joined.isascii() and joined.isdigit()) or "" in column:
                return None
            if max(map(len, column)) > MAX_SAFE_DIGITS:
                return None
            return [*map(int, column)]
        if not is_all(column, int):
            return None
        fits = min(column) >= SMALLEST_INT and max(column) <= LARGEST_INT
        return column if fits else None

    return convert


def convert_float_column(field: Field) -> BulkConverter:
    reads_texts = field.decimal == "."

    def convert(column: Column) -> Column | None:
        numbers: Column | None = None
        if is_all(column, float):
            numbers = column
        elif reads_texts and is_all(column, str):
            numbers = convert_decimals(column)
        elif is_all(column, WrittenNumber):
            numbers = convert_decimals(texts_of(column))
        # the sum is not finite if one of them is not
        if numbers is None or not math.isfinite(sum(numbers)):
            return None
        # 0.0 and -0.0 are equal, but not as bytes
        return [number or 0.0 for number in numbers] if 0.0 in numbers else numbers

    return convert


def convert_decimals(column: Column) -> Column | None:
    """Convert texts; None if one is no plain number, or loses digits as a float."""
    joined = "".join(column)
    if PLAIN_DECIMALS.fullmatch(joined) is None:
        return None
    try:
        numbers = [*map(float, column)]
    except ValueError:
        return None
    is_lossy = may_lose_digits(column, joined) and any_loses_digits(column, numbers)
    return None if is_lossy else numbers


def convert_decimal_column(field: Field) -> BulkConverter:
    reads_texts = field.decimal == "."

    def convert(column: Column) -> Column | None:
        if field.is_normalized:
            return None
        if is_all(column, WrittenNumber):
            column = texts_of(column)
        elif not (reads_texts and is_all(column, str)):
            return None
        joined = "".join(column)
        is_plain = UNSIGNED_DECIMALS.fullmatch(joined) is not None
        if not is_plain or max(map(len, column)) > MAX_SAFE_LENGTH:
            return None
        try:
            return [*map(Decimal, column)]
        except InvalidOperation:
            return None

    return convert


def convert_bool_column(_field: Field) -> BulkConverter:
    return lambda column: column if is_all(column, bool) else None


def convert_date_column(_field: Field) -> BulkConverter:
    def convert(column: Column) -> Column | None:
        try:
            return [*map(date.fromisoformat, map(str.strip, column))]
        except (TypeError, ValueError):
            return None

    return convert


def convert_timestamp_column(_field: Field) -> BulkConverter:
    zone = attrgetter("tzinfo")

    def convert(column: Column) -> Column | None:
        try:
            instants = [*map(datetime.fromisoformat, map(str.strip, column))]
        except (TypeError, ValueError):
            return None
        return instants if set(map(zone, instants)) == {UTC} else None

    return convert


BULK_CONVERTERS: Mapping[FieldType, Callable[[Field], BulkConverter]] = {
    FieldType.TEXT: convert_text_column,
    FieldType.INT: convert_int_column,
    FieldType.FLOAT: convert_float_column,
    FieldType.DECIMAL: convert_decimal_column,
    FieldType.BOOL: convert_bool_column,
    FieldType.DATE: convert_date_column,
    FieldType.TIMESTAMP: convert_timestamp_column,
}
