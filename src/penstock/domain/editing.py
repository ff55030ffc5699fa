"""What a client may make of a record: the same rules as for an import, told at once."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from penstock.domain.casts import BadValue, Cast, compile_cast
from penstock.domain.dataset import Dataset, Field, FieldType, Reference
from penstock.domain.mapping import content_digest
from penstock.domain.page import Key, Reason, Record
from penstock.domain.queries import forms
from penstock.domain.queries.parameters import LONGEST_VALUE, read_value
from penstock.domain.queries.query import field_named
from penstock.domain.text import shorten
from penstock.errors import BadRequest, Flaw, NoSuchRecord, VersionChanged

Document: TypeAlias = Mapping[str, Any]
Stored = TypeVar("Stored")

ANY = "*"
# nobody mends more at a time
MOST_FLAWS = 100
# what JSON has for a field; an import also reads numbers that are written as text
KINDS: Mapping[FieldType, tuple[type, ...]] = {
    FieldType.TEXT: (str,),
    # to JSON, 1.0 is whole
    FieldType.INT: (int, float),
    FieldType.FLOAT: (int, float),
    FieldType.BOOL: (bool,),
    FieldType.DATE: (str,),
    FieldType.TIMESTAMP: (str,),
    FieldType.JSON: (dict, list, str, int, float, bool),
}


@dataclass(frozen=True, slots=True)
class Drafted:
    """A row as a client wants it: what imports write, and what is ours alone."""

    record: Record
    local: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precondition:
    """Which versions of a row a change is meant for."""

    # any of these; None is not asked for
    match: frozenset[str] | None = None
    # only where there is no row yet
    must_be_new: bool = False

    def hold(self, version: str | None) -> None:
        """Refuse a change that was meant for another version."""
        if self.must_be_new and version is not None:
            raise VersionChanged("there is such a record already")
        if self.match is None:
            return
        if version is None:
            raise VersionChanged("there is no such record any more")
        if ANY not in self.match and version not in self.match:
            raise VersionChanged("the record has changed since it was read")


class Editor:
    """The compiled rules of one dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._casts = {each.name: as_json(each) for each in dataset.fields}
        self._key = [field_named(dataset, name) for name in dataset.key]
        self._cast_key = {each.name: as_stored(each) for each in self._key}
        self.references: Mapping[str, Reference] = {
            each.name: each.references
            for each in dataset.fields
            if each.references is not None
        }

    def read_key(self, parts: Sequence[str]) -> Key:
        """Read a key from the parts of an address."""
        if len(parts) != len(self._key):
            names = ",".join(self.dataset.key)
            told = f"has {len(parts)} parts; write {names} with commas between them"
            raise BadRequest(in_key(told))
        return tuple(
            key_part(field, part) for field, part in zip(self._key, parts, strict=True)
        )

    def whole(self, document: object, *, key: Key | None, at: str = "") -> Drafted:
        """Read a record that replaces whatever there is; what is not named is empty."""
        given = self._object(document, at)
        if key is None:
            return self._drafted(given, {}, at=at)
        self._hold_key(key)
        return self._drafted(
            given, dict(zip(self.dataset.key, key, strict=True)), at=at
        )

    def _hold_key(self, key: Key) -> None:
        """Refuse a key that no import would bring, or not in this form."""
        for field, value in zip(self._key, key, strict=True):
            try:
                stored = self._cast_key[field.name](value)
            except BadValue as bad:
                raise BadRequest(in_key(bad.detail, field, code=bad.reason)) from bad
            if stored != value:
                told = f"is stored as {shorten(stored)}; ask for it by that"
                raise BadRequest(in_key(told, field))

    def changed(self, current: Sequence[object], document: object) -> Drafted:
        """Read a change of some fields; the others stay as they are."""
        given = self._object(document, "")
        names = [each.name for each in self.dataset.fields]
        return self._drafted(given, dict(zip(names, current, strict=True)), at="")

    def _object(self, document: object, at: str) -> Document:
        if not isinstance(document, dict):
            told = "must be a JSON object with the fields of a record"
            raise BadRequest(Flaw(pointer=at or "/", code="type", detail=told))
        unknown = (name for name in document if name not in self._casts)
        flaws = [
            Flaw(
                pointer=f"{at}/{escaped(name)}",
                code="unknown-field",
                detail="is no field",
            )
            for name in islice(unknown, MOST_FLAWS)
        ]
        if flaws:
            raise BadRequest(*flaws)
        return document

    def _drafted(
        self, given: Document, stored: Mapping[str, object], *, at: str
    ) -> Drafted:
        """Put what is given over what is stored; a stored key stays."""
        values, flaws = dict(stored), []
        for name, cast in self._casts.items():
            if name in stored and name not in given:
                continue
            try:
                values[name] = self._kept(name, stored, cast(given.get(name)))
            except BadValue as bad:
                pointer = f"{at}/{name}"
                flaws.append(Flaw(pointer=pointer, code=bad.reason, detail=bad.detail))
        if flaws:
            raise BadRequest(*flaws)
        return self._row(values)

    def _kept(self, name: str, stored: Mapping[str, object], value: object) -> object:
        if name in self.dataset.key and stored.get(name, value) != value:
            raise BadValue(Reason.TYPE, "is the key, and cannot be changed")
        return value

    def _row(self, values: Mapping[str, object]) -> Drafted:
        stored = tuple(values[each.name] for each in self.dataset.columns)
        key = tuple(values[name] for name in self.dataset.key)
        local = {
            each.name: values.get(each.name)
            for each in self.dataset.fields
            if each.local
        }
        return Drafted(Record(key, stored, content_digest(stored)), local)


