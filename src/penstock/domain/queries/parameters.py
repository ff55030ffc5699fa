"""Read a query from the parameters of a URL; every flaw is named, none is guessed."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.domain.queries import forms
from penstock.domain.queries.query import (
    Condition,
    Op,
    Query,
    field_named,
    filterable,
)
from penstock.errors import BadRequest, Flaw

DEFAULT_LIMIT, MOST_ROWS = 50, 200
MOST_CONDITIONS, MOST_OF_A_FIELD = 10, 3
MOST_CHOICES = 200
# characters of one condition, its operator included
LONGEST_CONDITION, LONGEST_CHOICES = 600, 4_000
# characters of one part of a key
LONGEST_VALUE = 600
# before the name of a field that is called like one of our own parameters
PREFIX = "field."
RESERVED = frozenset({"sort", "limit", "cursor", "fields"})

whole, number = forms.whole, forms.number


@dataclass
class Reading:
    """One reading of parameters: what was understood, and what was not."""

    dataset: Dataset
    flaws: list[Flaw] = field(default_factory=list)

    def flaw(self, parameter: str, code: str, detail: str) -> None:
        self.flaws.append(Flaw(pointer=f"?{parameter}", code=code, detail=detail))

    def finish(self) -> None:
        if self.flaws:
            raise BadRequest(*self.flaws)


def read_query(
    dataset: Dataset, given: Iterable[tuple[str, str]], *, most: int = MOST_ROWS
) -> tuple[Query, str | None]:
    """Return the query that was asked, and its cursor as it was written."""
    reading = Reading(dataset)
    own, conditions = split(reading, given)
    sort, descending = read_sort(reading, own.get("sort"))
    query = Query(
        dataset=dataset,
        conditions=conditions,
        sort=sort,
        descending=descending,
        fields=read_fields(reading, own.get("fields")),
        limit=read_limit(reading, own.get("limit"), most=most),
    )
    reading.finish()
    return query, own.get("cursor")


def only(
    reading: Reading, given: Iterable[tuple[str, str]], allowed: Collection[str]
) -> dict[str, str]:
    """Read parameters where there are no conditions on fields."""
    own: dict[str, str] = {}
    for name, value in given:
        if name not in allowed:
            told = f"is no parameter here; use {', '.join(sorted(allowed))}"
            reading.flaw(name, "unknown-parameter", told)
        elif name in own:
            reading.flaw(name, "repeated", "is given twice; give it once")
        own[name] = value
    return own


def refuse_all(given: Iterable[tuple[str, str]]) -> None:
    """Refuse parameters where there are none."""
    told = "is no parameter here; this address takes none"
    flaws = [
        Flaw(pointer=f"?{name}", code="unknown-parameter", detail=told)
        for name, _ in given
    ]
    if flaws:
        raise BadRequest(*flaws)


def split(
    reading: Reading,
    given: Iterable[tuple[str, str]],
    *,
    reserved: frozenset[str] = RESERVED,
) -> tuple[dict[str, str], tuple[Condition, ...]]:
    """Tell our own parameters from the conditions on fields."""
    own: dict[str, str] = {}
    conditions = []
    allowed = filterable(reading.dataset)
    for name, value in given:
        if name in reserved:
            if name in own:
                reading.flaw(name, "repeated", "is given twice; give it once")
            own[name] = value
            continue
        wanted = name.removeprefix(PREFIX)
        if wanted in allowed:
            found = read_condition(reading, name, allowed[wanted], value)
            if found is not None:
                conditions.append(found)
        else:
            refuse_unknown(reading, name, wanted, [*allowed, *sorted(reserved)])
    hold_bounds(reading, conditions)
    return own, tuple(conditions)


def hold_bounds(reading: Reading, conditions: Sequence[Condition]) -> None:
    if len(conditions) > MOST_CONDITIONS:
        told = f"{len(conditions)} conditions are more than {MOST_CONDITIONS}"
        reading.flaws.append(Flaw(pointer="?", code="too-many", detail=told))
    for name, times in Counter(each.field.name for each in conditions).items():
        if times > MOST_OF_A_FIELD:
            told = f"has {times} conditions, more than {MOST_OF_A_FIELD}"
            reading.flaw(name, "too-many", told)


def refuse_unknown(
    reading: Reading, name: str, wanted: str, allowed: Sequence[str]
) -> None:
    if any(each.name == wanted for each in reading.dataset.fields):
        told = (
            "has no index; add it to 'filter' of the dataset, "
            f"or use one of {', '.join(allowed)}"
        )
        reading.flaw(name, "not-filterable", told)
        return
    close = get_close_matches(wanted, allowed, n=1)
    remedy = f"did you mean {close[0]!r}?" if close else f"use {', '.join(allowed)}"
    reading.flaw(name, "unknown-parameter", f"is no parameter here; {remedy}")


def read_condition(
    reading: Reading, parameter: str, of: Field, text: str
) -> Condition | None:
    op_text, dot, value = text.partition(".")
    try:
        op = Op(op_text)
    except ValueError:
        op = None
    if op is None or not dot:
        ops = ", ".join(Op)
        told = f"is written operator.value, with one of {ops}: {parameter}=eq.…"
        reading.flaw(parameter, "operator", told)
        return None
    longest = LONGEST_CHOICES if op is Op.IN else LONGEST_CONDITION
    if len(text) > longest:
        reading.flaw(parameter, "length", f"has more than {longest} characters")
        return None
    try:
        return Condition(of, op, operand(of, op, value))
    except ValueError as error:
        reading.flaw(parameter, "value", str(error))
        return None


def operand(of: Field, op: Op, text: str) -> object:
    match op:
        case Op.ISNULL:
            if text not in {"true", "false"}:
                raise ValueError("isnull takes true or false")
            return text == "true"
        case Op.IN:
            values = forms.choices(text)
            if values is None or len(values) > MOST_CHOICES:
                raise ValueError(
                    f"in takes 1 to {MOST_CHOICES} values with commas between them; "
                    'write "…" around one that holds a comma'
                )
            return tuple(dict.fromkeys(read_value(of, each) for each in values))
        case Op.PREFIX:
            if of.type is not FieldType.TEXT:
                raise ValueError(f"prefix is for text, not for {of.type}")
            return read_value(of, text)
        case Op.EQ | Op.NE | Op.LT | Op.LTE | Op.GT | Op.GTE:
            return read_value(of, text)


def read_value(of: Field, text: str) -> object:
    """Read a value as its field has it; raises `ValueError` with a sentence."""
    if "\x00" in text or not is_text(text):
        raise ValueError("holds a character that no text has")
    value = READERS[of.type](text)
    if value is None:
        raise ValueError(f"{text[:60]!r} is not {WANTED[of.type]}")
    return value


def is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


READERS: Mapping[FieldType, Callable[[str], object]] = {
    FieldType.TEXT: str,
    FieldType.INT: forms.whole,
    FieldType.FLOAT: forms.number,
    FieldType.BOOL: forms.truth,
    FieldType.DATE: forms.day,
    FieldType.TIMESTAMP: forms.instant,
    FieldType.JSON: lambda _: None,
}
WANTED = {
    FieldType.TEXT: "text",
    FieldType.INT: "a whole number",
    FieldType.FLOAT: "a number",
    FieldType.BOOL: "true or false",
    FieldType.DATE: "a date such as 2026-01-31",
    FieldType.TIMESTAMP: "a time such as 2026-01-31T12:00:00Z",
    FieldType.JSON: "comparable: JSON is not filtered by",
}


def read_sort(reading: Reading, text: str | None) -> tuple[Field | None, bool]:
    """Read `-points`, or `-points,-id`: a field, and behind it nothing but the key."""
    if text is None:
        return None, False
    signed = [each.strip() for each in text.split(",")]
    names = [each.removeprefix("-") for each in signed]
    descending = signed[0].startswith("-")
    flaw = sort_flaw(reading.dataset, signed, names)
    if flaw is not None:
        reading.flaw("sort", *flaw)
        return None, False
    # the key itself decides before anything behind it is looked at
    is_key = names[0] == reading.dataset.key[0]
    return None if is_key else field_named(reading.dataset, names[0]), descending


def sort_flaw(
    dataset: Dataset, signed: Sequence[str], names: Sequence[str]
) -> tuple[str, str] | None:
    """Say what no index could give."""
    allowed, key = filterable(dataset), list(dataset.key)
    unknown = [each for each in names if each not in allowed]
    if unknown:
        told = f"{unknown[0]!r} is not sorted by; use one of {', '.join(allowed)}"
        return "not-sortable", told
    if len({each.startswith("-") for each in signed}) > 1:
        told = "goes up and down at once; an index reads in one direction"
        return "mixed-directions", told
    if list(names) != key and list(names[1:]) not in ([], key):
        told = f"takes one field and behind it only the key, {', '.join(key)}"
        return "too-many", told
    return None


def read_fields(reading: Reading, text: str | None) -> tuple[Field, ...]:
    fields = reading.dataset.fields
    if text is None:
        return fields
    by_name = {each.name: each for each in fields}
    wanted = [*dict.fromkeys(each.strip() for each in text.split(","))]
    for name in wanted:
        if name not in by_name:
            close = get_close_matches(name, by_name, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else "see the dataset"
            reading.flaw("fields", "unknown-field", f"{name!r} is no field; {remedy}")
    return tuple(by_name[name] for name in wanted if name in by_name)


def read_limit(
    reading: Reading,
    text: str | None,
    *,
    usual: int = DEFAULT_LIMIT,
    most: int = MOST_ROWS,
) -> int:
    if text is None:
        return min(usual, most)
    limit = whole(text)
    if limit is None or not 1 <= limit <= most:
        reading.flaw("limit", "range", f"must be a whole number from 1 to {most}")
        return 1
    return limit
