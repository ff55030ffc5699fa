"""Turn raw rows into records, by casts compiled from the fields; total on any input.

A cast takes a raw value and returns the stored one, or raises `BadValue`. Nothing else
can come out of a row than a record or a rejection, so a bad row never stops a page.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from hashlib import blake2b
from typing import Any, TypeAlias

from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.domain.page import Reason, Record, Rejection, Row
from penstock.domain.text import format_instant, in_utc

Cast: TypeAlias = Callable[[object], object]
Check: TypeAlias = Callable[[Any], None]

# what int() and float() accept beyond this ("1_000", other scripts) is no number here
WHOLE = re.compile(r"[+-]?[0-9]+")
DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
SMALLEST_INT, LARGEST_INT = -(2**63), 2**63 - 1
TRUE_WORDS = frozenset({"true", "yes", "y", "t", "1"})
FALSE_WORDS = frozenset({"false", "no", "n", "f", "0"})
DIGEST_BYTES = 16
HALF = "holds half of a character (an unpaired surrogate)"


class BadValue(ValueError):
    """A value that its field does not allow."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Mapper:
    """The compiled mapping of one dataset."""

    def __init__(self, dataset: Dataset) -> None:
        columns = dataset.columns
        self._casts = tuple(
            (each.name, dataset.place[each.path], compile_cast(each))
            for each in columns
        )
        self._key = tuple(dataset.column(name) for name in dataset.key)
        self._key_casts = tuple(self._casts[index] for index in self._key)
        version = dataset.version
        self._version = None if version is None else dataset.column(version)

    def __call__(self, row: Row) -> Record | Rejection:
        """Map one row; any row gives a record or a rejection."""
        if row.unreadable is not None:
            return Rejection(
                position=row.position,
                reason=Reason.UNREADABLE,
                detail=row.unreadable,
                raw=row.raw,
            )
        raw = row.values
        mapped: list[object] = []
        name = ""
        try:
            for name, place, cast in self._casts:  # noqa: B007 (named in the rejection)
                mapped.append(cast(raw[place]))
        except BadValue as bad:
            return self.reject(row, bad.reason, bad.detail, field=name)
        values = tuple(mapped)
        key = tuple([values[index] for index in self._key])
        return Record(key, values, content_digest(values))

    def reject(
        self, row: Row, reason: Reason, detail: str, *, field: str | None = None
    ) -> Rejection:
        """Describe a bad row, with its key if the key can be read."""
        return Rejection(
            position=row.position,
            reason=reason,
            detail=detail,
            raw=row.raw,
            field=field,
            key=self.key_of(row),
        )

    def key_of(self, row: Row) -> tuple[object, ...] | None:
        """Read the key of a row that may be bad elsewhere."""
        if row.unreadable is not None:
            return None
        try:
            return tuple(cast(row.values[place]) for _, place, cast in self._key_casts)
        except BadValue:
            return None

    def resolve(self, records: Iterable[Record]) -> list[Record]:
        """Keep one record of each key: the newest version, else the last."""
        kept: dict[tuple[object, ...], Record] = {}
        for record in records:
            known = kept.get(record.key)
            if known is None or not self._is_older(record, known):
                kept[record.key] = record
        return list(kept.values())

    def _is_older(self, record: Record, known: Record) -> bool:
        if self._version is None:
            return False
        mine, theirs = record.values[self._version], known.values[self._version]
        if mine is None or theirs is None:
            return mine is None and theirs is not None
        return bool(mine < theirs)  # type: ignore[operator]


def content_digest(values: Sequence[object]) -> bytes:
    """Hash the declared fields only, the same in every process and version."""
    text = encode_canonically(values)
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def canonical(value: object) -> str:
    return format_instant(value) if isinstance(value, datetime) else str(value)


# built once: json.dumps would build an encoder for every record
encode_canonically = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=canonical
).encode


def compile_cast(field: Field) -> Cast:
    """Build the one function that checks and converts the values of a field."""
    convert = CONVERTERS[field.type](field)
    checks = tuple(compile_checks(field))
    required, default = field.required, field.default

    def cast(value: object) -> object:
        if value is not None:
            value = convert(value)
        if value is None:
            if required:
                raise BadValue(Reason.MISSING, "is required, and missing or empty")
            return default
        for check in checks:
            check(value)
        return value

    return cast


def compile_checks(field: Field) -> Iterable[Check]:
    """Yield only the checks that the field declares."""
    if field.min is not None or field.max is not None:
        yield range_check(field.min, field.max)
    if field.max_length is not None:
        yield length_check(field.max_length)
    if field.pattern is not None:
        yield pattern_check(field.pattern)
    if field.choices is not None:
        yield choice_check(field.choices)


def range_check(low: float | None, high: float | None) -> Check:
    lowest = -math.inf if low is None else low
    highest = math.inf if high is None else high

    def check(value: Any) -> None:
        if not lowest <= value <= highest:
            raise BadValue(Reason.RANGE, f"{value!r} is not in {lowest:g}..{highest:g}")

    return check