def as_json(field: Field) -> Cast:
    """Compile what reads a field from JSON: as an import does, but by JSON's types.

    What a field demands of a text is demanded of it as it was sent, so that the schema
    of the field says it all: nothing is cut off to make it fit.
    """
    is_free = field.pattern is None
    cast = compile_cast(
        replace(field, format=None, decimal=".", trim=field.trim and is_free)
    )
    kinds, as_sent = KINDS[field.type], held_as_sent(field)

    def read(value: object) -> object:
        if value is None:
            return cast(None)
        if not isinstance(value, kinds) or (type(value) is bool and bool not in kinds):
            raise wrong_kind(field, value)
        as_sent(value)
        return cast(value)

    return read


def held_as_sent(field: Field) -> Callable[[Any], None]:
    """Return what refuses a text that would fit only after a change."""
    match field.type:
        case FieldType.DATE:
            return written_as(forms.day, "a date such as 2026-01-31")
        case FieldType.TIMESTAMP:
            told = "a time with its zone such as 2026-01-31T12:00:00Z"
            return written_as(forms.instant_in_json, told)
        case FieldType.TEXT:
            return text_as_sent(field)
        case FieldType.INT | FieldType.FLOAT | FieldType.BOOL | FieldType.JSON:
            return lambda _: None


def written_as(read: Callable[[str], object], form: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if read(value) is None:
            raise BadValue(Reason.TYPE, f"{shorten(value)} is not {form}")

    return check


def text_as_sent(field: Field) -> Callable[[str], None]:
    longest, choices = field.max_length, field.choices
    fits = None if field.pattern is None else re.compile(field.pattern).search

    def check(value: str) -> None:
        if longest is not None and len(value) > longest:
            told = f"{len(value)} characters are more than {longest}"
            raise BadValue(Reason.LENGTH, told)
        if choices is not None and value not in choices:
            known = ", ".join(map(str, choices))
            raise BadValue(Reason.CHOICE, f"{shorten(value)} is not one of {known}")
        # to Python, $ also stands before a line break at the end; behind a second one
        # it cannot
        if fits is not None and not all(map(fits, (value, with_line_break(value)))):
            told = f"{shorten(value)} does not match {field.pattern}"
            raise BadValue(Reason.PATTERN, told)

    return check


def with_line_break(value: str) -> str:
    return f"{value}\n" if value.endswith("\n") else value


def as_stored(field: Field) -> Cast:
    """Compile what holds a value against the rules of a field, whatever its form."""
    if field.type in {FieldType.DATE, FieldType.TIMESTAMP}:
        return lambda value: value
    return as_json(replace(field, required=True))


def key_part(field: Field, text: str) -> object:
    if len(text) > LONGEST_VALUE:
        told = f"has more than {LONGEST_VALUE} characters"
        raise BadRequest(in_key(told, field))
    try:
        return read_value(field, text)
    except ValueError as error:
        raise BadRequest(in_key(str(error), field)) from error


def in_key(detail: str, field: Field | None = None, *, code: str = "key") -> Flaw:
    name = "key" if field is None else field.name
    return Flaw(pointer=f"{{{name}}}", code=code, detail=detail)


def escaped(name: str) -> str:
    """Write a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def wrong_kind(field: Field, value: object) -> BadValue:
    told = {str: "text", bool: "a truth value", dict: "an object", list: "a list"}
    kind = told.get(type(value), "a number")
    return BadValue(Reason.TYPE, f"{kind} is not of type {field.type}")


def found(row: Stored | None) -> Stored:
    """Return the row of a key, or say that there is none."""
    if row is None:
        raise NoSuchRecord("there is no record with this key")
    return row
