"""Compose the questions of clients: quoted names, values only as parameters."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.adapters.sql.keys import quoted
from penstock.domain.dataset import Dataset
from penstock.domain.page import Key
from penstock.domain.queries.query import Condition, Op, Part, Query

COMPARED: Mapping[Op, str] = {
    Op.EQ: "=",
    Op.LT: "<",
    Op.LTE: "<=",
    Op.GT: ">",
    Op.GTE: ">=",
}
LAST_CHARACTER = 0x10FFFF
FIRST_SURROGATE, AFTER_SURROGATES = 0xD800, 0xE000


class Dialect(Protocol):
    """How one kind of server writes what others write otherwise."""

    @abstractmethod
    def parameter(self, name: str) -> str: ...

    @abstractmethod
    def value(self, value: object) -> object:
        """Return a value as it is stored."""
        ...

    @abstractmethod
    def among(self, column: str, parameter: str) -> str:
        """Compose that a column holds one of the values of a parameter."""
        ...

    @abstractmethod
    def choices(self, values: Sequence[object]) -> object:
        """Return the values of such a parameter."""
        ...

    @abstractmethod
    def differs(self, column: str, parameter: str) -> str:
        """Compose that a column holds another value, or none."""
        ...


@dataclass
class Where:
    """Conditions that are put together, with the values of their parameters."""

    dialect: Dialect
    given: dict[str, object] = field(default_factory=dict)
    clauses: list[str] = field(default_factory=lambda: ["_deleted_at is null"])

    def __str__(self) -> str:
        return " and ".join(self.clauses)

    def add(self, *conditions: Condition) -> None:
        for each in conditions:
            self.clauses.extend(self._clauses(each))

    def is_key(self, dataset: Dataset, key: Key) -> None:
        for name, value in zip(dataset.key, key, strict=True):
            self.clauses.append(f"{quoted(name)} = {self.mark(value)}")

    def behind(self, columns: Sequence[str], part: Part) -> None:
        """Begin after a place; the columns are all that order the part."""
        if part.after is not None:
            marks = ", ".join(self.mark(value) for value in part.after)
            sign = "<" if part.descending else ">"
            self.clauses.append(f"({', '.join(columns)}) {sign} ({marks})")

    def mark(self, value: object) -> str:
        """Take a value, and return the parameter that stands for it."""
        return self._mark(self.dialect.value(value))

    def _mark(self, stored: object) -> str:
        name = f"p{len(self.given)}"
        self.given[name] = stored
        return self.dialect.parameter(name)

    def _clauses(self, condition: Condition) -> Iterator[str]:
        column, value = quoted(condition.field.name), condition.value
        match condition.op:
            case Op.EQ | Op.LT | Op.LTE | Op.GT | Op.GTE:
                yield f"{column} {COMPARED[condition.op]} {self.mark(value)}"
            case Op.NE:
                yield self.dialect.differs(column, self.mark(value))
            case Op.IN:
                values = value if isinstance(value, tuple) else (value,)
                marked = self._mark(self.dialect.choices(values))
                yield self.dialect.among(column, marked)
            case Op.PREFIX:
                yield f"{column} >= {self.mark(value)}"
                end = after_prefix(str(value))
                if end is not None:
                    yield f"{column} < {self.mark(end)}"
            case Op.ISNULL:
                yield f"{column} is null" if value else f"{column} is not null"


def after_prefix(prefix: str) -> str | None:
    """Return the first text behind all that begin so, in the order of characters."""
    kept = prefix.rstrip(chr(LAST_CHARACTER))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    if following == FIRST_SURROGATE:
        following = AFTER_SURROGATES
    return kept[:-1] + chr(following)


@dataclass(frozen=True, slots=True)
class Run:
    """Which rows of a table a part of a query means, and in which order."""

    where: str
    order: str
    given: Mapping[str, object]
    # the columns that place a row
    placed: Sequence[str]


def run_of(query: Query, part: Part, dialect: Dialect) -> Run:
    where = Where(dialect)
    where.add(*query.conditions)
    placed = [quoted(each.name) for each in query.order]
    ordered = placed
    if part.nulls is not None:
        where.clauses.append(f"{placed[0]} is {'' if part.nulls else 'not '}null")
    if part.nulls:
        ordered = placed[1:]
    where.behind(ordered, part)
    way = " desc" if part.descending else ""
    order = ", ".join(f"{column}{way}" for column in ordered)
    return Run(str(where), order, where.given, placed)
