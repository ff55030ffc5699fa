"""A bounded question about the records of one dataset."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

from penstock.domain.dataset import Dataset, Field

# bytes of the rows of one page: what would be more is on the next; one row that alone
# is more has a page of its own
MOST_PAGE_BYTES = 8 * 1024 * 1024

# the values of a row by which a list is ordered: the sorted field, then the key
Place: TypeAlias = tuple[object, ...]


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
    """What a field of every row must hold.

    The value has the type of the field; of `in` it is a tuple of them, of `isnull` the
    answer that is wanted.
    """

    field: Field
    op: Op
    value: object


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which rows, in which order, from where on, how many.

    There is one direction for the sorted field and the key behind it, so that an index
    gives every page, however deep, at the price of the first.
    """

    dataset: Dataset
    conditions: tuple[Condition, ...] = ()
    # the sorted field; None sorts by the key alone
    sort: Field | None = None
    descending: bool = False
    fields: tuple[Field, ...]
    limit: int
    after: Place | None = None
    # read towards the beginning
    backward: bool = False

    @cached_property
    def order(self) -> tuple[Field, ...]:
        """The fields that place a row: no two rows have all of them in common."""
        key = tuple(field_named(self.dataset, name) for name in self.dataset.key)
        if self.sort is None:
            return key
        return (self.sort, *(each for each in key if each is not self.sort))

    @property
    def has_nulls(self) -> bool:
        """Whether the sorted field may be empty; such rows stand at the end."""
        sort = self.sort
        return sort is not None and not sort.required

    def from_here(self, place: Place | None, *, backward: bool = False) -> "Query":
        return replace(self, after=place, backward=backward)

    def parts(self) -> Iterator["Part"]:
        """Yield what to read, one after the other, until there are rows enough.

        Rows without a value in the sorted field come last in both directions, each
        part by an index of its own: one comparison over both would use none.
        """
        descending = self.descending is not self.backward
        if not self.has_nulls:
            yield Part(after=self.after, descending=descending)
            return
        values = Part(nulls=False, after=self.after, descending=descending)
        nulls = Part(nulls=True, descending=descending)
        if self.after is not None and self.after[0] is None:
            values, nulls = replace(values, after=None), nulls.behind(self.after)
            yield nulls
            if self.backward:
                yield values
        elif self.backward:
            if self.after is None:
                yield nulls
            yield values
        else:
            yield values
            yield nulls


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A run of rows that one index gives in order."""

    # whether the sorted field is empty in all of them, in none, or is never empty
    nulls: bool | None = None
    after: Place | None = None
    descending: bool

    def behind(self, place: Place) -> "Part":
        # all of them are equal in the sorted field, so only the key places them
        return replace(self, after=place[1:])


def field_named(dataset: Dataset, name: str) -> Field:
    return next(each for each in dataset.fields if each.name == name)


def filterable(dataset: Dataset) -> dict[str, Field]:
    """Return the fields that an index stands behind."""
    names = dict.fromkeys([*dataset.key, *dataset.filter])
    return {name: field_named(dataset, name) for name in names}
