"""The matrix of an import with two axes."""

from penstock.domain.jobs import JobId, Shards
from penstock.entrypoints.dashboard.pages.matrix import build_matrix
from penstock.ports.coverage import JobRange, MatrixCell


def cell(row: int, column: int, last: int = 0, **counts: int) -> MatrixCell:
    return MatrixCell(
        row=row,
        column=column,
        down=f"country:{'AB'[row]}",
        across=(f"day:{column}", f"day:{last or column}"),
        jobs=JobRange(JobId(1), JobId(2)),
        shards=Shards(total=sum(counts.values()), **counts),
    )


def test_rows_have_the_values_of_the_first_axis():
    matrix = build_matrix([cell(0, 0, done=1), cell(0, 1, done=1), cell(1, 0, done=1)])

    assert matrix is not None
    assert [(row.label, len(row.cells)) for row in matrix.rows] == [("A", 2), ("B", 1)]
    assert (matrix.down, matrix.across, matrix.first) == ("country", "day", "0")
    assert not matrix.is_bundled
    assert matrix.rows[0].cells[1].title == "country:A, day:1: 1 done"


def test_a_cell_of_several_shards_is_filled_in_proportion_the_worst_at_the_bottom():
    matrix = build_matrix([cell(0, 0, 3, done=3, failed=1)])

    assert matrix is not None
    assert matrix.is_bundled
    (found,) = matrix.rows[0].cells
    assert found.title == "country:A, day:0 to day:3: 1 failed, 3 done"
    assert [tuple(part) for part in found.parts] == [
        ("failed", 75, 25),
        ("done", 0, 75),
    ]
    assert found.mark == "failed"


def test_what_is_done_or_open_needs_no_mark():
    matrix = build_matrix([cell(0, 0, done=1), cell(0, 1, pending=1)])

    assert matrix is not None
    assert [found.mark for found in matrix.rows[0].cells] == [None, None]


def test_without_cells_there_is_no_matrix():
    assert build_matrix([]) is None
