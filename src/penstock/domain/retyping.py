"""Convert stored values to another type of their field, where nothing is lost.

A value becomes what an import would store now for its old form. Lossy, and so refused,
are texts whose leading zeros, sign or digits a number cannot hold, and times whose
clock a day cannot hold.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.domain.exact_decimals import without_trailing_zeros, write_decimal
from penstock.domain.formats import format_instant, shorten
from penstock.domain.mapping.converters import (
    CONVERTERS,
    BadValue,
    Cast,
    JsonText,
    wrong_type,
)
from penstock.domain.mapping.documents import read_document
from penstock.domain.mapping.mapper import content_digest
from penstock.domain.pages import Key, Reason

# the start of a number as text that a number would lose
PADDED = re.compile(r"[+]|-?0[0-9]")
# digits of a second beyond the microseconds that are stored
NANOSECONDS = re.compile(r"[.,][0-9]{6}0*[1-9]")


@dataclass(frozen=True, slots=True)
class Loss:
    """A stored value that another type cannot hold."""

    key: Key
    field: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A field whose stored type is not the declared one."""

    field: str
    stored: FieldType
    declared: FieldType


def changed_types(dataset: Dataset, stored: Mapping[str, str]) -> list[TypeChange]:
    """Return the fields whose stored type differs from the declared one."""
    return [
        TypeChange(field.name, FieldType(stored[field.name]), field.type)
        for field in dataset.fields
        if stored.get(field.name, field.type) != field.type
    ]


def with_types(dataset: Dataset, stored: Mapping[str, str]) -> Dataset:
    """Return a dataset with its stored fields and their stored types."""
    fields = tuple(
        replace(field, type=FieldType(stored[field.name]))
        for field in dataset.fields
        if field.name in stored
    )
    return replace(dataset, fields=fields)


class Conversion:
    """Converts stored rows of a dataset to the types that it declares."""

    def __init__(self, stored: Dataset, declared: Dataset) -> None:
        fields = {field.name: field for field in declared.fields}
        self._names = [field.name for field in stored.fields]
        self._converters = [
            (index, field.name, compile_conversion(field.type, fields[field.name]))
            for index, field in enumerate(stored.fields)
            if field.type is not fields[field.name].type
        ]
        self._key = [self._names.index(name) for name in declared.key]
        self._columns = [field.name for field in declared.columns]
        # how many values would be lost, and the first of them
        self.lost = 0
        self.losses: list[Loss] = []

    def __call__(self, values: Sequence[object]) -> tuple[list[object], bytes]:
        """Convert a row; return its values, and their digest as an import has it."""
        converted = list(values)
        for index, name, convert in self._converters:
            value = values[index]
            try:
                converted[index] = None if value is None else convert(value)
            except BadValue as bad:
                self._add_loss(values, name, value, bad)
        by_name = dict(zip(self._names, converted, strict=True))
        return converted, content_digest([by_name.get(name) for name in self._columns])

    def _add_loss(
        self, values: Sequence[object], name: str, value: object, bad: BadValue
    ) -> None:
        self.lost += 1
        if len(self.losses) < MAX_LOSSES:
            key = tuple(values[index] for index in self._key)
            self.losses.append(Loss(key, name, shorten(value), bad.detail))


# lossy values that are listed
MAX_LOSSES = 20


def compile_conversion(stored: FieldType, field: Field) -> Cast:
    """Build the function that converts stored values to the type of a field.

    The function raises `BadValue` where something would be lost.
    """
    convert = choose_conversion(stored, field)

    def convert_whole(value: object) -> object:
        converted = convert(value)
        # an import treats blank text and the word null as no value
        if converted is None:
            raise lost(field, value)
        return converted

    return convert_whole


def choose_conversion(stored: FieldType, field: Field) -> Cast:
    convert = CONVERTERS[field.type](field)
    if field.type is FieldType.TEXT:
        return json_to_text if stored is FieldType.JSON else to_text
    if field.type is FieldType.JSON:
        return from_text_to_json(convert) if stored is FieldType.TEXT else to_json
    return CONVERSIONS[stored](field, convert)


