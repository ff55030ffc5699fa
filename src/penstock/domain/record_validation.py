"""Validate records that a client writes, by the same rules as an import."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from penstock.domain.dataset import ROW_KEY, Dataset, Field, FieldType, Reference
from penstock.domain.exact_decimals import without_trailing_zeros
from penstock.domain.formats import shorten
from penstock.domain.mapping.converters import BadValue, Cast, compile_cast
from penstock.domain.mapping.mapper import row_digest
from penstock.domain.pages import Key, Reason, Record
from penstock.domain.search import value_syntax
from penstock.domain.search.filter_params import MAX_KEY_PART_LENGTH, read_value
from penstock.domain.search.query import field_named
from penstock.errors import BadRequest, FieldError, NoSuchRecord, VersionChanged

Document: TypeAlias = Mapping[str, Any]
Stored = TypeVar("Stored")

ANY_VERSION = "*"
# errors in one response
MAX_FIELD_ERRORS = 100
# the JSON types of a field; an import also accepts numbers that are written as text
JSON_TYPES: Mapping[FieldType, tuple[type, ...]] = {
    FieldType.TEXT: (str,),
    # in JSON, 1.0 is an integer
    FieldType.INT: (int, float),
    FieldType.FLOAT: (int, float),
    FieldType.DECIMAL: (int, float),
    FieldType.BOOL: (bool,),
    FieldType.DATE: (str,),
    FieldType.TIMESTAMP: (str,),
    FieldType.JSON: (dict, list, str, int, float, bool),
}


@dataclass(frozen=True, slots=True)
class RecordDraft:
    """A row as a client writes it: imported fields, and local ones."""

    record: Record
    local: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precondition:
    """The versions of a row that a change may be applied to."""

    # any of these; None does not check
    match: frozenset[str] | None = None
    # only if there is no row yet
    must_be_new: bool = False

    def check(self, version: str | None) -> None:
        """Raise `VersionChanged` unless the current version matches."""
        if self.must_be_new and version is not None:
            raise VersionChanged("the record already exists")
        if self.match is None:
            return
        if version is None:
            raise VersionChanged("the record no longer exists")
        if ANY_VERSION not in self.match and version not in self.match:
            raise VersionChanged("the record has changed since it was read")


class RecordValidator:
    """The compiled rules of one dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._casts = {
            field.name: compile_json_cast(as_written(field)) for field in dataset.fields
        }
        self._key = [field_named(dataset, name) for name in dataset.key]
        self._key_casts = {field.name: compile_key_cast(field) for field in self._key}
        self.references: Mapping[str, Reference] = {
            field.name: field.references
            for field in dataset.fields
            if field.references is not None
        }

    def read_key(self, parts: Sequence[str]) -> Key:
        """Parse a key from the parts of a URL."""
        if len(parts) != len(self._key):
            names = ",".join(self.dataset.key)
            detail = f"has {len(parts)} parts; write {names} with commas between them"
            raise BadRequest(key_error(detail))
        return tuple(
            parse_key_part(field, part)
            for field, part in zip(self._key, parts, strict=True)
        )

    def validate_full(
        self, document: object, *, key: Key | None, at: str = ""
    ) -> RecordDraft:
        """Validate a record that replaces the stored one; missing fields are empty."""
        given = self._check_object(document, at)
        if key is None:
            return self._merge(given, {}, at=at)
        self._check_key(key)
        return self._merge(given, dict(zip(self.dataset.key, key, strict=True)), at=at)

    def _check_key(self, key: Key) -> None:
        """Reject a key that an import would not store, or not in this form."""
        for field, value in zip(self._key, key, strict=True):
            try:
                stored = self._key_casts[field.name](value)
            except BadValue as bad:
                error = key_error(bad.detail, field, code=bad.reason)
                raise BadRequest(error) from bad
            if stored != value:
                detail = f"is stored as {shorten(stored)}; use that form"
                raise BadRequest(key_error(detail, field))

    def validate_patch(
        self, current: Sequence[object], document: object
    ) -> RecordDraft:
        """Validate a change of some fields; the others stay as they are."""
        given = self._check_object(document, "")
        names = [field.name for field in self.dataset.fields]
        return self._merge(given, dict(zip(names, current, strict=True)), at="")

    def _check_object(self, document: object, at: str) -> Document:
        if not isinstance(document, dict):
            detail = "must be a JSON object with the fields of a record"
            raise BadRequest(FieldError(pointer=at or "/", code="type", detail=detail))
        unknown = (name for name in document if name not in self._casts)
        errors = [
            FieldError(
                pointer=f"{at}/{escape_pointer(name)}",
                code="unknown-field",
                detail="is no field",
            )
            for name in islice(unknown, MAX_FIELD_ERRORS)
        ]
        if errors:
            raise BadRequest(*errors)
        return document

    def _merge(
        self, given: Document, stored: Mapping[str, object], *, at: str
    ) -> RecordDraft:
        """Merge given values over stored ones; a stored key cannot change."""
        values, errors = dict(stored), []
        for name, cast in self._casts.items():
            if name in stored and name not in given:
                continue
            try:
                values[name] = value = cast(given.get(name))
                self._check_unchanged_key(name, stored, value)
            except BadValue as bad:
                pointer = f"{at}/{name}"
                errors.append(
                    FieldError(pointer=pointer, code=bad.reason, detail=bad.detail)
                )
        if errors:
            raise BadRequest(*errors)
        return self._build_draft(values, at)

    def _check_unchanged_key(
        self, name: str, stored: Mapping[str, object], value: object
    ) -> None:
        if name in self.dataset.key and stored.get(name, value) != value:
            raise BadValue(Reason.TYPE, "is the key, and cannot be changed")

    def _build_draft(self, given: Mapping[str, object], at: str) -> RecordDraft:
        columns, hashed = self.dataset.columns, self.dataset.hashed_columns
        digest = row_digest([given[column.name] for column in columns], hashed)
        values = {**given, **self._row_key(given, digest, at)}
        stored = tuple(values[column.name] for column in columns)
        key = tuple(values[name] for name in self.dataset.key)
        local = {
            field.name: values.get(field.name)
            for field in self.dataset.fields
            if field.local
        }
        return RecordDraft(Record(key, stored, digest), local)

    def _row_key(
        self, values: Mapping[str, object], digest: bytes, at: str
    ) -> Mapping[str, object]:
        """Return the key if it is the hash of the row, which must be the given one."""
        if not self.dataset.has_row_key:
            return {}
        key = digest.hex()
        if values[ROW_KEY] not in {None, key}:
            raise BadRequest(
                FieldError(
                    pointer=f"{at}/{ROW_KEY}",
                    code=Reason.TYPE,
                    detail=f"these values have the key {key}: they are another "
                    "record; delete the one, and create the other",
                )
            )
        return {ROW_KEY: key}


