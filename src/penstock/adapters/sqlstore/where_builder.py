"""Build `where` clauses of client queries: quoted names, values only as parameters."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.adapters.sqlstore.key_encoding import quote
from penstock.domain.dataset import Dataset
from penstock.domain.pages import Key
from penstock.domain.search.query import Condition, KeysetSegment, Op, Query

OPERATORS: Mapping[Op, str] = {
    Op.EQ: "=",
    Op.LT: "<",
    Op.LTE: "<=",
    Op.GT: ">",
    Op.GTE: ">=",
}
LAST_CHARACTER = 0x10FFFF
FIRST_SURROGATE, AFTER_SURROGATES = 0xD800, 0xE000


class SqlDialect(Protocol):
    """SQL that differs by kind of database."""

    @abstractmethod
    def parameter(self, name: str) -> str: ...

    @abstractmethod
    def value(self, value: object) -> object:
        """Convert a value to its stored form."""
        ...

    @abstractmethod
    def among(self, column: str, parameter: str) -> str:
        """Build the condition that a column has one of the values of a parameter."""
        ...

    @abstractmethod
    def choices(self, values: Sequence[object]) -> object:
        """Convert the values of such a parameter."""
        ...

    @abstractmethod
    def differs(self, column: str, parameter: str) -> str:
        """Build the condition that a column has another value, or null."""
        ...


@dataclass
class Where:
    """Conditions joined by `and`, with the values of their parameters."""

    dialect: SqlDialect
    given: dict[str, object] = field(default_factory=dict)
    clauses: list[str] = field(default_factory=lambda: ["_deleted_at is null"])

    def __str__(self) -> str:
        return " and ".join(self.clauses)

    def add(self, *conditions: Condition) -> None:
        for condition in conditions:
            self.clauses.extend(self._clauses(condition))

    def is_key(self, dataset: Dataset, key: Key) -> None:
        for name, value in zip(dataset.key, key, strict=True):
            self.clauses.append(f"{quote(name)} = {self.param(value)}")

    def start_after(self, columns: Sequence[str], part: KeysetSegment) -> None:
        """Start after a keyset position; the columns are those that order the part."""
        if part.after is not None:
            parameters = ", ".join(self.param(value) for value in part.after)
            operator = "<" if part.descending else ">"
            self.clauses.append(f"({', '.join(columns)}) {operator} ({parameters})")

    def param(self, value: object) -> str:
        """Add a value, and return its parameter."""
        return self._add_parameter(self.dialect.value(value))

    def _add_parameter(self, stored: object) -> str:
        name = f"p{len(self.given)}"
        self.given[name] = stored
        return self.dialect.parameter(name)

    def _clauses(self, condition: Condition) -> Iterator[str]:
        column, value = quote(condition.field.name), condition.value
        match condition.op:
            case Op.EQ | Op.LT | Op.LTE | Op.GT | Op.GTE:
                yield f"{column} {OPERATORS[condition.op]} {self.param(value)}"
            case Op.NE:
                yield self.dialect.differs(column, self.param(value))
            case Op.IN:
                values = value if isinstance(value, tuple) else (value,)
                parameter = self._add_parameter(self.dialect.choices(values))
                yield self.dialect.among(column, parameter)
            case Op.PREFIX:
                yield f"{column} >= {self.param(value)}"
                end = after_prefix(str(value))
                if end is not None:
                    yield f"{column} < {self.param(end)}"
            case Op.ISNULL:
                yield f"{column} is null" if value else f"{column} is not null"


def after_prefix(prefix: str) -> str | None:
    """Return the first text after all with this prefix, in code point order."""
    stem = prefix.rstrip(chr(LAST_CHARACTER))
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    if following == FIRST_SURROGATE:
        following = AFTER_SURROGATES
    return stem[:-1] + chr(following)


@dataclass(frozen=True, slots=True)
class KeysetSelect:
    """The rows of one part of a keyset query, and their order."""

    where: str
    order: str
    given: Mapping[str, object]
    # the columns of the keyset position
    position: Sequence[str]


def build_select(
    query: Query, part: KeysetSegment, dialect: SqlDialect
) -> KeysetSelect:
    where = Where(dialect)
    where.add(*query.conditions)
    placed = [quote(field.name) for field in query.order]
    ordered = placed
    if part.nulls is not None:
        where.clauses.append(f"{placed[0]} is {'' if part.nulls else 'not '}null")
    if part.nulls:
        ordered = placed[1:]
    where.start_after(ordered, part)
    direction = " desc" if part.descending else ""
    order = ", ".join(f"{column}{direction}" for column in ordered)
    return KeysetSelect(str(where), order, where.given, placed)
