"""How many values the rows of a file have, decided once from its first rows.

Every shard reads the same start of its file, so all of them decide alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.domain.formats import shorten
from penstock.domain.inference.dialect import MIN_TRAILING_SHARE, ends_in_delimiters
from penstock.domain.pages import Reason

MAX_SHOWN = 30
SHOWN_VALUES = 3
TRAILING = (
    "rows end in a delimiter, the header does not; "
    "if its first name is missing, declare `columns`"
)
REMEDY = "declare header = true and all names as columns, or fix the header"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """What a record must look like to be a row."""

    width: int
    # rows end in a delimiter after the last value
    is_trailing: bool = False

    def fits(self, row: Sequence[str]) -> bool:
        if not self.is_trailing:
            return len(row) == self.width
        # without a delimiter at the end, a row whose last value is empty may lack one
        has_delimiter = row[-1] == ""
        return len(row) == self.width + has_delimiter

    def find_flaw(self, row: Sequence[str]) -> tuple[Reason, str] | None:
        """Return why a record is not a row; None if it is one."""
        if self.fits(row):
            return None
        values = len(row)
        detail = f"{values} values, but the file has {self.width} columns"
        if self.is_trailing and not row[-1]:
            values -= 1
            detail = f"{values} values and a delimiter after them, but the file has "
            detail += f"{self.width} columns"
        is_short = values < self.width
        return (Reason.TOO_FEW_VALUES if is_short else Reason.TOO_MANY_VALUES), detail


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShapeCheck:
    """The shape of a file, and warnings about it."""

    shape: RowShape
    warnings: tuple[str, ...] = ()
    # why the file is refused: its rows cannot be read reliably
    problem: str | None = None


def check_shape(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, has_header: bool
) -> RowShapeCheck:
    """Compare the column names with the first rows, none of which is empty."""
    shape = RowShape(width=len(names))
    longer = [row for row in rows if len(row) == len(names) + 1]
    filled = [row for row in longer if row[-1]]
    if names and ends_in_delimiters(rows, len(names)):
        shape = RowShape(width=len(names), is_trailing=True)
        detail = TRAILING if has_header else "rows end in a delimiter, `columns` do not"
        return RowShapeCheck(shape=shape, warnings=(detail,))
    is_regular = len(longer) >= MIN_TRAILING_SHARE * len(rows)
    if filled and (is_regular or len(filled) > len(rows) / 2):
        owner = "its header has" if has_header else "columns has"
        detail = (
            f"{owner} {len(names)} names, but {len(longer)} of the first {len(rows)} "
            f"rows have {len(names) + 1} values: a name is missing"
        )
        first = describe_row(["?", *names], filled[0])
        last = describe_row([*names, "?"], filled[0])
        return RowShapeCheck(
            shape=shape,
            problem=f"{detail}; if it is the first, a row reads {first}; if it is the "
            f"last, {last}; {REMEDY if has_header else 'declare all of them'}",
        )
    return RowShapeCheck(shape=shape)


def describe_row(names: Sequence[str], row: Sequence[str]) -> str:
    pairs = [
        f"{name or '?'} = {shorten(value, MAX_SHOWN)}"
        for name, value in zip(names, row, strict=True)
    ]
    if len(pairs) > SHOWN_VALUES + 1:
        pairs = [*pairs[:SHOWN_VALUES], "…", pairs[-1]]
    return ", ".join(pairs)