def as_written(field: Field) -> Field:
    """Return a field as clients write it: they need not know the hash of a row."""
    return replace(field, required=False) if field.is_row_key else field


def compile_json_cast(field: Field) -> Cast:
    """Compile the cast of a field from JSON: as an import does, but by JSON types.

    The constraints of a text apply to it as it was sent, before it is trimmed, so that
    the JSON schema of the field is complete.
    """
    has_no_pattern = field.pattern is None
    cast = compile_cast(
        replace(
            field,
            format=None,
            decimal=".",
            exact=False,
            trim=field.trim and has_no_pattern,
        )
    )
    types, check_as_sent = JSON_TYPES[field.type], compile_check_as_sent(field)

    def read(value: object) -> object:
        if value is None:
            return cast(None)
        if not isinstance(value, types) or (type(value) is bool and bool not in types):
            raise wrong_json_type(field, value)
        check_as_sent(value)
        return cast(value)

    return read


def compile_check_as_sent(field: Field) -> Callable[[Any], None]:
    """Return a check that rejects values which would be valid only after a change."""
    match field.type:
        case FieldType.DATE:
            return syntax_check(value_syntax.parse_date, "a date such as 2026-01-31")
        case FieldType.TIMESTAMP:
            form = "a time with its zone such as 2026-01-31T12:00:00Z"
            return syntax_check(value_syntax.parse_json_timestamp, form)
        case FieldType.TEXT:
            return text_check(field)
        case (
            FieldType.INT
            | FieldType.FLOAT
            | FieldType.DECIMAL
            | FieldType.BOOL
            | FieldType.JSON
        ):
            return lambda _: None


def syntax_check(parse: Callable[[str], object], form: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if parse(value) is None:
            raise BadValue(Reason.TYPE, f"{shorten(value)} is not {form}")

    return check


def text_check(field: Field) -> Callable[[str], None]:
    max_length, choices = field.max_length, field.choices
    fits = None if field.pattern is None else re.compile(field.pattern).search

    def check(value: str) -> None:
        if max_length is not None and len(value) > max_length:
            detail = f"{len(value)} characters are more than {max_length}"
            raise BadValue(Reason.LENGTH, detail)
        if choices is not None and value not in choices:
            allowed = ", ".join(map(str, choices))
            raise BadValue(Reason.CHOICE, f"{shorten(value)} is not one of {allowed}")
        # in Python, $ also matches before a line break at the end, but not before two
        if fits is not None and not all(map(fits, (value, with_line_break(value)))):
            detail = f"{shorten(value)} does not match {field.pattern}"
            raise BadValue(Reason.PATTERN, detail)

    return check


def with_line_break(value: str) -> str:
    return f"{value}\n" if value.endswith("\n") else value


def compile_key_cast(field: Field) -> Cast:
    """Compile the cast of a key value that is already parsed."""
    if field.type in {FieldType.DATE, FieldType.TIMESTAMP}:
        return lambda value: value
    if field.type is FieldType.DECIMAL:
        return compile_cast(replace(field, required=True))
    return compile_json_cast(replace(field, required=True))


def parse_key_part(field: Field, text: str) -> object:
    if len(text) > MAX_KEY_PART_LENGTH:
        detail = f"has more than {MAX_KEY_PART_LENGTH} characters"
        raise BadRequest(key_error(detail, field))
    try:
        value = read_value(field, text)
        return without_trailing_zeros(value) if isinstance(value, Decimal) else value
    except ValueError as error:
        raise BadRequest(key_error(str(error), field)) from error


def key_error(
    detail: str, field: Field | None = None, *, code: str = "key"
) -> FieldError:
    name = "key" if field is None else field.name
    return FieldError(pointer=f"{{{name}}}", code=code, detail=detail)


def escape_pointer(name: str) -> str:
    """Escape a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def wrong_json_type(field: Field, value: object) -> BadValue:
    names = {str: "text", bool: "a truth value", dict: "an object", list: "a list"}
    name = names.get(type(value), "a number")
    return BadValue(Reason.TYPE, f"{name} is not of type {field.type}")


def require_record(row: Stored | None) -> Stored:
    """Return the row of a key; raises `NoSuchRecord` if there is none."""
    if row is None:
        raise NoSuchRecord("there is no record with this key")
    return row