def json_to_text(value: Any) -> object:
    document = json.loads(value)
    return document if isinstance(document, str) else value


def to_text(value: Any) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, date):
        return value.isoformat()
    return write_decimal(value) if isinstance(value, Decimal) else str(value)


def to_json(value: Any) -> object:
    if isinstance(value, Decimal):
        return write_decimal(value)
    is_time = isinstance(value, date)
    return json.dumps(to_text(value) if is_time else value, ensure_ascii=False)


def from_text_to_json(convert: Cast) -> Cast:
    return lambda value: convert(JsonText(value))


def from_text(field: Field, convert: Cast) -> Cast:
    def exact(value: Any) -> object:
        converted = convert(value)
        text = value.strip()
        is_number = isinstance(converted, int | float | Decimal)
        if is_number and not isinstance(converted, bool):
            if PADDED.match(text):
                raise lost(field, value)
            number = text.replace(",", ".") if field.decimal == "," else text
            if Decimal(number) != Decimal(str(converted)):
                raise lost(field, value)
        elif isinstance(converted, date) and NANOSECONDS.search(text):
            raise lost(field, value)
        return converted

    return exact


def from_json(field: Field, convert: Cast) -> Cast:
    read_text = from_text(field, convert)

    def exact(value: Any) -> object:
        document = read_document(value)
        if isinstance(document, str):
            return read_text(document)
        converted = convert(document)
        if isinstance(document, int) and converted != document:
            raise lost(field, value)
        return converted

    return exact


def from_bool(field: Field, convert: Cast) -> Cast:
    if field.type in {FieldType.INT, FieldType.FLOAT, FieldType.DECIMAL}:
        return lambda value: convert(int(bool(value)))
    return refuse_all(field)


def from_number(field: Field, convert: Cast) -> Cast:
    is_number = field.type in {FieldType.INT, FieldType.FLOAT}

    def exact(value: Any) -> object:
        converted: Any = convert(value)
        # Python compares int and float exactly
        if is_number and converted != value:
            raise lost(field, value)
        return converted

    return exact


def from_decimal(field: Field, convert: Cast) -> Cast:
    del convert  # it may read another decimal separator
    plain = replace(field, decimal=".")
    read_text = from_text(plain, CONVERTERS[field.type](plain))
    # 5.00 is a whole number
    is_whole = field.type in {FieldType.INT, FieldType.BOOL}

    def exact(value: Any) -> object:
        number = without_trailing_zeros(value) if is_whole else value
        return read_text(write_decimal(number))

    return exact


def between_times(field: Field, convert: Cast) -> Cast:
    del convert  # it only parses times that are written as text
    if field.type is FieldType.TIMESTAMP:
        return lambda value: datetime.combine(as_day(value), time(), UTC)
    if field.type is FieldType.DATE:

        def to_day(value: Any) -> object:
            if value.time() != time():
                raise lost(field, value)
            return value.date()

        return to_day
    return refuse_all(field)


CONVERSIONS: Mapping[FieldType, Callable[[Field, Cast], Cast]] = {
    FieldType.TEXT: from_text,
    FieldType.JSON: from_json,
    FieldType.BOOL: from_bool,
    FieldType.INT: from_number,
    FieldType.FLOAT: from_number,
    FieldType.DECIMAL: from_decimal,
    FieldType.DATE: between_times,
    FieldType.TIMESTAMP: between_times,
}


def as_day(value: Any) -> date:
    return date(value.year, value.month, value.day)


def refuse_all(field: Field) -> Callable[[object], object]:
    def refuse(value: object) -> object:
        raise wrong_type(field, value)

    return refuse


def lost(field: Field, value: object) -> BadValue:
    message = f"{shorten(value)} cannot be stored exactly as type {field.type}"
    return BadValue(Reason.TYPE, message)
