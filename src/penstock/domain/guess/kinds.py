"""Guess the type of a column from its values."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.domain.casts import (
    FALSE_WORDS,
    TRUE_WORDS,
    BadValue,
    JsonText,
    compile_cast,
)
from penstock.domain.dataset import Field, FieldType
from penstock.domain.text import shorten

DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y")
TIMES = tuple(f"{day} {time}" for day in DAYS for time in ("%H:%M:%S", "%H:%M"))
# digits that name something: as a number they would lose their zeros, or their sense
LABEL = re.compile(
    r"(^|_)(phone|telephone|tel|mobile|fax|zip|zipcode|postcode|postal|plz"
    r"|iban|vat|ean|gtin|isbn)(_|$)"
)
ZERO_FIRST = re.compile(r"[+-]?0[0-9]")
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+(\.[0-9]{3})*,[0-9]+")
# what may be 1.234 or 1234
THREE_DIGITS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})?")
HAS_ZONE = re.compile(r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$", re.IGNORECASE)
# so large a share of numbers makes one wonder what the others are
MOST = 0.8
SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    type: FieldType
    reason: str
    # how dates and times are written, where that is not ISO 8601
    format: str | None = None
    # what stands before a fraction, where that is not a point
    decimal: str | None = None


def guess_kind(name: str, values: Sequence[str]) -> Kind:
    """Judge by the very casts of an import, so that what is guessed is accepted."""
    if not values:
        return Kind(type=FieldType.TEXT, reason="empty in all rows looked at")
    for judge in (
        as_number,
        as_foreign_number,
        as_truth,
        as_time,
        as_foreign_time,
        as_document,
    ):
        kind = judge(name, values)
        if kind is not None:
            return kind
    return Kind(type=FieldType.TEXT, reason=why_text(values))


def as_number(name: str, values: Sequence[str]) -> Kind | None:
    if not fits(FieldType.FLOAT, values):
        return None
    told = why_no_quantity(name, values)
    if told is not None:
        return Kind(type=FieldType.TEXT, reason=told)
    if not fits(FieldType.INT, values):
        return Kind(type=FieldType.FLOAT, reason="numbers")
    is_flag = set(values) == {"0", "1"}
    told = "0 and 1 only: maybe a bool" if is_flag else "whole numbers"
    return Kind(type=FieldType.INT, reason=told)


def as_foreign_number(name: str, values: Sequence[str]) -> Kind | None:
    if not fits(FieldType.FLOAT, values, decimal=","):
        return None
    told = why_no_quantity(name, values)
    if told is None and all(map(THREE_DIGITS.fullmatch, values)):
        told = "numbers whose commas may part thousands: else float with decimal ','"
    if told is not None:
        return Kind(type=FieldType.TEXT, reason=told)
    reason = "numbers with a decimal comma"
    return Kind(type=FieldType.FLOAT, decimal=",", reason=reason)


def why_no_quantity(name: str, values: Sequence[str]) -> str | None:
    """Say why digits are kept as text, if they must be."""
    for value in values:
        if ZERO_FIRST.match(value):
            return "digits, of which a first zero would be lost"
        if value.startswith("+"):
            return "digits, of which a plus would be lost"
    if LABEL.search(name):
        return "digits that name something are no quantity"
    if all(map(str.isdecimal, values)) and not fits(FieldType.INT, values):
        return "more digits than a number can hold"
    return None


def as_truth(_: str, values: Sequence[str]) -> Kind | None:
    words = {value.casefold() for value in values}
    # one letter alone may be the first of many others
    is_clear = (words & TRUE_WORDS and words & FALSE_WORDS) or max(map(len, words)) > 1
    if not is_clear or not words <= TRUE_WORDS | FALSE_WORDS:
        return None
    return Kind(type=FieldType.BOOL, reason=f"only {' and '.join(sorted(words))}")


def as_time(_: str, values: Sequence[str]) -> Kind | None:
    if fits(FieldType.DATE, values):
        return Kind(type=FieldType.DATE, reason="ISO 8601 dates")
    if fits(FieldType.TIMESTAMP, values):
        reason = f"ISO 8601 times{zone_of(values)}"
        return Kind(type=FieldType.TIMESTAMP, reason=reason)
    return None


def as_foreign_time(_: str, values: Sequence[str]) -> Kind | None:
    for kind, forms in ((FieldType.DATE, DAYS), (FieldType.TIMESTAMP, TIMES)):
        found = [form for form in forms if fits(kind, values, form=form)]
        if len(found) > 1:
            told = f"dates, but day and month look alike: {kind} with format "
            reason = told + " or ".join(map(repr, found))
            return Kind(type=FieldType.TEXT, reason=reason)
        if found:
            told = "all in this format"
            reason = told if kind is FieldType.DATE else told + zone_of(values)
            return Kind(type=kind, format=found[0], reason=reason)
    return None


def zone_of(values: Iterable[str]) -> str:
    return "" if all(map(HAS_ZONE.search, values)) else "; without a zone it is UTC"


def as_document(_: str, values: Sequence[str]) -> Kind | None:
    # numbers and quoted words are JSON as well
    is_nested = all(value[0] in "{[" for value in values)
    if not is_nested or not fits(FieldType.JSON, map(JsonText, values)):
        return None
    return Kind(type=FieldType.JSON, reason="JSON objects or lists")


def why_text(values: Sequence[str]) -> str:
    """Name the value that kept a column from being something better.

    Of other values none is shown: they may be people's, and a comment is kept.
    """
    if all(map(DECIMAL_COMMA.fullmatch, values)):
        return "numbers with a decimal comma, but with dots between thousands as well"
    for kind, told in (
        (FieldType.FLOAT, "numbers"),
        (FieldType.DATE, "dates"),
        (FieldType.TIMESTAMP, "times"),
    ):
        odd = [*misfits(kind, values)]
        if len(odd) <= (1 - MOST) * len(values):
            return f"most are {told}, but {shorten(odd[0], SHOWN)} is not"
    return f"up to {max(map(len, values)):,} characters"


def fits(
    kind: FieldType,
    values: Iterable[str],
    *,
    form: str | None = None,
    decimal: str = ".",
) -> bool:
    found = misfits(kind, values, form=form, decimal=decimal)
    return next(found, None) is None


def misfits(
    kind: FieldType,
    values: Iterable[str],
    *,
    form: str | None = None,
    decimal: str = ".",
) -> Iterator[str]:
    """Yield the values that a field of this type would refuse."""
    field = Field(name="probe", type=kind, format=form, decimal=decimal)
    cast = compile_cast(field)
    for value in values:
        try:
            cast(value)
        except BadValue:
            yield value
