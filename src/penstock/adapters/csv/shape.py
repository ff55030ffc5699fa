"""How many values the rows of a file have, decided once by its first rows.

Every shard reads the same beginning of its file, so all of them judge alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.domain.guess.layout import LEAST_TRAILING, ends_in_delimiters
from penstock.domain.page import Reason
from penstock.domain.text import shorten

MAX_SHOWN = 30
SHOWN_VALUES = 3
TRAILING = (
    "rows end in a delimiter, the header does not; "
    "if its first name is missing, declare `columns`"
)
REMEDY = "declare header = true and all names as columns, or mend the header"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a row must have to be one."""

    width: int
    # a delimiter stands behind the last value of a row
    is_trailing: bool = False

    def fits(self, row: Sequence[str]) -> bool:
        if not self.is_trailing:
            return len(row) == self.width
        # without its delimiter at the end, a row that ends in nothing may lack a value
        is_there = row[-1] == ""
        return len(row) == self.width + is_there

    def find_flaw(self, row: Sequence[str]) -> tuple[Reason, str] | None:
        """Say why a record is no row; None if it is one."""
        if self.fits(row):
            return None
        values = len(row)
        told = f"{values} values, but the file has {self.width} columns"
        if self.is_trailing and not row[-1]:
            values -= 1
            told = f"{values} values and a delimiter behind them, but the file has "
            told += f"{self.width} columns"
        is_short = values < self.width
        return (Reason.TOO_FEW_VALUES if is_short else Reason.TOO_MANY_VALUES), told


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeCheck:
    """The shape of a file, and what is to be said of it."""

    shape: Shape
    remarks: tuple[str, ...] = ()
    # the file is refused: no row of it can be read with certainty
    problem: str | None = None


def check_shape(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, has_header: bool
) -> ShapeCheck:
    """Compare the names of the columns with the first rows, none of which is empty."""
    shape = Shape(width=len(names))
    longer = [row for row in rows if len(row) == len(names) + 1]
    filled = [row for row in longer if row[-1]]
    if names and ends_in_delimiters(rows, len(names)):
        shape = Shape(width=len(names), is_trailing=True)
        told = TRAILING if has_header else "rows end in a delimiter, `columns` do not"
        return ShapeCheck(shape=shape, remarks=(told,))
    is_every = len(longer) >= LEAST_TRAILING * len(rows)
    if filled and (is_every or len(filled) > len(rows) / 2):
        owner = "its header has" if has_header else "columns has"
        told = (
            f"{owner} {len(names)} names, but {len(longer)} of the first {len(rows)} "
            f"rows have {len(names) + 1} values: a name is missing"
        )
        first = describe_row(["?", *names], filled[0])
        last = describe_row([*names, "?"], filled[0])
        return ShapeCheck(
            shape=shape,
            problem=f"{told}; if it is the first, a row reads {first}; if it is the "
            f"last, {last}; {REMEDY if has_header else 'declare all of them'}",
        )
    return ShapeCheck(shape=shape)


def describe_row(names: Sequence[str], row: Sequence[str]) -> str:
    pairs = [
        f"{name or '?'} = {shorten(value, MAX_SHOWN)}"
        for name, value in zip(names, row, strict=True)
    ]
    if len(pairs) > SHOWN_VALUES + 1:
        pairs = [*pairs[:SHOWN_VALUES], "…", pairs[-1]]
    return ", ".join(pairs)
