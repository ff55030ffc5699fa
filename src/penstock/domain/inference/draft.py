"""Combine the guesses about a table into a draft of a dataset."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.domain.dataset import ROW_KEY, WHOLE_ROW, FieldType
from penstock.domain.formats import summarize_names
from penstock.domain.inference.columns import Column, guess_columns, guess_null
from penstock.domain.inference.dialect import NotTabular, SampleTable
from penstock.domain.inference.guess import Guess
from penstock.domain.inference.roles import (
    KEY_TYPES,
    guess_filter,
    guess_geo,
    guess_key,
    guess_search,
)
from penstock.domain.inference.types import InferredType


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A dataset as it might be declared."""

    columns: tuple[Column, ...]
    # why other columns of the file are left out
    left_out: tuple[str, ...]
    null: Guess[tuple[str, ...]]
    key: Guess[tuple[str, ...]]
    geo: Guess[tuple[str, str]] | None
    search: tuple[Guess[str], ...]
    filter: tuple[Guess[str], ...]

    @property
    def doubts(self) -> Iterator[str]:
        """Warnings about guesses that may be wrong."""
        if self.key.doubt is not None:
            yield self.key.doubt
        for column in self.columns:
            if column.kind.doubt is not None:
                yield column.kind.doubt
        padded = [column.name for column in self.columns if column.is_padded]
        if padded:
            yield (
                f"spaces around values are removed in {summarize_names(padded)}; "
                "trim = false keeps them"
            )
        yield from self.left_out


def guess_dataset(table: SampleTable) -> Draft:
    """Guess fields and their roles.

    Raises `NotTabular` if no column has a unique name.
    """
    null = guess_null(table)
    columns, left_out = guess_columns(table, null=null.value)
    if not columns:
        raise NotTabular("line 1: no column has a name of its own")
    geo = guess_geo(columns)
    degrees = () if geo is None else geo.value
    # they become numbers, and no number with decimals is a key
    others = [column for column in columns if column.name not in degrees]
    key = guess_key(others or columns)
    if WHOLE_ROW in key.value:
        columns = tuple(map(as_value, columns))
    # key and coordinates have indexes of their own
    search = guess_search(columns, (*key.value, *degrees))
    searched = [guess.value for guess in search]
    return Draft(
        columns=tuple(
            as_degrees(column)
            if column.name in degrees
            else as_key(column)
            if column.name in key.value
            else column
            for column in columns
        ),
        left_out=left_out,
        null=null,
        key=key,
        geo=geo,
        search=search,
        filter=guess_filter(columns, (*key.value, *degrees, *searched)),
    )


def as_value(column: Column) -> Column:
    """Rename a column that has the name of the key that the whole row gets."""
    # no name of a column ends in an underscore
    return replace(column, name=f"{ROW_KEY}_") if column.name == ROW_KEY else column


def as_degrees(column: Column) -> Column:
    """Declare a coordinate as float, even if all sampled degrees are whole."""
    point = column.kind.point
    decimal = column.kind.decimal if point in {None, "."} else point
    doubt = None
    if point is not None:
        doubt = f"{column.name} is stored as degrees, without zeros at their ends"
    kind = InferredType(
        type=FieldType.FLOAT,
        reason="degrees",
        decimal=decimal,
        doubt=doubt,
        exact=False,
    )
    return replace(column, kind=kind)


def as_key(column: Column) -> Column:
    """Declare a key as text if its type cannot be that of a key."""
    if column.kind.type in KEY_TYPES:
        return column
    return replace(
        column, kind=InferredType(type=FieldType.TEXT, reason="the key, as it is")
    )
