"""What a client may make of a record: the same rules as for an import, told at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from penstock.domain.casts import BadValue, Cast, compile_cast
from penstock.domain.dataset import Dataset, Field, FieldType, Reference
from penstock.domain.mapping import content_digest
from penstock.domain.page import Key, Reason, Record
from penstock.domain.queries.parameters import read_value
from penstock.errors import BadRequest, Flaw, NoSuchRecord, VersionChanged

Document: TypeAlias = Mapping[str, Any]
Stored = TypeVar("Stored")

ANY = "*"
# what JSON has for a field; an import also reads numbers that are written as text
KINDS: Mapping[FieldType, tuple[type, ...]] = {
    FieldType.TEXT: (str,),
    FieldType.INT: (int,),
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
        self._key = [
            next(each for each in dataset.fields if each.name == name)
            for name in dataset.key
        ]
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
            raise BadRequest(Flaw(pointer="{key}", code="key", detail=told))
        try:
            return tuple(
                read_value(field, part)
                for field, part in zip(self._key, parts, strict=True)
            )
        except ValueError as error:
            flaw = Flaw(pointer="{key}", code="key", detail=str(error))
            raise BadRequest(flaw) from error

    def whole(self, document: object, *, key: Key | None, at: str = "") -> Drafted:
        """Read a record that replaces whatever there is; what is not named is empty."""
        given = self._object(document, at)
        stored = {} if key is None else dict(zip(self.dataset.key, key, strict=True))
        return self._drafted(given, stored, at=at)

    def changed(self, current: Sequence[object], document: object) -> Drafted:
        """Read a change of some fields; the others stay as they are."""
        given = self._object(document, "")
        names = [each.name for each in self.dataset.fields]
        return self._drafted(given, dict(zip(names, current, strict=True)), at="")

    def _object(self, document: object, at: str) -> Document:
        if not isinstance(document, dict):
            told = "must be a JSON object with the fields of a record"
            raise BadRequest(Flaw(pointer=at or "/", code="type", detail=told))
        flaws = [
            Flaw(pointer=f"{at}/{name}", code="unknown-field", detail="is no field")
            for name in document
            if name not in self._casts
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
    """Compile what reads a field from JSON: as an import does, but by JSON's types."""
    cast = compile_cast(replace(field, format=None, decimal="."))
    kinds = KINDS[field.type]

    def read(value: object) -> object:
        is_wrong = value is not None and (
            not isinstance(value, kinds)
            or (isinstance(value, bool) and bool not in kinds)
        )
        if is_wrong:
            raise wrong_kind(field, value)
        return cast(value)

    return read


def wrong_kind(field: Field, value: object) -> BadValue:
    told = {str: "text", bool: "a truth value", dict: "an object", list: "a list"}
    kind = told.get(type(value), "a number")
    return BadValue(Reason.TYPE, f"{kind} is not of type {field.type}")


def found(key: Key, rows: Mapping[Key, Stored]) -> Stored:
    """Return the row of a key, or say that there is none."""
    if key not in rows:
        raise NoSuchRecord("there is no record with this key")
    return rows[key]
