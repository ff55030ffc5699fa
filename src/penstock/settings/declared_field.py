"""The fields of a dataset as they are written."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from penstock.domain import dataset as domain
from penstock.domain.casts import BadValue, compile_cast
from penstock.domain.dataset import FieldType, Reference
from penstock.domain.time_formats import is_time_format
from penstock.settings.declared import (
    Count,
    Declared,
    Number,
    RecordPathOrTop,
    Text,
    as_plain,
)
from penstock.settings.problems import Problem

NUMBERS = frozenset({FieldType.INT, FieldType.FLOAT})
TIMES = frozenset({FieldType.DATE, FieldType.TIMESTAMP})
TEXTS = frozenset({FieldType.TEXT})

# which keys have a meaning for which types
MEANT_FOR = {
    "min": NUMBERS,
    "max": NUMBERS,
    "max_length": TEXTS,
    "pattern": TEXTS,
    "trim": TEXTS,
    "format": TIMES,
    "decimal": frozenset({FieldType.FLOAT}),
}

# how spreadsheets and other languages write a format
DIRECTIVES = {
    **dict.fromkeys(("YYYY", "yyyy"), "%Y"),
    **dict.fromkeys(("YY", "yy"), "%y"),
    "MM": "%m",
    **dict.fromkeys(("DD", "dd"), "%d"),
    **dict.fromkeys(("HH", "hh"), "%H"),
    "mm": "%M",
    **dict.fromkeys(("SS", "ss"), "%S"),
}
LETTERS = re.compile("|".join(DIRECTIVES))


class FieldTable(Declared):
    path: RecordPathOrTop | None = None
    column: Text | None = None
    type: Annotated[FieldType, Field(strict=False)] = FieldType.TEXT
    required: bool = False
    default: Annotated[Any, BeforeValidator(as_plain)] = None
    min: Number | None = None
    max: Number | None = None
    max_length: Count | None = None
    pattern: Text | None = None
    choices: (
        Annotated[list[Any], BeforeValidator(as_plain), Field(min_length=1)] | None
    ) = None
    enum: (
        Annotated[list[Any], BeforeValidator(as_plain), Field(min_length=1)] | None
    ) = None
    format: Text | None = None
    trim: bool = True
    decimal: Literal[".", ","] = "."
    references: Text | None = None
    local: bool = False

    def rules(self) -> Iterator[Problem]:
        misplaced = [*self.misplaced()]
        yield from misplaced
        yield from self.impossible()
        if not misplaced and is_pattern(self.pattern) and is_readable(self.format):
            yield from self.miscast()

    def misplaced(self) -> Iterator[Problem]:
        for key, types in MEANT_FOR.items():
            if key in self.model_fields_set and self.type not in types:
                meant = " or ".join(sorted(types))
                yield (key,), f"has no meaning for type {self.type}; only for {meant}"

    def impossible(self) -> Iterator[Problem]:
        if self.min is not None and self.max is not None and self.min > self.max:
            yield ("min",), f"{self.min:g} is greater than max = {self.max:g}"
        if not is_pattern(self.pattern):
            told = "is not a regular expression; write one such as"
            yield ("pattern",), f"{told} '^[0-9]{{5}}$'"
        if not is_readable(self.format):
            yield ("format",), wrong_format(self.format or "")
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

    def miscast(self) -> Iterator[Problem]:
        """Hold the choices and the default against the declared type."""
        key = "enum" if self.choices is None else "choices"
        bare = replace(self.field("probe"), choices=None, default=None)
        try:
            choices = self.allowed()
        except BadValue as bad:
            yield (key,), bad.detail
            return
        try:
            compile_cast(replace(bare, choices=choices))(self.default)
        except BadValue as bad:
            yield ("default",), bad.detail

    def allowed(self) -> tuple[object, ...] | None:
        """Return the choices as they are stored."""
        choices = self.enum if self.choices is None else self.choices
        if choices is None:
            return None
        cast = compile_cast(replace(self.field("probe"), required=True))
        return tuple(cast(each) for each in choices)

    def field(self, name: str) -> domain.Field:
        """Return the field without its choices and its default."""
        path = self.path
        if path is None:
            path = () if self.local else (self.column or name,)
        return domain.Field(
            name=name,
            path=path,
            type=self.type,
            min=self.min,
            max=self.max,
            max_length=self.max_length,
            pattern=self.pattern,
            format=self.format,
            trim=self.trim,
            decimal=self.decimal,
            references=self.reference(),
            local=self.local,
        )

    def reference(self) -> Reference | None:
        """Read `dataset.field`."""
        if self.references is None:
            return None
        dataset, _, field = self.references.partition(".")
        return Reference(dataset, field)


def built_field(name: str, table: FieldTable, *, is_key: bool) -> domain.Field:
    """Return a checked field; a key is required whether it says so or not."""
    bare = replace(table.field(name), choices=table.allowed())
    default = compile_cast(bare)(table.default)
    return replace(bare, default=default, required=table.required or is_key)


def is_pattern(pattern: str | None) -> bool:
    try:
        re.compile(pattern or "")
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def wrong_format(form: str) -> str:
    """Refuse a format; one in the letters of other programs is translated."""
    guess = LETTERS.sub(lambda found: DIRECTIVES[found[0]], form)
    if guess != form and is_time_format(guess):
        return f"is not a format of strptime; did you mean {guess!r}?"
    told = "is not a format by which times can be read; write one such as"
    return f"{told} '%d.%m.%Y %H:%M', or '%s' for seconds since 1970"


def is_readable(form: str | None) -> bool:
    return form is None or is_time_format(form)
