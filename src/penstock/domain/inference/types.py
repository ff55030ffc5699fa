"""Guess the type of a column from its values.

A type is guessed only if each value can be formatted back to the same text, by one
format for the whole column; otherwise the column is text, which loses nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

from penstock.domain.dataset import Field, FieldType
from penstock.domain.formats import shorten
from penstock.domain.mapping.converters import (
    BadValue,
    Cast,
    JsonText,
    LostDigits,
    compile_cast,
)
from penstock.domain.mapping.exact_values import (
    with_spaces,
    write_day,
    write_unpadded,
)
from penstock.domain.time_formats import EPOCH_UNITS, SECONDS, recognise_epoch_format

# formats a stored value as text
Writer: TypeAlias = Callable[[Any], str]

DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y")
TIMES = tuple(f"{day} {time}" for day in DAYS for time in ("%H:%M:%S", "%H:%M"))
# digits that are identifiers: as a number they would lose their zeros, or their sense
IDENTIFIER_NAME = re.compile(
    r"(^|_)(phone|telephone|tel|mobile|fax|zip|zipcode|postcode|postal|plz"
    r"|iban|vat|ean|gtin|isbn)(_|$)"
)
# names of columns whose whole numbers are probably times since 1970
TIME_NAME = re.compile(
    r"(^|_)(at|ts|time|timestamp|epoch|date|created|updated|modified|changed|seen)(_|$)"
)
LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+(\.[0-9]{3})*,[0-9]+")
# may be 1.234 or 1234
THREE_DIGITS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})?")
HAS_ZONE = re.compile(r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$", re.IGNORECASE)
TRUTHS = (("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"))
# with a larger share of one type, a value of another type is named in the reason
MIN_TYPE_SHARE = 0.8
MAX_SHOWN_LENGTH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredType:
    type: FieldType
    reason: str
    # format of dates and times, if not ISO 8601
    format: str | None = None
    # decimal separator, if not a point
    decimal: str | None = None
    # a warning: why a column is text that might have another type
    doubt: str | None = None
    # decimal separator of text that would be numbers but for trailing zeros
    point: str | None = None
    # whether a value that is written in another way is bad
    exact: bool = True

    @property
    def field(self) -> Field:
        """A field of this type, whose cast tests values."""
        return Field(
            name="probe",
            type=self.type,
            format=self.format,
            decimal=self.decimal or ".",
        )


def guess_type(name: str, values: Sequence[str]) -> InferredType:
    """Guess by the casts of an import, so that it accepts what is guessed."""
    if not values:
        return InferredType(type=FieldType.TEXT, reason="empty in all rows looked at")
    for guess in (
        guess_number,
        guess_comma_number,
        guess_bool,
        guess_time,
        guess_formatted_time,
        guess_json,
    ):
        kind = guess(name, values)
        if kind is not None:
            return kind
    return InferredType(type=FieldType.TEXT, reason=why_text(values))


def guess_number(name: str, values: Sequence[str]) -> InferredType | None:
    if not fits(FieldType.FLOAT, values):
        return None
    reason = why_no_quantity(name, values)
    if reason is not None:
        return InferredType(type=FieldType.TEXT, reason=reason)
    whole = InferredType(type=FieldType.INT, reason="whole numbers")
    if set(values) == {"0", "1"}:
        whole = InferredType(type=FieldType.INT, reason="0 and 1 only: maybe a bool")
    if is_lossless(whole, values, [str]):
        return guess_epoch(name, values) or whole
    return guess_float(
        name, values, InferredType(type=FieldType.FLOAT, reason="numbers")
    )


def guess_epoch(name: str, values: Sequence[str]) -> InferredType | None:
    """Recognise times since 1970 by the name of the column and by their size."""
    for form in EPOCH_UNITS if TIME_NAME.search(name) else ():
        if {*map(recognise_epoch_format, values)} == {form}:
            unit = "seconds" if form == SECONDS else "milliseconds"
            reason = f"{unit} since 1970, by its name and its numbers"
            return InferredType(type=FieldType.TIMESTAMP, format=form, reason=reason)
    return None


def guess_comma_number(name: str, values: Sequence[str]) -> InferredType | None:
    if not fits(FieldType.FLOAT, values, decimal=","):
        return None
    reason = why_no_quantity(name, values)
    if reason is None and all(map(THREE_DIGITS.fullmatch, values)):
        reason = (
            "numbers whose commas may separate thousands: else float with decimal ','"
        )
        return InferredType(
            type=FieldType.TEXT, reason=reason, doubt=f"{name} is text: {reason}"
        )
    if reason is not None:
        return InferredType(type=FieldType.TEXT, reason=reason)
    reason = "numbers with a decimal comma"
    kind = InferredType(type=FieldType.FLOAT, decimal=",", reason=reason)
    return guess_float(name, values, kind)


def guess_float(name: str, values: Sequence[str], kind: InferredType) -> InferredType:
    """Accept numbers that keep their text; others stay text, with a warning."""
    point = kind.decimal or "."

    def write(number: float) -> str:
        return repr(number).replace(".", point)

    def write_shortest(number: float) -> str:
        return repr(number).removesuffix(".0").replace(".", point)

    if is_lossless(kind, values, [write, write_shortest]):
        return kind
    cast = compile_cast(kind.field)
    texts = [value.replace(point, ".") for value in values]
    numbers = [float(text) for text in texts]
    is_exact = all(
        Decimal(text) == Decimal(repr(number))
        for text, number in zip(texts, numbers, strict=True)
    )
    reason = f"numbers, but {first_changed(values, cast, write_shortest)}"
    declared = 'type = "float"' + ("" if point == "." else ', decimal = ","')
    return InferredType(
        type=FieldType.TEXT,
        reason=reason,
        doubt=f"{name} is text: {reason}; if it is a quantity, declare {declared}",
        point=point if is_exact else None,
    )


def first_changed(values: Sequence[str], cast: Cast, write: Writer) -> str:
    """Describe the first value that would be formatted to another text."""
    for value in values:
        try:
            written = write(cast(value))
        except LostDigits as lost:
            written = write(lost.number)
        if written != value:
            shown = shorten(value, MAX_SHOWN_LENGTH)
            return f"{shown} would become {shorten(written, MAX_SHOWN_LENGTH)}"
    return "they are not all written in the same way"


def why_no_quantity(name: str, values: Sequence[str]) -> str | None:
    """Return why digits must be stored as text, or None."""
    for value in values:
        if LEADING_ZERO.match(value):
            return "digits, of which a first zero would be lost"
        if value.startswith("+"):
            return "digits, of which a plus would be lost"
    if IDENTIFIER_NAME.search(name):
        return "digits that name something are no quantity"
    if all(map(str.isdecimal, values)) and not fits(FieldType.INT, values):
        return "more digits than a number can hold"
    return None


def guess_bool(name: str, values: Sequence[str]) -> InferredType | None:
    words = set(values)
    lowered = {word.casefold() for word in words}
    for pair in TRUTHS:
        if not lowered <= {*pair}:
            continue
        reason = f"only {' and '.join(sorted(lowered))}"
        if len(words) > len(lowered):
            reason += ", written in several ways"
        elif len(lowered) == len(pair) or pair == TRUTHS[0]:
            return InferredType(type=FieldType.BOOL, reason=reason)
        return text_with_doubt(
            name, reason, remedy='if it is a truth value, declare type = "bool"'
        )
    return None


def text_with_doubt(name: str, reason: str, *, remedy: str) -> InferredType:
    doubt = f"{name} is text: {reason}; {remedy}"
    return InferredType(type=FieldType.TEXT, reason=reason, doubt=doubt)


def guess_time(name: str, values: Sequence[str]) -> InferredType | None:
    day = InferredType(type=FieldType.DATE, reason="ISO 8601 dates")
    if fits(FieldType.DATE, values) and is_lossless(day, values, [str]):
        return day
    if not fits(FieldType.TIMESTAMP, values):
        return None
    reason = f"ISO 8601 times{zone_note(values)}"
    kind = InferredType(type=FieldType.TIMESTAMP, reason=reason)
    if is_lossless(kind, values, iso_writers()):
        return kind
    return text_with_doubt(
        name,
        "times, but not all written alike, finer than microseconds or not in UTC",
        remedy='to store them in UTC, declare type = "timestamp"',
    )


def iso_writers() -> Iterator[Writer]:
    """Yield the variants of ISO 8601 in which a column may be written."""
    for separator in "T ":
        for fraction in ("seconds", "minutes", "milliseconds", "microseconds", "auto"):
            for zone in ("Z", "", "+00:00", "+0000", "+00", " +00:00"):
                yield partial(
                    write_iso, separator=separator, fraction=fraction, zone=zone
                )


def write_iso(instant: Any, *, separator: str, fraction: str, zone: str) -> str:
    plain = instant.astimezone(UTC).replace(tzinfo=None)
    return str(plain.isoformat(separator, fraction)) + zone


def guess_formatted_time(name: str, values: Sequence[str]) -> InferredType | None:
    for kind, forms in ((FieldType.DATE, DAYS), (FieldType.TIMESTAMP, TIMES)):
        found = [form for form in forms if fits(kind, values, form=form)]
        if not found:
            continue
        if len(found) > 1:
            formats = " or ".join(map(repr, found))
            reason = (
                f"dates, but day and month look alike: {kind} with format {formats}"
            )
            doubt = f"{name} is text: {reason}"
            return InferredType(type=FieldType.TEXT, reason=reason, doubt=doubt)
        form = found[0]
        zone = "" if kind is FieldType.DATE else zone_note(values)
        reason = f"all in this format{zone}"
        guess = InferredType(type=kind, format=form, reason=reason)
        writers = [partial(write_day, form=form), partial(write_unpadded, form=form)]
        if is_lossless(guess, values, writers):
            return guess
        return text_with_doubt(
            name,
            f"dates in format {form!r}, but not all written alike",
            remedy=f"to store them, declare type = {str(kind)!r}, format = {form!r}",
        )
    return None


def zone_note(values: Iterable[str]) -> str:
    return "" if all(map(HAS_ZONE.search, values)) else "; without a zone it is UTC"


def guess_json(name: str, values: Sequence[str]) -> InferredType | None:
    # numbers and quoted words are valid JSON, too
    is_nested = all(value[0] in "{[" for value in values)
    if not is_nested or not fits(FieldType.JSON, map(JsonText, values)):
        return None
    kind = InferredType(type=FieldType.JSON, reason="JSON objects or lists")
    if is_lossless(kind, values, [str, with_spaces]):
        return kind
    return text_with_doubt(
        name,
        "JSON, but spaces, escapes or the order of names would change",
        remedy='to store documents, declare type = "json"',
    )


def why_text(values: Sequence[str]) -> str:
    """Return why a column has no other type.

    It shows at most one value: values may be personal data, and the reason is written
    to a file.
    """
    if all(map(DECIMAL_COMMA.fullmatch, values)):
        return "numbers with a decimal comma, but with dots between thousands as well"
    for kind, plural in (
        (FieldType.FLOAT, "numbers"),
        (FieldType.DATE, "dates"),
        (FieldType.TIMESTAMP, "times"),
    ):
        odd = [*misfits(kind, values)]
        if len(odd) <= (1 - MIN_TYPE_SHARE) * len(values):
            shown = shorten(odd[0], MAX_SHOWN_LENGTH)
            return f"most are {plural}, but {shown} is not"
    return f"up to {max(map(len, values)):,} characters"


def is_lossless(
    kind: InferredType, values: Sequence[str], writers: Iterable[Writer]
) -> bool:
    """Return whether one of the writers restores the text of every value."""
    cast = compile_cast(kind.field)
    as_read: Callable[[str], str] = JsonText if kind.type is FieldType.JSON else str
    try:
        stored = [cast(as_read(value)) for value in values]
    except BadValue:
        return False
    return any(
        all(write(cell) == value for cell, value in zip(stored, values, strict=True))
        for write in writers
    )


def fits(
    kind: FieldType,
    values: Iterable[str],
    *,
    form: str | None = None,
    decimal: str = ".",
) -> bool:
    return next(misfits(kind, values, form=form, decimal=decimal), None) is None


def misfits(
    kind: FieldType,
    values: Iterable[str],
    *,
    form: str | None = None,
    decimal: str = ".",
) -> Iterator[str]:
    """Yield the values that a field of this type would reject."""
    field = Field(name="probe", type=kind, format=form, decimal=decimal)
    cast = compile_cast(field)
    for value in values:
        try:
            cast(value)
        except LostDigits:
            # a number, if not one for a float
            continue
        except BadValue:
            yield value
