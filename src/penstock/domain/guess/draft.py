"""Put the guesses about a table together."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.domain.dataset import FieldType
from penstock.domain.guess.columns import Column, guess_columns, guess_null
from penstock.domain.guess.guessed import Guessed
from penstock.domain.guess.kinds import Kind
from penstock.domain.guess.layout import NotATable, Table
from penstock.domain.guess.roles import (
    KEY_TYPES,
    guess_filter,
    guess_geo,
    guess_key,
    guess_search,
)
from penstock.domain.text import in_short


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A dataset as it might be declared."""

    columns: tuple[Column, ...]
    # why a column of the file is none of these
    left_out: tuple[str, ...]
    null: Guessed[tuple[str, ...]]
    key: Guessed[tuple[str, ...]]
    geo: Guessed[tuple[str, str]] | None
    search: tuple[Guessed[str], ...]
    filter: tuple[Guessed[str], ...]

    @property
    def doubts(self) -> Iterator[str]:
        """What may well be wrong, a sentence each."""
        if self.key.doubt is not None:
            yield self.key.doubt
        for column in self.columns:
            if column.kind.doubt is not None:
                yield column.kind.doubt
        padded = [column.name for column in self.columns if column.is_padded]
        if padded:
            told = f"spaces around values are removed in {in_short(padded)}"
            yield f"{told}; trim = false keeps them"
        yield from self.left_out


def guess_dataset(table: Table) -> Draft:
    """Guess fields and their roles.

    Raises `NotATable` if no column has a name of its own.
    """
    null = guess_null(table)
    columns, left_out = guess_columns(table, null=null.value)
    if not columns:
        raise NotATable("line 1: no column has a name of its own")
    key = guess_key(columns)
    geo = guess_geo(columns)
    degrees = () if geo is None else geo.value
    # key and place are found by themselves
    search = guess_search(columns, (*key.value, *degrees))
    searched = [each.value for each in search]
    return Draft(
        columns=tuple(
            with_degrees(each)
            if each.name in degrees
            else as_key(each)
            if each.name in key.value
            else each
            for each in columns
        ),
        left_out=left_out,
        null=null,
        key=key,
        geo=geo,
        search=search,
        filter=guess_filter(columns, (*key.value, *degrees, *searched)),
    )


def with_degrees(column: Column) -> Column:
    """Declare a place as it must be, also if all of the seen degrees are whole."""
    point = column.kind.point
    decimal = column.kind.decimal if point in {None, "."} else point
    doubt = None
    if point is not None:
        doubt = f"{column.name} is stored as degrees, without zeros at their ends"
    kind = Kind(type=FieldType.FLOAT, reason="degrees", decimal=decimal, doubt=doubt)
    return replace(column, kind=kind)


def as_key(column: Column) -> Column:
    """Declare a key of a type that keys can have, also where none looks like one."""
    if column.kind.type in KEY_TYPES:
        return column
    return replace(column, kind=Kind(type=FieldType.TEXT, reason="the key, as it is"))
