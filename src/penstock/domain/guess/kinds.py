"""Guess the type of a column from its values.

A type is guessed only if each value can be written back as it stands, by one way of
writing for the whole column; else the column is text, which keeps everything.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

from penstock.domain.casts import BadValue, JsonText, compile_cast
from penstock.domain.dataset import Field, FieldType
from penstock.domain.text import shorten
from penstock.domain.time_formats import EPOCH_UNITS, SECONDS, recognise

# writes a stored value as a column does
Writer: TypeAlias = Callable[[Any], str]

DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y")
TIMES = tuple(f"{day} {time}" for day in DAYS for time in ("%H:%M:%S", "%H:%M"))
# digits that name something: as a number they would lose their zeros, or their sense
LABEL = re.compile(
    r"(^|_)(phone|telephone|tel|mobile|fax|zip|zipcode|postcode|postal|plz"
    r"|iban|vat|ean|gtin|isbn)(_|$)"
)
# whole numbers that count from 1970 rather than anything else
MOMENT = re.compile(
    r"(^|_)(at|ts|time|timestamp|epoch|date|created|updated|modified|changed|seen)(_|$)"
)
ZERO_FIRST = re.compile(r"[+-]?0[0-9]")
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+(\.[0-9]{3})*,[0-9]+")
# what may be 1.234 or 1234
THREE_DIGITS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})?")
HAS_ZONE = re.compile(r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$", re.IGNORECASE)
PADDED = re.compile(r"\b0(?=[0-9])")
TRUTHS = (("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"))
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
    # why a column is text that might be something better, and what to declare then
    doubt: str | None = None
    # what stands before a fraction in text that is numbers but for their last zeros
    point: str | None = None

    @property
    def field(self) -> Field:
        """A field of this kind, to cast values by."""
        return Field(
            name="probe",
            type=self.type,
            format=self.format,
            decimal=self.decimal or ".",
        )


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
    whole = Kind(type=FieldType.INT, reason="whole numbers")
    if set(values) == {"0", "1"}:
        whole = Kind(type=FieldType.INT, reason="0 and 1 only: maybe a bool")
    if is_lossless(whole, values, [str]):
        return as_moment(name, values) or whole
    return as_fraction(name, values, Kind(type=FieldType.FLOAT, reason="numbers"))


def as_moment(name: str, values: Sequence[str]) -> Kind | None:
    """Tell whole numbers that count from 1970, by their size and their name."""
    for form in EPOCH_UNITS if MOMENT.search(name) else ():
        if {*map(recognise, values)} == {form}:
            unit = "seconds" if form == SECONDS else "milliseconds"
            reason = f"{unit} since 1970, by its name and its numbers"
            return Kind(type=FieldType.TIMESTAMP, format=form, reason=reason)
    return None


def as_foreign_number(name: str, values: Sequence[str]) -> Kind | None:
    if not fits(FieldType.FLOAT, values, decimal=","):
        return None
    told = why_no_quantity(name, values)
    if told is None and all(map(THREE_DIGITS.fullmatch, values)):
        told = "numbers whose commas may part thousands: else float with decimal ','"
        return Kind(type=FieldType.TEXT, reason=told, doubt=f"{name} is text: {told}")
    if told is not None:
        return Kind(type=FieldType.TEXT, reason=told)
    reason = "numbers with a decimal comma"
    kind = Kind(type=FieldType.FLOAT, decimal=",", reason=reason)
    return as_fraction(name, values, kind)


def as_fraction(name: str, values: Sequence[str], kind: Kind) -> Kind:
    """Accept numbers that keep their text; others stay text, and that is a doubt."""
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
    lost = first_changed(values, cast, write_shortest)
    told = f"numbers, but {lost}"
    declared = 'type = "float"' + ("" if point == "." else ', decimal = ","')
    return Kind(
        type=FieldType.TEXT,
        reason=told,
        doubt=f"{name} is text: {told}; if it is a quantity, declare {declared}",
        point=point if is_exact else None,
    )


def first_changed(
    values: Sequence[str], cast: Callable[[object], object], write: Writer
) -> str:
    """Show the first value that would not be written back as it stands."""
    for value in values:
        written = write(cast(value))
        if written != value:
            return f"{shorten(value, SHOWN)} would become {shorten(written, SHOWN)}"
    return "they are not all written in the same way"


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


def as_truth(name: str, values: Sequence[str]) -> Kind | None:
    words = set(values)
    lowered = {word.casefold() for word in words}
    for pair in TRUTHS:
        if not lowered <= {*pair}:
            continue
        told = f"only {' and '.join(sorted(lowered))}"
        if len(words) > len(lowered):
            told += ", written in several ways"
        elif len(lowered) == len(pair) or pair == TRUTHS[0]:
            return Kind(type=FieldType.BOOL, reason=told)
        remedy = 'if it is a truth value, declare type = "bool"'
        return Kind(
            type=FieldType.TEXT, reason=told, doubt=f"{name} is text: {told}; {remedy}"
        )
    return None


def as_time(name: str, values: Sequence[str]) -> Kind | None:
    day = Kind(type=FieldType.DATE, reason="ISO 8601 dates")
    if fits(FieldType.DATE, values) and is_lossless(day, values, [str]):
        return day
    if not fits(FieldType.TIMESTAMP, values):
        return None
    reason = f"ISO 8601 times{zone_of(values)}"
    kind = Kind(type=FieldType.TIMESTAMP, reason=reason)
    if is_lossless(kind, values, iso_writers()):
        return kind
    told = "times, but not all written alike, finer than microseconds or not in UTC"
    remedy = 'to store them in UTC, declare type = "timestamp"'
    return Kind(
        type=FieldType.TEXT, reason=told, doubt=f"{name} is text: {told}; {remedy}"
    )


def iso_writers() -> Iterator[Writer]:
    """Yield the ways of ISO 8601 in which one column may be written."""
    for separator in "T ":
        for fraction in ("seconds", "minutes", "milliseconds", "microseconds", "auto"):
            for zone in ("Z", "", "+00:00", "+0000", "+00", " +00:00"):
                yield partial(
                    write_iso, separator=separator, fraction=fraction, zone=zone
                )


def write_iso(instant: Any, *, separator: str, fraction: str, zone: str) -> str:
    plain = instant.astimezone(UTC).replace(tzinfo=None)
    return str(plain.isoformat(separator, fraction)) + zone


def as_foreign_time(name: str, values: Sequence[str]) -> Kind | None:
    for kind, forms in ((FieldType.DATE, DAYS), (FieldType.TIMESTAMP, TIMES)):
        found = [form for form in forms if fits(kind, values, form=form)]
        if not found:
            continue
        if len(found) > 1:
            told = f"dates, but day and month look alike: {kind} with format "
            reason = told + " or ".join(map(repr, found))
            doubt = f"{name} is text: {reason}"
            return Kind(type=FieldType.TEXT, reason=reason, doubt=doubt)
        form = found[0]
        told = "all in this format"
        reason = told if kind is FieldType.DATE else told + zone_of(values)
        guess = Kind(type=kind, format=form, reason=reason)
        writers = [partial(write_day, form=form), partial(write_unpadded, form=form)]
        if is_lossless(guess, values, writers):
            return guess
        reason = f"dates in format {form!r}, but not all written alike"
        remedy = f"to store them, declare type = {str(kind)!r}, format = {form!r}"
        doubt = f"{name} is text: {reason}; {remedy}"
        return Kind(type=FieldType.TEXT, reason=reason, doubt=doubt)
    return None


def write_day(value: Any, *, form: str) -> str:
    return str(value.strftime(form))


def write_unpadded(value: Any, *, form: str) -> str:
    return PADDED.sub("", write_day(value, form=form))


def zone_of(values: Iterable[str]) -> str:
    return "" if all(map(HAS_ZONE.search, values)) else "; without a zone it is UTC"


def as_document(name: str, values: Sequence[str]) -> Kind | None:
    # numbers and quoted words are JSON as well
    is_nested = all(value[0] in "{[" for value in values)
    if not is_nested or not fits(FieldType.JSON, map(JsonText, values)):
        return None
    kind = Kind(type=FieldType.JSON, reason="JSON objects or lists")
    if is_lossless(kind, values, [str, write_spaced]):
        return kind
    told = "JSON, but numbers, spaces or the order of names would change"
    remedy = 'to store documents, declare type = "json"'
    return Kind(
        type=FieldType.TEXT, reason=told, doubt=f"{name} is text: {told}; {remedy}"
    )


def write_spaced(document: str) -> str:
    return json.dumps(json.loads(document), ensure_ascii=False, sort_keys=True)


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


def is_lossless(kind: Kind, values: Sequence[str], writers: Iterable[Writer]) -> bool:
    """Say whether one of these ways of writing gives back each value as it stands."""
    cast = compile_cast(kind.field)
    as_read: Callable[[str], str] = JsonText if kind.type is FieldType.JSON else str
    try:
        stored = [cast(as_read(value)) for value in values]
    except BadValue:
        return False
    return any(
        all(write(each) == value for each, value in zip(stored, values, strict=True))
        for write in writers
    )


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
