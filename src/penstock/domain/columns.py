"""Cast a whole column at once, where its values are what nearly all values are.

A page costs most where its rows are walked one by one. So each column is first looked
at as a whole, by functions that walk it in C; whatever they are not sure of is left to
the cast of single values, and both give the same.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import Any, TypeAlias

from penstock.domain.casts import (
    LARGEST_INT,
    SMALLEST_INT,
    BadValue,
    Cast,
    compile_cast,
    is_unicode,
)
from penstock.domain.dataset import Field, FieldType

Column: TypeAlias = Sequence[Any]
# the cast values, and the places of bad ones
ColumnCast: TypeAlias = Callable[[Column], tuple[Column, Sequence[int]]]
# the cast values, or None where it is not sure
Glance: TypeAlias = Callable[[Column], Column | None]
Test: TypeAlias = Callable[[Column], bool]

# with nothing else in it, a text that float() reads is a number to us as well
PLAIN_DECIMALS = re.compile(r"[0-9.eE+-]*")
MORE_THAN_64_BITS = 18


def compile_column(field: Field) -> ColumnCast:
    """Build the function that casts a column.

    Where values are bad, it returns None for them, and their places.
    """
    cast = compile_cast(field)
    glance = GLANCES.get(field.type)
    if glance is None or field.format is not None:
        return lambda column: cast_each(column, cast)
    return ColumnCaster(field, cast, glance(field))


def cast_each(column: Column, cast: Cast) -> tuple[Column, Sequence[int]]:
    """Cast value by value."""
    found: list[object] = []
    bad: list[int] = []
    for place, value in enumerate(column):
        try:
            found.append(cast(value))
        except BadValue:
            found.append(None)
            bad.append(place)
    return found, bad


class ColumnCaster:
    def __init__(self, field: Field, cast: Cast, glance: Glance) -> None:
        self._cast = cast
        self._glance = glance
        self._tests = tuple(compile_tests(field))
        self._required = field.required
        self._default = field.default

    def __call__(self, column: Column) -> tuple[Column, Sequence[int]]:
        found = self._try(column)
        return cast_each(column, self._cast) if found is None else (found, ())

    def _try(self, column: Column) -> Column | None:
        found = self._try_present(column)
        # most columns are whole, and need not be looked through for what is missing
        if found is not None or self._required or None not in column:
            return found
        found = self._try_present([each for each in column if each is not None])
        if found is None:
            return None
        present = iter(found)
        default = self._default
        return [default if each is None else next(present) for each in column]

    def _try_present(self, column: Column) -> Column | None:
        if not column:
            return column
        found = self._glance(column)
        if found is None or not all(test(found) for test in self._tests):
            return None
        return found


def compile_tests(field: Field) -> list[Test]:
    """Return only the tests that the field declares."""
    tests: list[Test] = []
    low, high = field.min, field.max
    if low is not None:
        tests.append(lambda column: min(column) >= low)
    if high is not None:
        tests.append(lambda column: max(column) <= high)
    longest = field.max_length
    if longest is not None:
        tests.append(lambda column: max(map(len, column)) <= longest)
    if field.pattern is not None:
        fits = re.compile(field.pattern).search
        tests.append(lambda column: all(map(fits, column)))
    if field.choices is not None:
        tests.append(frozenset(field.choices).issuperset)
    return tests


def is_all(column: Column, kind: type) -> bool:
    return set(map(type, column)) == {kind}


def glance_at_texts(field: Field) -> Glance:
    trim = field.trim

    def glance(column: Column) -> Column | None:
        try:
            # only texts can be joined
            together = "".join(column)
        except TypeError:
            return None
        if "\x00" in together or not (together.isascii() or is_unicode(together)):
            return None
        # plain ones: a text that a file marks as JSON is none
        texts = [*map(str.strip if trim else str, column)]
        # an empty text is none
        return None if "" in texts else texts

    return glance


def glance_at_ints(_field: Field) -> Glance:
    def glance(column: Column) -> Column | None:
        if is_all(column, str):
            together = "".join(column)
            if not (together.isascii() and together.isdigit()) or "" in column:
                return None
            if max(map(len, column)) > MORE_THAN_64_BITS:
                return None
            return [*map(int, column)]
        if not is_all(column, int):
            return None
        fits = min(column) >= SMALLEST_INT and max(column) <= LARGEST_INT
        return column if fits else None

    return glance


def glance_at_floats(field: Field) -> Glance:
    reads_texts = field.decimal == "."

    def glance(column: Column) -> Column | None:
        numbers = column
        if reads_texts and is_all(column, str):
            if PLAIN_DECIMALS.fullmatch("".join(column)) is None:
                return None
            try:
                numbers = [*map(float, column)]
            except ValueError:
                return None
        elif not is_all(column, float):
            return None
        # one that is not finite leaves no finite sum
        if not math.isfinite(sum(numbers)):
            return None
        # the two zeros are equal, but not as bytes
        return [each or 0.0 for each in numbers] if 0.0 in numbers else numbers

    return glance


def glance_at_bools(_field: Field) -> Glance:
    return lambda column: column if is_all(column, bool) else None


def glance_at_dates(_field: Field) -> Glance:
    def glance(column: Column) -> Column | None:
        try:
            return [*map(date.fromisoformat, map(str.strip, column))]
        except (TypeError, ValueError):
            return None

    return glance


def glance_at_timestamps(_field: Field) -> Glance:
    zone = attrgetter("tzinfo")

    def glance(column: Column) -> Column | None:
        try:
            instants = [*map(datetime.fromisoformat, map(str.strip, column))]
        except (TypeError, ValueError):
            return None
        return instants if set(map(zone, instants)) == {UTC} else None

    return glance


GLANCES: Mapping[FieldType, Callable[[Field], Glance]] = {
    FieldType.TEXT: glance_at_texts,
    FieldType.INT: glance_at_ints,
    FieldType.FLOAT: glance_at_floats,
    FieldType.BOOL: glance_at_bools,
    FieldType.DATE: glance_at_dates,
    FieldType.TIMESTAMP: glance_at_timestamps,
}
