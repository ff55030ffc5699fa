"""The base of all tables of `penstock.toml`, shared types, [penstock] and [budgets]."""

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from penstock.domain.budget import MAX_RESERVATION_AHEAD, Limit
from penstock.domain.mapping.written_numbers import WrittenNumber
from penstock.domain.source import Path, parse_path
from penstock.settings import units
from penstock.settings.urls import (
    SQLITE,
    as_broker,
    as_database,
    as_redis,
    as_replica,
    as_schema,
)
from penstock.settings.validation_errors import (
    InvalidValue,
    Problem,
    RuleViolations,
    describe_type,
)

LARGEST_INT = 2**63 - 1
NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
BUDGET_NAME = re.compile(r"[a-z][a-z0-9_-]{0,47}")
RESERVED_PREFIXES = ("penstock_", "sqlite_")
QUEUE_NAME = BUDGET_NAME
# a shorter time is a mistake in the unit
MIN_RETENTION = timedelta(hours=1)
TRANSFORM = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class TomlModel(BaseModel):
    """One table of the file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def remember(cls, given: object, info: ValidationInfo) -> object:
        """Record the model of each table, for messages on unknown keys."""
        if isinstance(given, dict) and info.context is not None:
            info.context[id(given)] = cls
        return given

    @model_validator(mode="after")
    def hold_rules(self) -> Self:
        broken = tuple(self.rules())
        if broken:
            raise RuleViolations(*broken)
        return self

    def rules(self) -> Iterator[Problem]:
        """Yield the violated rules between the keys of this table."""
        yield from ()


def as_name(value: str) -> str:
    if NAME.fullmatch(value) is None:
        raise InvalidValue(
            "is no name: use a to z, 0 to 9 and _, begin with a letter, at most 48"
        )
    return value


def as_own_name(value: str) -> str:
    if value.startswith(RESERVED_PREFIXES):
        raise InvalidValue(
            f"names that begin with {' or '.join(RESERVED_PREFIXES)} are taken"
        )
    return as_name(value)


def as_budget_name(value: str) -> str:
    if BUDGET_NAME.fullmatch(value) is None:
        raise InvalidValue(
            "is no name: use a to z, 0 to 9, _ and -, begin with a letter, at most 48"
        )
    return value


def as_queue(value: str) -> str:
    if QUEUE_NAME.fullmatch(value) is None:
        raise InvalidValue(
            "is no name: use a to z, 0 to 9, _ and -, begin with a letter, at most 48"
        )
    return value


def as_path(value: object) -> Path:
    path = as_path_or_top(value)
    if not path:
        raise InvalidValue("must not be empty: it is the path of a value in a record")
    return path


def as_path_or_top(value: object) -> Path:
    if not isinstance(value, str):
        raise InvalidValue("must be a path such as 'AddressInfo.Town'")
    path = parse_path(value)
    if not all(path):
        raise InvalidValue(f"{value!r} has an empty step between its dots")
    return path


def as_list(value: object) -> object:
    """Accept a single text in place of a list."""
    return [value] if isinstance(value, str) else value


def as_rates(value: object) -> object:
    rates = as_list(value)
    if not isinstance(rates, list):
        message = "must be text such as '20/s', or a list of them"
        raise InvalidValue(f"{message}, not {describe_type(value)}")
    return rates


def as_float(value: object) -> object:
    # the file is parsed with exact decimals, for the edges of areas
    return float(value) if isinstance(value, Decimal) else value


def with_digits(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    """Return a number with its text, which may have more digits than a float."""
    number = validate(value)
    return WrittenNumber(str(value)) if isinstance(value, Decimal | int) else number


def as_written(value: object) -> object:
    """Convert as `as_plain` does, but numbers have their text."""
    if isinstance(value, Decimal):
        try:
            return WrittenNumber(str(value))
        except ValueError:
            raise InvalidValue("holds a number that is not finite") from None
    return [*map(as_written, value)] if isinstance(value, list) else as_plain(value)


def as_plain(value: object) -> object:
    """Convert a TOML value to JSON types; times become ISO text."""
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise InvalidValue("holds a number that is not finite")
        return float(value)
    if isinstance(value, dict):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_plain(item) for item in value]
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    return value


def as_parameter(value: object) -> str:
    """Format a value as it is sent: true, 500, 47.50."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() < 20:  # noqa: PLR2004
        return format(value, "f")
    if not isinstance(value, str | int):
        raise InvalidValue("must be text, a number, true or false")
    return str(value)