def length_check(longest: int) -> Check:
    def check(value: Any) -> None:
        if len(value) > longest:
            told = f"{len(value)} characters are more than {longest}"
            raise BadValue(Reason.LENGTH, told)

    return check


def pattern_check(pattern: str) -> Check:
    fits = re.compile(pattern).search

    def check(value: Any) -> None:
        if fits(value) is None:
            told = f"{shorten(value)} does not match {pattern}"
            raise BadValue(Reason.PATTERN, told)

    return check


def choice_check(choices: Sequence[object]) -> Check:
    allowed = frozenset(choices)

    def check(value: Any) -> None:
        if value not in allowed:
            known = ", ".join(map(str, choices))
            raise BadValue(Reason.CHOICE, f"{shorten(value)} is not one of {known}")

    return check


def shorten(value: object, limit: int = 60) -> str:
    try:
        told = repr(value)
    except (ValueError, RecursionError):
        # thousands of digits, or of levels
        told = "a value too large to be shown"
    return told if len(told) <= limit else f"{told[: limit - 1]}…"


def wrong_type(field: Field, value: object) -> BadValue:
    kinds = {dict: "an object", list: "a list", bool: "a truth value"}
    told = kinds.get(type(value), shorten(value))
    return BadValue(Reason.TYPE, f"{told} is not of type {field.type}")


def text_converter(field: Field) -> Cast:
    trim = field.trim

    def convert(value: object) -> object:
        if isinstance(value, str):
            if "\x00" in value:
                raise BadValue(Reason.TYPE, "holds a NUL character")
            if not is_unicode(value):
                raise BadValue(Reason.TYPE, HALF)
            return (value.strip() if trim else value) or None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type(field, value)
        try:
            return str(value)
        except ValueError:
            # more digits than Python is willing to write
            raise wrong_type(field, value) from None

    return convert


def is_unicode(text: str) -> bool:
    """Say whether a text can be stored at all."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def int_converter(field: Field) -> Cast:
    def convert(value: object) -> object:
        if isinstance(value, str):
            value = value.strip()
            if not value:
                return None
            if WHOLE.fullmatch(value) is None:
                raise wrong_type(field, value)
            try:
                value = int(value)
            except ValueError:
                # more digits than Python is willing to read
                raise wrong_type(field, value) from None
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong_type(field, value)
        if not SMALLEST_INT <= value <= LARGEST_INT:
            raise BadValue(Reason.RANGE, f"{shorten(value)} does not fit in 64 bits")
        return value

    return convert


def float_converter(field: Field) -> Cast:
    def convert(value: object) -> object:
        if isinstance(value, str):
            value = value.strip()
            if not value:
                return None
            if DECIMAL.fullmatch(value) is None:
                raise wrong_type(field, value)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type(field, value)
        try:
            number = float(value)
        except (ValueError, OverflowError):
            raise wrong_type(field, value) from None
        if not math.isfinite(number):
            raise BadValue(Reason.RANGE, f"{value!r} is not a finite number")
        # the two zeros are equal, but not as text
        return number or 0.0

    return convert


def bool_converter(field: Field) -> Cast:
    def convert(value: object) -> object:
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            word = value.strip().casefold()
            if not word:
                return None
            if word in TRUE_WORDS:
                return True
            if word in FALSE_WORDS:
                return False
        if isinstance(value, int) and value in {0, 1}:
            return bool(value)
        raise wrong_type(field, value)

    return convert


def date_converter(field: Field) -> Cast:
    form = field.format

    def convert(value: object) -> object:
        if not isinstance(value, str):
            raise wrong_type(field, value)
        text = value.strip()
        if not text:
            return None
        try:
            if form is None:
                return date.fromisoformat(text)
            return datetime.strptime(text, form).date()  # noqa: DTZ007 (a day has no zone)
        except ValueError:
            raise wrong_type(field, value) from None

    return convert


def timestamp_converter(field: Field) -> Cast:
    form = field.format

    def convert(value: object) -> object:
        if not isinstance(value, str):
            raise wrong_type(field, value)
        text = value.strip()
        if not text:
            return None
        try:
            if form is None:
                instant = datetime.fromisoformat(text)
            else:
                instant = datetime.strptime(text, form)  # noqa: DTZ007 (set below)
        except ValueError:
            raise wrong_type(field, value) from None
        return in_utc(instant)

    return convert


def json_converter(field: Field) -> Cast:
    def convert(value: object) -> object:
        try:
            text = json.dumps(
                value,
                ensure_ascii=False,
                sort_keys=True,
                separators=(",", ":"),
                allow_nan=False,
            )
        except (TypeError, ValueError, RecursionError):
            raise wrong_type(field, value) from None
        if not is_unicode(text):
            raise BadValue(Reason.TYPE, HALF)
        return text

    return convert


CONVERTERS: dict[FieldType, Callable[[Field], Cast]] = {
    FieldType.TEXT: text_converter,
    FieldType.INT: int_converter,
    FieldType.FLOAT: float_converter,
    FieldType.BOOL: bool_converter,
    FieldType.DATE: date_converter,
    FieldType.TIMESTAMP: timestamp_converter,
    FieldType.JSON: json_converter,
}
