"""The [datasets.*.fields] tables."""

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from penstock.domain import dataset as domain
from penstock.domain.dataset import FieldType, Reference
from penstock.domain.mapping.converters import BadValue, compile_cast
from penstock.domain.mapping.written_numbers import WrittenNumber
from penstock.domain.time_formats import is_time_format
from penstock.settings.format_letters import (
    describe_wrong_format,
    find_format_problems,
)
from penstock.settings.models.base import (
    Count,
    RecordPathOrTop,
    Text,
    TomlModel,
    WrittenBound,
    as_written,
)
from penstock.settings.validation_errors import Problem

NUMBERS = frozenset({FieldType.INT, FieldType.FLOAT, FieldType.DECIMAL})
TIMES = frozenset({FieldType.DATE, FieldType.TIMESTAMP})
TEXTS = frozenset({FieldType.TEXT})

# the types that a key is allowed for
ALLOWED_TYPES = {
    "min": NUMBERS,
    "max": NUMBERS,
    "max_length": TEXTS,
    "pattern": TEXTS,
    "trim": TEXTS,
    "format": TIMES,
    "decimal": frozenset({FieldType.FLOAT, FieldType.DECIMAL}),
    "exact": frozenset(FieldType) - TEXTS,
}


class FieldTable(TomlModel):
    path: RecordPathOrTop | None = None
    column: Text | None = None
    type: Annotated[FieldType, Field(strict=False)] = FieldType.TEXT
    required: bool = False
    default: Annotated[Any, BeforeValidator(as_written)] = None
    min: WrittenBound | None = None
    max: WrittenBound | None = None
    max_length: Count | None = None
    pattern: Text | None = None
    choices: (
        Annotated[list[Any], BeforeValidator(as_written), Field(min_length=1)] | None
    ) = None
    enum: (
        Annotated[list[Any], BeforeValidator(as_written), Field(min_length=1)] | None
    ) = None
    format: Text | None = None
    trim: bool = True
    decimal: Literal[".", ","] = "."
    exact: bool = False
    references: Text | None = None
    local: bool = False

    def rules(self) -> Iterator[Problem]:
        wrong_types = [*self.wrong_type_rules()]
        yield from wrong_types
        yield from self.value_rules()
        yield from self.format_rules()
        if (
            not wrong_types
            and is_valid_pattern(self.pattern)
            and is_valid_format(self.format)
        ):
            yield from self.cast_rules()

    def wrong_type_rules(self) -> Iterator[Problem]:
        for key, types in ALLOWED_TYPES.items():
            if key in self.model_fields_set and self.type not in types:
                allowed = " or ".join(sorted(types))
                yield (key,), f"has no meaning for type {self.type}; only for {allowed}"

    def value_rules(self) -> Iterator[Problem]:
        if self.min is not None and self.max is not None and self.min > self.max:
            yield ("min",), f"{self.min:g} is greater than max = {self.max:g}"
        if not is_valid_pattern(self.pattern):
            message = "is not a regular expression; write one such as"
            yield ("pattern",), f"{message} '^[0-9]{{5}}$'"
        if self.choices is not None and self.enum is not None:
            yield ("enum",), "means the same as 'choices'; give one of them"
        if self.required and self.default is not None:
            yield ("default",), "is never used with required = true; remove one"
        for key in ("path", "column", "references"):
            if self.local and getattr(self, key) is not None:
                yield (key,), "has no meaning for a local field: no import writes it"
        if self.local and self.required:
            yield ("required",), "is impossible for a local field: no import writes it"
        if self.path == () and self.type is not FieldType.JSON:
            yield ("path",), "'' is the whole record, which only type json can hold"

    def format_rules(self) -> Iterator[Problem]:
        if not is_valid_format(self.format):
            yield ("format",), describe_wrong_format(self.format or "")
        elif self.format is not None and self.type in TIMES:
            is_date = self.type is FieldType.DATE
            for problem in find_format_problems(self.format, is_date=is_date):
                yield ("format",), problem

    def cast_rules(self) -> Iterator[Problem]:
        """Check the choices and the default against the declared type."""
        key = "enum" if self.choices is None else "choices"
        bare = replace(self.field("probe"), choices=None, default=None)
        try:
            choices = self.allowed()
        except BadValue as bad:
            yield (key,), bad.detail
            return
        try:
            compile_cast(replace(bare, choices=choices))(self.given(self.default))
        except BadValue as bad:
            yield ("default",), bad.detail

    def allowed(self) -> tuple[object, ...] | None:
        """Return the choices as they are stored."""
        choices = self.enum if self.choices is None else self.choices
        if choices is None:
            return None
        cast = compile_cast(replace(self.field("probe"), required=True))
        return tuple(cast(self.given(choice)) for choice in choices)

    def field(self, name: str) -> domain.Field:
        """Return the field without its choices and its default."""
        path = self.path
        if path is None:
            path = () if self.local else (self.column or name,)
        return domain.Field(
            name=name,
            path=path,
            type=self.type,
            min=self.bound(self.min),
            max=self.bound(self.max),
            max_length=self.max_length,
            pattern=self.pattern,
            format=self.format,
            trim=self.trim,
            decimal=self.decimal,
            exact=self.exact,
            references=self.reference(),
            local=self.local,
        )

    def given(self, value: object) -> object:
        """Return a value of the file as a converter takes it."""
        return value if self.type is FieldType.DECIMAL else without_texts(value)

    def bound(self, number: float | None) -> float | Decimal | None:
        """Return a bound of the numbers that the type has."""
        if number is None or self.type is not FieldType.DECIMAL:
            return None if number is None else float(number)
        text = number.text if isinstance(number, WrittenNumber) else repr(number)
        return Decimal(text)

    def reference(self) -> Reference | None:
        """Parse `dataset.field`."""
        if self.references is None:
            return None
        dataset, _, field = self.references.partition(".")
        return Reference(dataset, field)


def build_field(name: str, table: FieldTable, *, is_key: bool) -> domain.Field:
    """Convert a valid table; a key field is always required."""
    bare = replace(
        table.field(name),
        choices=table.allowed(),
        is_normalized=is_key and table.type is FieldType.DECIMAL,
    )
    default = compile_cast(bare)(table.given(table.default))
    return replace(bare, default=default, required=table.required or is_key)


def without_texts(value: object) -> object:
    """Return a value with plain floats for written numbers."""
    if isinstance(value, WrittenNumber):
        return float(value)
    return [*map(without_texts, value)] if isinstance(value, list) else value


def is_valid_pattern(pattern: str | None) -> bool:
    try:
        re.compile(pattern or "")
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def is_valid_format(form: str | None) -> bool:
    return form is None or is_time_format(form)