Name: TypeAlias = Annotated[str, AfterValidator(as_name)]
OwnName: TypeAlias = Annotated[str, AfterValidator(as_own_name)]
Text: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Texts: TypeAlias = Annotated[list[Text], BeforeValidator(as_list)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=LARGEST_INT)]
CountOrNone: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST_INT)]
Number: TypeAlias = Annotated[
    float, BeforeValidator(as_float), Field(allow_inf_nan=False)
]
WrittenBound: TypeAlias = Annotated[Number, WrapValidator(with_digits)]
Ratio: TypeAlias = Annotated[Number, Field(ge=0, le=1)]
Duration: TypeAlias = Annotated[
    timedelta, PlainValidator(units.parse_positive_duration)
]
DurationOrNone: TypeAlias = Annotated[timedelta, PlainValidator(units.parse_duration)]
Instant: TypeAlias = Annotated[datetime, PlainValidator(units.parse_instant)]
TimeFormat: TypeAlias = Annotated[str, PlainValidator(units.parse_time_format)]
Rate: TypeAlias = Annotated[Limit, PlainValidator(units.parse_rate)]
Size: TypeAlias = Annotated[int, PlainValidator(units.parse_size)]
RecordPath: TypeAlias = Annotated[Path, PlainValidator(as_path)]
RecordPathOrTop: TypeAlias = Annotated[Path, PlainValidator(as_path_or_top)]
Parameter: TypeAlias = Annotated[str, PlainValidator(as_parameter)]


class Engine(StrEnum):
    LOCAL = "local"
    CELERY = "celery"


class PenstockTable(TomlModel):
    database: Annotated[str, PlainValidator(as_database)] = SQLITE
    replicas: list[Annotated[str, PlainValidator(as_replica)]] = Field(
        default_factory=list, max_length=16
    )
    redis: Annotated[str, PlainValidator(as_redis)] | None = None
    # `schema` is a method of pydantic
    schema_name: Annotated[Name, AfterValidator(as_schema)] = Field(
        default="penstock", alias="schema"
    )
    spool: Text = "spool"
    lease: Duration = timedelta(seconds=60)
    wait: DurationOrNone = timedelta(seconds=10)
    commit_timeout: Duration = timedelta(seconds=10)
    engine: Annotated[Engine, Field(strict=False)] = Engine.LOCAL
    broker: Annotated[str, PlainValidator(as_broker)] | None = None
    attempts: Annotated[int, Field(ge=1, le=1000)] = 8

    def rules(self) -> Iterator[Problem]:
        if self.wait > MAX_RESERVATION_AHEAD:
            message = f"is longer than {units.format_duration(MAX_RESERVATION_AHEAD)}"
            yield ("wait",), f"{message}, and no budget is reserved further ahead"
        is_sqlite = self.database.startswith("sqlite:")
        if is_sqlite and "schema_name" in self.model_fields_set:
            message = "SQLite has no schemas; remove it, or name a PostgreSQL database"
            yield ("schema",), message
        if is_sqlite and self.replicas:
            message = "SQLite has no replicas; remove it, or name a PostgreSQL database"
            yield ("replicas",), message
        if self.engine is Engine.CELERY and is_sqlite:
            message = "Celery's workers need a database server; name a PostgreSQL one"
            yield ("engine",), f"{message} in penstock.database, or remove it"
        if self.engine is Engine.CELERY and self.broker is None:
            yield ("broker",), "is required by engine = 'celery'"


class QueueType(StrEnum):
    CLASSIC = "classic"
    QUORUM = "quorum"


class CeleryTable(TomlModel):
    queue: Annotated[str, AfterValidator(as_queue)] = "penstock"
    queue_type: Annotated[QueueType, Field(strict=False)] = QueueType.CLASSIC
    outstanding: Annotated[int, Field(ge=1, le=10_000)] = 64
    slice: Duration = timedelta(seconds=30)
    resend_after: Duration = timedelta(seconds=60)


def as_retention(value: object) -> timedelta:
    length = units.parse_positive_duration(value)
    if length < MIN_RETENTION:
        raise InvalidValue(
            f"{value!r} is shorter than {units.format_duration(MIN_RETENTION)}"
        )
    return length


Stored: TypeAlias = Annotated[timedelta, PlainValidator(as_retention)]


class RetentionTable(TomlModel):
    imports: Stored = timedelta(days=90)
    changes: Stored = timedelta(days=30)
    pages: Stored = timedelta(days=30)
    quarantine: Stored = timedelta(days=365)
    rollups: Stored = timedelta(days=30)


class BudgetTable(TomlModel):
    rate: Annotated[
        list[Rate], BeforeValidator(as_rates), Field(min_length=1, max_length=10)
    ]
    burst: Annotated[int, Field(ge=1, le=units.MAX_REQUESTS)] = 1
    stop_on: list[Annotated[int, Field(ge=400, le=599)]] = [401, 403]

    def rules(self) -> Iterator[Problem]:
        if len({limit.window for limit in self.rate}) < len(self.rate):
            yield ("rate",), "names two limits for the same period; keep the lower one"
