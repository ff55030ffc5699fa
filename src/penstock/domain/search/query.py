"""A query over the records of one dataset, read by keyset pagination."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

from penstock.domain.dataset import Dataset, Field

# bytes of the rows of one page; a single larger row has a page of its own
MAX_PAGE_BYTES = 8 * 1024 * 1024

# the values of a row by which a list is ordered: the sorted field, then the key
KeysetPosition: TypeAlias = tuple[object, ...]


class Op(StrEnum):
    """How a field is compared."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LTE = "lte"
    GT = "gt"
    GTE = "gte"
    IN = "in"
    PREFIX = "prefix"
    ISNULL = "isnull"


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a field that every row must fulfil.

    The value has the type of the field; of `in` it is a tuple of values, of `isnull` a
    bool.
    """

    field: Field
    op: Op
    value: object


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which rows, in which order, after which position, how many.

    The sorted field and the key after it have one direction, so that an index gives
    every page, however deep, at the cost of the first.
    """

    dataset: Dataset
    conditions: tuple[Condition, ...] = ()
    # the sorted field; None sorts by the key alone
    sort: Field | None = None
    descending: bool = False
    fields: tuple[Field, ...]
    limit: int
    after: KeysetPosition | None = None
    # read towards the beginning
    backward: bool = False

    @cached_property
    def order(self) -> tuple[Field, ...]:
        """The fields that a row is ordered by; together they are unique."""
        key = tuple(field_named(self.dataset, name) for name in self.dataset.key)
        if self.sort is None:
            return key
        return (self.sort, *(field for field in key if field is not self.sort))

    @property
    def has_nulls(self) -> bool:
        """Whether the sorted field may be empty; such rows come last."""
        sort = self.sort
        return sort is not None and not sort.required

    def starting_after(
        self, position: KeysetPosition | None, *, backward: bool = False
    ) -> "Query":
        return replace(self, after=position, backward=backward)

    def parts(self) -> Iterator["KeysetSegment"]:
        """Yield the segments to read, in order, until there are rows enough.

        Rows without a value in the sorted field come last in both directions. They are
        a segment of their own, since one comparison over both would use no index.
        """
        descending = self.descending is not self.backward
        if not self.has_nulls:
            yield KeysetSegment(after=self.after, descending=descending)
            return
        values = KeysetSegment(nulls=False, after=self.after, descending=descending)
        nulls = KeysetSegment(nulls=True, descending=descending)
        if self.after is not None and self.after[0] is None:
            yield nulls.starting_after(self.after)
            if self.backward:
                yield replace(values, after=None)
        elif self.backward:
            if self.after is None:
                yield nulls
            yield values
        else:
            yield values
            yield nulls


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysetSegment:
    """A range of rows that one index gives in order."""

    # whether the sorted field is empty in all of them, in none, or is never empty
    nulls: bool | None = None
    after: KeysetPosition | None = None
    descending: bool

    def starting_after(self, position: KeysetPosition) -> "KeysetSegment":
        # the sorted field is empty in all of them, so they are ordered by the key alone
        return replace(self, after=position[1:])


def field_named(dataset: Dataset, name: str) -> Field:
    return next(field for field in dataset.fields if field.name == name)


def filterable_fields(dataset: Dataset) -> dict[str, Field]:
    """Return the fields that have an index."""
    names = dict.fromkeys([*dataset.key, *dataset.filter])
    return {name: field_named(dataset, name) for name in names}
