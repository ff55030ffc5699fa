"""The matrix of an import with two axes: a cell for each pair of their values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.domain.jobs import Shards
from penstock.ports.coverage import JobRange, MatrixCell

MAX_CELLS = 2_000
# states that a cell shows by a mark, too
MARKED = {"failed", "missing", "running"}


class Part(NamedTuple):
    """One state of a cell, from top to bottom in percent."""

    state: str
    y: float
    height: float


class Cell(NamedTuple):
    title: str
    jobs: JobRange
    parts: Sequence[Part]
    # the state that it has a mark for: the worst, unless that is plain
    mark: str | None


@dataclass(slots=True)
class MatrixRow:
    label: str
    cells: list[Cell] = field(default_factory=list)


class Matrix(NamedTuple):
    """The values of the first axis down, those of the others across."""

    down: str
    across: str
    first: str
    last: str
    rows: Sequence[MatrixRow]
    # shards that a cell stands for
    is_bundled: bool


def build_matrix(cells: Sequence[MatrixCell]) -> Matrix | None:
    """Return rows of cells with their words; None if there is no matrix."""
    if not cells:
        return None
    rows: dict[int, MatrixRow] = {}
    for cell in cells:
        label = cell.down.partition(":")[2]
        row = rows.setdefault(cell.row, MatrixRow(label))
        parts = divide_cell(cell.shards)
        mark = parts[0].state if parts[0].state in MARKED else None
        row.cells.append(Cell(describe_cell(cell), cell.jobs, parts, mark))
    across, _, first = cells[0].across[0].partition(":")
    return Matrix(
        down=cells[0].down.partition(":")[0],
        across=across,
        first=first,
        last=cells[-1].across[1].partition(":")[2],
        rows=[*rows.values()],
        is_bundled=any(cell.across[0] != cell.across[1] for cell in cells),
    )


def name_cell(cell: MatrixCell) -> str:
    first, last = cell.across
    across = first if first == last else f"{first} to {last}"
    return f"{cell.down}, {across}"


def describe_cell(cell: MatrixCell) -> str:
    levels = ", ".join(f"{count} {state}" for state, count in count_states(cell.shards))
    return f"{name_cell(cell)}: {levels}"


def divide_cell(shards: Shards) -> Sequence[Part]:
    """Return the states of a cell from its bottom, in proportion."""
    levels = count_states(shards)
    total = sum(count for _, count in levels)
    parts = []
    bottom = 100.0
    for state, count in levels:
        share = 100 * count / total
        bottom -= share
        parts.append(Part(state, round(max(bottom, 0), 1), round(share, 1)))
    return parts


def count_states(shards: Shards) -> list[tuple[str, int]]:
    """Return the states of shards with their counts, the worst first."""
    counts = (
        ("failed", shards.failed),
        ("missing", shards.cancelled),
        ("running", shards.leased),
        ("open", shards.pending),
        ("done", shards.done + shards.split),
    )
    return [(state, count) for state, count in counts if count]
