"""The tables of shard axes."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from string import Formatter
from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, PlainValidator, Tag

from penstock.domain.formats import EPOCH
from penstock.domain.time_formats import format_unit
from penstock.settings.models.base import (
    LARGEST_INT,
    Count,
    Duration,
    Instant,
    RecordPath,
    Text,
    TimeFormat,
    TomlModel,
)
from penstock.settings.units import format_duration
from penstock.settings.validation_errors import InvalidValue, Problem

EDGES = ("south", "west", "north", "east")
MAX_DECIMALS = 9
# the window of a time axis without step
ONE_WINDOW = timedelta(days=36_500)

Bounds: TypeAlias = Literal["[)", "[]", "(]", "()"]
WholeNumber: TypeAlias = Annotated[int, Field(ge=-LARGEST_INT, le=LARGEST_INT)]


def as_list_value(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidValue("must be text or a whole number")
    if value == "":
        raise InvalidValue("must not be empty")
    return str(value)


def as_degrees(value: object) -> Decimal:
    """Check a number of degrees, exactly as written."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise InvalidValue("must be a number of degrees, such as 47.2")
    degrees = Decimal(value)
    if not degrees.is_finite() or abs(degrees) > 360:  # noqa: PLR2004
        raise InvalidValue("is no number of degrees")
    if degrees != round(degrees, MAX_DECIMALS):
        raise InvalidValue(f"must have at most {MAX_DECIMALS} decimals")
    return degrees


def shape_of(value: object) -> str | None:
    shapes: dict[type, str] = {str: "text", list: "list", dict: "table"}
    return shapes.get(type(value))


Degrees: TypeAlias = Annotated[Decimal, PlainValidator(as_degrees)]
ListValue: TypeAlias = Annotated[str, PlainValidator(as_list_value)]


class ValuesTable(TomlModel):
    dataset: Text
    field: Text


class ListTable(TomlModel):
    kind: Literal["list"]
    values: Annotated[
        Annotated[list[ListValue], Field(min_length=1), Tag("list")]
        | Annotated[ValuesTable, Tag("table")],
        Discriminator(
            shape_of,
            custom_error_type="shape",
            custom_error_message="must be a list, or { dataset = …, field = … }",
        ),
    ]
    send: Text | None = None
    check: RecordPath | None = None

    def rules(self) -> Iterator[Problem]:
        if isinstance(self.values, list) and len({*self.values}) < len(self.values):
            yield ("values",), "names a value twice"


class LimitsTable(TomlModel):
    start: Text | None = Field(default=None, alias="from")
    until: Text | None = None

    def rules(self) -> Iterator[Problem]:
        if self.start is None and self.until is None:
            yield (), "must name a parameter for from, until or both"
        elif self.start == self.until:
            yield ("until",), "is the same parameter as from"


class TimeTable(TomlModel):
    kind: Literal["time"]
    start: Instant = Field(alias="from")
    until: Instant | None = None
    step: Duration | None = None
    send: LimitsTable
    format: TimeFormat = "%Y-%m-%dT%H:%M:%SZ"
    bounds: Bounds = "[)"
    check: RecordPath | None = None
    smallest: Duration | None = None

    @property
    def window(self) -> timedelta:
        """The length of one window."""
        if self.step is not None:
            return self.step
        return ONE_WINDOW if self.until is None else self.until - self.start

    @property
    def is_one_window(self) -> bool:
        if self.until is None:
            return self.step is None
        return self.until - self.start <= self.window

    @property
    def is_open(self) -> bool:
        """Whether only one end of a window is sent to the provider."""
        return self.send.start is None or self.send.until is None

    def rules(self) -> Iterator[Problem]:
        if self.until is not None and self.until <= self.start:
            yield ("until",), "must be later than from"
        if self.step is not None and self.step % timedelta(seconds=1):
            yield ("step",), "must be whole seconds"
        yield from self.precision_rules()
        if self.smallest is not None and self.smallest > self.window:
            yield ("smallest",), "must not be longer than step"
        if self.is_open and not self.is_one_window:
            given, missing, reach = ("from", "until", "up to now")
            if self.send.start is None:
                given, missing, reach = ("until", "from", "from the beginning")
            message = f"names only a parameter for {given}, so every window would read"
            remedy = f"add {missing}, or leave out step to read one window"
            yield ("send",), f"{message} {reach}: {remedy}"

    def precision_rules(self) -> Iterator[Problem]:
        """Yield the times that the format cannot represent."""
        unit = format_unit(self.format)
        until = None if self.until is None else self.until - EPOCH
        for key, length in (
            ("from", self.start - EPOCH),
            ("until", until),
            ("step", self.step),
        ):
            if length is not None and length % unit:
                message = f"must be whole units of {format_duration(unit)}"
                yield (key,), f"{message}: format {self.format!r} tells no finer time"


