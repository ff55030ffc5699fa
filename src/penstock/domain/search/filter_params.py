"""Parse a query from the parameters of a URL; all errors are reported at once."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple

from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.domain.formats import is_unicode
from penstock.domain.search import value_syntax
from penstock.domain.search.query import (
    Condition,
    Op,
    Query,
    field_named,
    filterable_fields,
)
from penstock.errors import BadRequest, FieldError

DEFAULT_LIMIT = 50
MAX_ROWS = 200
MAX_CONDITIONS = 10
MAX_CONDITIONS_PER_FIELD = 3
MAX_IN_VALUES = 200
# characters of one condition, including its operator
MAX_CONDITION_LENGTH = 600
MAX_IN_LENGTH = 4_000
# characters of one part of a key
MAX_KEY_PART_LENGTH = 600
# errors in one response; the first ones suggest the name that was probably meant,
# which takes a millisecond each
MAX_PARAM_ERRORS, MAX_NAMES_SUGGESTED = 20, 3
# before the name of a field that has the name of a reserved parameter
FIELD_PREFIX = "field."
RESERVED_PARAMS = frozenset({"sort", "limit", "cursor", "fields"})
EXPORT_PARAMS = frozenset({"sort", "fields", "format", "raw"})
# rows that are read at once, for an export
EXPORT_BATCH = 1_000
# the parameter of datasets that have an archive
ARCHIVED = "archived"
# lists: given several times, or with commas
LIST_PARAMS = frozenset({"fields", "by"})

parse_int = value_syntax.parse_int


class ExportFormat(StrEnum):
    """The formats of a streamed export."""

    JSONL = "jsonl"
    CSV = "csv"


class Export(NamedTuple):
    query: Query
    form: ExportFormat
    # whether text that a spreadsheet would run stays as it is
    raw: bool


@dataclass
class ParamReader:
    """Collects the errors in the parameters of one request."""

    dataset: Dataset
    flaws: list[FieldError] = field(default_factory=list)

    def flaw(self, parameter: str, code: str, detail: str) -> None:
        self.flaws.append(FieldError(pointer=f"?{parameter}", code=code, detail=detail))
        if len(self.flaws) >= MAX_PARAM_ERRORS:
            self.finish()

    def remedy(self, name: str, names: Iterable[str], *, otherwise: str) -> str:
        """Suggest the most similar of the names that are allowed."""
        is_suggested = len(self.flaws) < MAX_NAMES_SUGGESTED
        close = get_close_matches(name, [*names], n=1) if is_suggested else []
        return f"did you mean {close[0]!r}?" if close else otherwise

    def finish(self) -> None:
        if self.flaws:
            raise BadRequest(*self.flaws)


def read_query(
    dataset: Dataset, given: Iterable[tuple[str, str]], *, most: int = MAX_ROWS
) -> tuple[Query, str | None]:
    """Return the requested query, and its cursor as text."""
    reader = ParamReader(dataset)
    own, conditions = split_params(reader, given, reserved=reserved_params(dataset))
    sort, descending = read_sort(reader, own.get("sort"))
    query = Query(
        dataset=read_archived(reader, own.get(ARCHIVED)),
        conditions=conditions,
        sort=sort,
        descending=descending,
        fields=read_fields(reader, own.get("fields")),
        limit=read_limit(reader, own.get("limit"), most=most),
    )
    reader.finish()
    return query, own.get("cursor")


def read_export(dataset: Dataset, given: Iterable[tuple[str, str]]) -> Export:
    """Return which rows to export, and how."""
    reader = ParamReader(dataset)
    own, conditions = split_params(reader, given, reserved=EXPORT_PARAMS)
    sort, descending = read_sort(reader, own.get("sort"))
    form, raw = own.get("format", ExportFormat.JSONL), own.get("raw", "false")
    if form not in {*ExportFormat}:
        reader.flaw("format", "choice", f"must be one of {', '.join(ExportFormat)}")
    if raw not in {"true", "false"}:
        reader.flaw("raw", "type", "must be true or false")
    query = Query(
        dataset=dataset,
        conditions=conditions,
        sort=sort,
        descending=descending,
        fields=read_fields(reader, own.get("fields")),
        limit=EXPORT_BATCH,
    )
    reader.finish()
    return Export(query, ExportFormat(form), raw == "true")


def reserved_params(dataset: Dataset) -> frozenset[str]:
    """Return the parameters of a list that are no conditions on fields."""
    return RESERVED_PARAMS if dataset.archive is None else RESERVED_PARAMS | {ARCHIVED}


def read_archived(reader: ParamReader, text: str | None) -> Dataset:
    """Return the dataset, or its archive if that is requested."""
    if text not in {None, "true", "false"}:
        reader.flaw(ARCHIVED, "value", "takes true or false")
    return reader.dataset.archived if text == "true" else reader.dataset


def read_own_params(
    reader: ParamReader, given: Iterable[tuple[str, str]], allowed: Collection[str]
) -> dict[str, str]:
    """Return parameters of a route that takes no conditions on fields."""
    own: dict[str, str] = {}
    for name, value in given:
        if name not in allowed:
            detail = f"is no parameter here; use {', '.join(sorted(allowed))}"
            reader.flaw(name, "unknown-parameter", detail)
        else:
            add_own(reader, own, name, value)
    return own


def add_own(reader: ParamReader, own: dict[str, str], name: str, value: str) -> None:
    if name in own and name in LIST_PARAMS:
        own[name] = f"{own[name]},{value}"
        return
    if name in own:
        reader.flaw(name, "repeated", "is given twice; give it once")
    own[name] = value


def refuse_all_params(given: Iterable[tuple[str, str]]) -> None:
    """Raise `BadRequest` for parameters of a route that takes none."""
    detail = "is no parameter here; this address takes none"
    flaws = [
        FieldError(pointer=f"?{name}", code="unknown-parameter", detail=detail)
        for name, _ in given
    ]
    if flaws:
        raise BadRequest(*flaws)


def split_params(
    reader: ParamReader,
    given: Iterable[tuple[str, str]],
    *,
    reserved: frozenset[str] = RESERVED_PARAMS,
) -> tuple[dict[str, str], tuple[Condition, ...]]:
    """Separate reserved parameters from conditions on fields."""
    own: dict[str, str] = {}
    conditions = []
    allowed = filterable_fields(reader.dataset)
    for name, value in given:
        if name in reserved:
            add_own(reader, own, name, value)
            continue
        field_name = name.removeprefix(FIELD_PREFIX)
        if field_name in allowed:
            condition = read_condition(reader, name, allowed[field_name], value)
            if condition is not None:
                conditions.append(condition)
        else:
            refuse_unknown(reader, name, field_name, [*allowed, *sorted(reserved)])
    check_counts(reader, conditions)
    return own, tuple(conditions)


def check_counts(reader: ParamReader, conditions: Sequence[Condition]) -> None:
    if len(conditions) > MAX_CONDITIONS:
        detail = f"{len(conditions)} conditions are more than {MAX_CONDITIONS}"
        reader.flaws.append(FieldError(pointer="?", code="too-many", detail=detail))
    counts = Counter(condition.field.name for condition in conditions)
    for name, times in counts.items():
        if times > MAX_CONDITIONS_PER_FIELD:
            detail = f"has {times} conditions, more than {MAX_CONDITIONS_PER_FIELD}"
            reader.flaw(name, "too-many", detail)


def refuse_unknown(
    reader: ParamReader, name: str, field_name: str, allowed: Sequence[str]
) -> None:
    if any(field.name == field_name for field in reader.dataset.fields):
        detail = (
            "has no index; add it to 'filter' of the dataset, "
            f"or use one of {', '.join(allowed)}"
        )
        reader.flaw(name, "not-filterable", detail)
        return
    remedy = reader.remedy(field_name, allowed, otherwise=f"use {', '.join(allowed)}")
    reader.flaw(name, "unknown-parameter", f"is no parameter here; {remedy}")


def read_condition(
    reader: ParamReader, parameter: str, of: Field, text: str
) -> Condition | None:
    op_text, dot, value = text.partition(".")
    try:
        op = Op(op_text)
    except ValueError:
        op = None
    if op is None or not dot:
        ops = ", ".join(Op)
        detail = f"is written operator.value, with one of {ops}: {parameter}=eq.…"
        reader.flaw(parameter, "operator", detail)
        return None
    max_length = MAX_IN_LENGTH if op is Op.IN else MAX_CONDITION_LENGTH
    if len(text) > max_length:
        reader.flaw(parameter, "length", f"has more than {max_length} characters")
        return None
    try:
        return Condition(of, op, operand(of, op, value))
    except ValueError as error:
        reader.flaw(parameter, "value", str(error))
        return None


def operand(of: Field, op: Op, text: str) -> object:
    match op:
        case Op.ISNULL:
            if text not in {"true", "false"}:
                raise ValueError("isnull takes true or false")
            return text == "true"
        case Op.IN:
            values = value_syntax.choices(text)
            if values is None or len(values) > MAX_IN_VALUES:
                raise ValueError(
                    f"in takes 1 to {MAX_IN_VALUES} values with commas between them; "
                    'write "…" around one that holds a comma'
                )
            return tuple(dict.fromkeys(read_value(of, value) for value in values))
        case Op.PREFIX:
            if of.type is not FieldType.TEXT:
                raise ValueError(f"prefix is for text, not for {of.type}")
            return read_value(of, text)
        case Op.EQ | Op.NE | Op.LT | Op.LTE | Op.GT | Op.GTE:
            return read_value(of, text)


def read_value(of: Field, text: str) -> object:
    """Parse a value of a field; raises `ValueError` with a message for the client."""
    if "\x00" in text or not is_unicode(text):
        raise ValueError("holds a character that no text has")
    value = READERS[of.type](text)
    if value is None:
        raise ValueError(f"{text[:60]!r} is not {EXPECTED[of.type]}")
    return value


READERS: Mapping[FieldType, Callable[[str], object]] = {
    FieldType.TEXT: str,
    FieldType.INT: value_syntax.parse_int,
    FieldType.FLOAT: value_syntax.number,
    FieldType.DECIMAL: value_syntax.decimal,
    FieldType.BOOL: value_syntax.truth,
    FieldType.DATE: value_syntax.parse_date,
    FieldType.TIMESTAMP: value_syntax.instant,
    FieldType.JSON: lambda _: None,
}
EXPECTED = {
    FieldType.TEXT: "text",
    FieldType.INT: "a whole number",
    FieldType.FLOAT: "a number",
    FieldType.DECIMAL: "a number without an exponent",
    FieldType.BOOL: "true or false",
    FieldType.DATE: "a date such as 2026-01-31",
    FieldType.TIMESTAMP: "a time such as 2026-01-31T12:00:00Z",
    FieldType.JSON: "comparable: JSON is not filtered by",
}


def read_sort(reader: ParamReader, text: str | None) -> tuple[Field | None, bool]:
    """Parse `-points`, or `-points,-id`: a field, optionally followed by the key."""
    if text is None:
        return None, False
    signed = [part.strip() for part in text.split(",")]
    names = [part.removeprefix("-") for part in signed]
    descending = signed[0].startswith("-")
    flaw = sort_flaw(reader.dataset, signed, names)
    if flaw is not None:
        reader.flaw("sort", *flaw)
        return None, False
    # after the first part of the key, all that follows is in key order anyway
    is_key = names[0] == reader.dataset.key[0]
    return None if is_key else field_named(reader.dataset, names[0]), descending


def sort_flaw(
    dataset: Dataset, signed: Sequence[str], names: Sequence[str]
) -> tuple[str, str] | None:
    """Return code and detail of an order that no index has, or None."""
    allowed, key = filterable_fields(dataset), list(dataset.key)
    unknown = [name for name in names if name not in allowed]
    if unknown:
        detail = f"{unknown[0]!r} is not sorted by; use one of {', '.join(allowed)}"
        return "not-sortable", detail
    if len({part.startswith("-") for part in signed}) > 1:
        detail = "mixes ascending and descending; an index reads in one direction"
        return "mixed-directions", detail
    if list(names) != key and list(names[1:]) not in ([], key):
        detail = f"takes one field and after it only the key, {', '.join(key)}"
        return "too-many", detail
    return None


def read_fields(reader: ParamReader, text: str | None) -> tuple[Field, ...]:
    fields = reader.dataset.fields
    if text is None:
        return fields
    by_name = {field.name: field for field in fields}
    names = [*dict.fromkeys(part.strip() for part in text.split(","))]
    for name in names:
        if name not in by_name:
            remedy = reader.remedy(name, by_name, otherwise="see the dataset")
            reader.flaw("fields", "unknown-field", f"{name!r} is no field; {remedy}")
    return tuple(by_name[name] for name in names if name in by_name)


def read_limit(
    reader: ParamReader,
    text: str | None,
    *,
    default: int = DEFAULT_LIMIT,
    most: int = MAX_ROWS,
) -> int:
    if text is None:
        return min(default, most)
    limit = parse_int(text)
    if limit is None or not 1 <= limit <= most:
        reader.flaw("limit", "range", f"must be a whole number from 1 to {most}")
        return 1
    return limit
