"""The columns of a file as fields, with what their values tell of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.domain.dataset import FieldType
from penstock.domain.guess.guessed import Guessed
from penstock.domain.guess.kinds import Kind, guess_kind
from penstock.domain.guess.layout import Table
from penstock.domain.guess.names import field_names
from penstock.domain.text import shorten

# what no text means by itself; "NA" is a country, and "-" may be a value
NULL_WORDS = ("NULL", "null", "\\N", "N/A", "n/a", "#N/A", "NaN", "nan")
MOST_NULL_WORDS = 20
# PostgreSQL holds 1,600 columns, SQLite 2,000
MOST_COLUMNS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column that becomes a field."""

    name: str
    column: str
    kind: Kind
    rows: int
    # as they stand in the file, without those that mean nothing
    values: tuple[str, ...]
    distinct: int
    # whether text has white space around it, which a field of text removes
    is_padded: bool = False

    @property
    def is_filled(self) -> bool:
        """Whether no row lacks a value."""
        return self.rows == len(self.values)

    @property
    def is_unique(self) -> bool:
        return self.is_filled and self.distinct == self.rows

    @property
    def longest(self) -> int:
        return max(map(len, self.values), default=0)


def guess_null(table: Table) -> Guessed[tuple[str, ...]]:
    """Find the words that stand for nothing."""
    seen = {cell for row in table.rows for cell in row if cell.strip() in NULL_WORDS}
    # an import compares cells as they stand, so white space around a word counts
    words = sorted(seen, key=lambda cell: (NULL_WORDS.index(cell.strip()), len(cell)))
    words = words[:MOST_NULL_WORDS]
    told = " and ".join(word if word == word.strip() else repr(word) for word in words)
    reason = f"empty, and {told}, which stand in it" if words else "empty is null"
    return Guessed(("", *words), reason)


def guess_columns(
    table: Table, *, null: Sequence[str]
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Return the columns that become fields, and why the others do not."""
    kept: list[int] = []
    left_out: list[str] = []
    times = Counter(table.columns)
    for place, column in enumerate(table.columns):
        if not column:
            left_out.append(f"column {place + 1} has no name")
        elif times[column] > 1:
            # the columns of a file are found by their names
            told = f"column {place + 1}, {shorten(column)}, is not the only one"
            left_out.append(f"{told} of this name")
        elif len(kept) == MOST_COLUMNS:
            rest = len(table.columns) - place
            left_out.append(f"{rest} more columns: a table holds {MOST_COLUMNS} here")
            break
        else:
            kept.append(place)
    names = field_names(table.columns[place] for place in kept)
    found = (
        column_of(name, place, table, null)
        for name, place in zip(names, kept, strict=True)
    )
    return tuple(found), tuple(left_out)


def column_of(name: str, place: int, table: Table, null: Sequence[str]) -> Column:
    cells = [*filled(table, place, null)]
    values = tuple(map(str.strip, cells))
    kind = guess_kind(name, values)
    return Column(
        name=name,
        column=table.columns[place],
        kind=kind,
        is_padded=kind.type is FieldType.TEXT and [*values] != cells,
        rows=len(table.rows),
        values=values,
        distinct=len(set(values)),
    )


def filled(table: Table, place: int, null: Sequence[str]) -> Iterator[str]:
    nothing = frozenset(null)
    for row in table.rows:
        cell = row[place]
        if cell not in nothing and cell.strip():
            yield cell