class RangeTable(TomlModel):
    kind: Literal["range"]
    start: WholeNumber = Field(alias="from")
    until: WholeNumber
    step: Count
    send: LimitsTable | None = None
    bounds: Bounds = "[)"
    check: RecordPath | None = None
    smallest: Count = 1

    def rules(self) -> Iterator[Problem]:
        if self.until <= self.start:
            yield ("until",), "must be greater than from"
        if self.smallest > self.step:
            yield ("smallest",), "must not be greater than step"
        if self.send is None and "bounds" in self.model_fields_set:
            yield ("bounds",), "has no meaning without send"


class EdgesTable(TomlModel):
    south: Text
    west: Text
    north: Text
    east: Text

    @property
    def names(self) -> dict[str, str]:
        return {edge: getattr(self, edge) for edge in EDGES}

    def rules(self) -> Iterator[Problem]:
        if len({*self.names.values()}) < len(EDGES):
            yield (), "names a parameter twice"


class BboxTable(TomlModel):
    kind: Literal["bbox"]
    area: Annotated[list[Degrees], Field(min_length=4, max_length=4)]
    step: Degrees
    send: Annotated[
        Annotated[Text, Tag("text")] | Annotated[EdgesTable, Tag("table")],
        Discriminator(
            shape_of,
            custom_error_type="shape",
            custom_error_message="must be text, or a table of the four edges",
        ),
    ]
    format: Text = "{south},{west},{north},{east}"
    check: Annotated[list[RecordPath], Field(min_length=2, max_length=2)] | None = None
    smallest: Degrees | None = None

    def rules(self) -> Iterator[Problem]:
        south, west, north, east = self.area
        if not -90 <= south < north <= 90:  # noqa: PLR2004
            message = (
                "must be [south, west, north, east] with -90 <= south < north <= 90"
            )
            yield ("area",), message
        if not (-180 <= west <= 180 and -180 <= east <= 180) or west == east:  # noqa: PLR2004
            yield ("area",), "west and east must differ and lie in -180..180"
        if self.step <= 0:
            yield ("step",), "must be greater than 0"
        if self.smallest is not None and not 0 < self.smallest <= self.step:
            yield ("smallest",), "must be greater than 0 and not greater than step"
        if not isinstance(self.send, str) and "format" in self.model_fields_set:
            yield ("format",), "has no meaning when each edge is its own parameter"
        if not is_edge_format(self.format):
            placeholders = " ".join(f"{{{edge}}}" for edge in EDGES)
            yield ("format",), f"must hold {placeholders}, and no other braces"


def is_edge_format(form: str) -> bool:
    try:
        parsed = [*Formatter().parse(form)]
    except ValueError:
        return False
    named = [(name, spec, how) for _, name, spec, how in parsed if name is not None]
    plain = all(not spec and how is None for _, spec, how in named)
    return plain and {name for name, _, _ in named} == {*EDGES}


AxisTable: TypeAlias = Annotated[
    ListTable | TimeTable | RangeTable | BboxTable, Field(discriminator="kind")
]
