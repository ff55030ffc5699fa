"""Decide whether a type can write a text back as it stands."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from penstock.domain.dataset import Field, FieldType
from penstock.domain.exact_decimals import write_decimal
from penstock.domain.mapping.documents import read_document, write_spaced
from penstock.domain.time_formats import EPOCH_UNITS, format_time

# whether a stripped text is the only thing that its value could have been read from
IsExact: TypeAlias = Callable[[str, Any], bool]

PADDED = re.compile(r"\b0(?=[0-9])")
# in UTC and not finer than microseconds, which are all that is stored
EXACT_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}"
    r"(:[0-9]{2}(\.[0-9]{3}|\.[0-9]{6})?)?( ?\+00(:?00)?|Z)?"
)
# numbers are no truth values: they would be stored as words
WORDS = frozenset({"true", "false", "yes", "no", "y", "n", "t", "f"})


def compile_exactness(field: Field) -> IsExact:
    return COMPILERS[field.type](field)


def exact_text(_field: Field) -> IsExact:
    return lambda _text, _value: True


def exact_int(_field: Field) -> IsExact:
    return lambda text, value: str(value) == text


def exact_float(field: Field) -> IsExact:
    point = field.decimal

    def is_exact(text: str, value: float) -> bool:
        written = repr(value)
        if point != ".":
            written = written.replace(".", point)
        return text in {written, written.removesuffix(f"{point}0")}

    return is_exact


def exact_decimal(field: Field) -> IsExact:
    point = field.decimal

    def is_exact(text: str, value: Decimal) -> bool:
        return write_decimal(value).replace(".", point) == text

    return is_exact


def exact_bool(_field: Field) -> IsExact:
    return lambda text, _value: text.casefold() in WORDS


def exact_date(field: Field) -> IsExact:
    if field.format is None:
        return lambda text, value: str(value) == text
    return exact_format(field.format)


def exact_timestamp(field: Field) -> IsExact:
    if field.format is None:
        return lambda text, _value: EXACT_TIME.fullmatch(text) is not None
    if any(directive in field.format for directive in EPOCH_UNITS):
        form = field.format
        return lambda text, value: format_time(value, form) == text
    return exact_format(field.format)


def exact_format(form: str) -> IsExact:
    def is_exact(text: str, value: Any) -> bool:
        return text in {write_day(value, form=form), write_unpadded(value, form=form)}

    return is_exact


def exact_json(_field: Field) -> IsExact:
    return lambda text, value: text in {value, with_spaces(value)}


def write_day(value: Any, *, form: str) -> str:
    return str(value.strftime(form))


def write_unpadded(value: Any, *, form: str) -> str:
    return PADDED.sub("", write_day(value, form=form))


def with_spaces(document: str) -> str:
    return write_spaced(read_document(document))


COMPILERS: Mapping[FieldType, Callable[[Field], IsExact]] = {
    FieldType.TEXT: exact_text,
    FieldType.INT: exact_int,
    FieldType.FLOAT: exact_float,
    FieldType.DECIMAL: exact_decimal,
    FieldType.BOOL: exact_bool,
    FieldType.DATE: exact_date,
    FieldType.TIMESTAMP: exact_timestamp,
    FieldType.JSON: exact_json,
}
