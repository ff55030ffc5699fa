"""Infer the fields of a dataset from the columns of a sample."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.domain.dataset import FieldType
from penstock.domain.formats import shorten
from penstock.domain.inference.dialect import SampleTable
from penstock.domain.inference.field_names import field_names
from penstock.domain.inference.guess import Guess
from penstock.domain.inference.types import InferredType, guess_type

# unambiguous words for no value; "NA" is a country, and "-" may be a value
NULL_WORDS = ("NULL", "null", "\\N", "N/A", "n/a", "#N/A", "NaN", "nan")
MAX_NULL_WORDS = 20
# PostgreSQL allows 1,600 columns, SQLite 2,000
MAX_COLUMNS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column that becomes a field."""

    name: str
    column: str
    kind: InferredType
    rows: int
    # the stripped cells of the sample, without nulls and blanks
    values: tuple[str, ...]
    distinct: int
    # whether it is text with white space around values, which an import removes
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


def guess_null(table: SampleTable) -> Guess[tuple[str, ...]]:
    """Find the words that mean no value."""
    seen = {cell for row in table.rows for cell in row if cell.strip() in NULL_WORDS}
    # an import compares unstripped cells, so white space around a word counts
    words = sorted(seen, key=lambda cell: (NULL_WORDS.index(cell.strip()), len(cell)))
    words = words[:MAX_NULL_WORDS]
    listed = " and ".join(
        word if word == word.strip() else repr(word) for word in words
    )
    reason = f"empty, and {listed}, which occur in it" if words else "empty is null"
    return Guess(("", *words), reason)


def guess_columns(
    table: SampleTable, *, null: Sequence[str]
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Return the columns that become fields, and why the others do not."""
    usable: list[int] = []
    left_out: list[str] = []
    times = Counter(table.columns)
    for index, column in enumerate(table.columns):
        if not column:
            left_out.append(f"column {index + 1} has no name")
        elif times[column] > 1:
            # an import finds columns by name
            named = f"column {index + 1}, {shorten(column)}, is not the only one"
            left_out.append(f"{named} of this name")
        elif len(usable) == MAX_COLUMNS:
            rest = len(table.columns) - index
            left_out.append(f"{rest} more columns: a table holds {MAX_COLUMNS} here")
            break
        else:
            usable.append(index)
    names = field_names(table.columns[index] for index in usable)
    columns = (
        infer_column(name, index, table, null)
        for name, index in zip(names, usable, strict=True)
    )
    return tuple(columns), tuple(left_out)


def infer_column(
    name: str, index: int, table: SampleTable, null: Sequence[str]
) -> Column:
    cells = [*filled_cells(table, index, null)]
    values = tuple(map(str.strip, cells))
    kind = guess_type(name, values)
    return Column(
        name=name,
        column=table.columns[index],
        kind=kind,
        is_padded=kind.type is FieldType.TEXT and [*values] != cells,
        rows=len(table.rows),
        values=values,
        distinct=len(set(values)),
    )


def filled_cells(table: SampleTable, index: int, null: Sequence[str]) -> Iterator[str]:
    null_words = frozenset(null)
    for row in table.rows:
        cell = row[index]
        if cell not in null_words and cell.strip():
            yield cell
