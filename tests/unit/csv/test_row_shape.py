"""How many values the rows of a file have, decided by its first rows."""

import pytest

from penstock.adapters.csv.row_shape import TRAILING, RowShape, check_shape
from penstock.domain.pages import Reason

NAMES = ("id", "name", "city", "note")
PLAIN = ["1", "a", "b", "c"]
TRAILED = [*PLAIN, ""]
LONGER = [*PLAIN, "d"]
# `2,Smith, John,Hamburg,`
SHIFTED = ["2", "Smith", " John", "Hamburg", ""]


def check(*rows, names=NAMES, has_header=True):
    return check_shape(names, rows, has_header=has_header)


@pytest.mark.parametrize(
    ("rows", "is_trailing"),
    [
        ([PLAIN] * 99 + [SHIFTED], False),
        ([TRAILED] * 98 + [PLAIN] * 2, False),
        ([TRAILED] * 99 + [PLAIN], True),
        ([TRAILED] * 99 + [LONGER], True),
        ([TRAILED], True),
        ([[*TRAILED, ""]] * 100, False),
        ([], False),
    ],
)
def test_a_trailing_delimiter_is_forgiven_if_nearly_all_rows_have_it(rows, is_trailing):
    checked = check(*rows)

    assert checked.shape == RowShape(width=4, is_trailing=is_trailing)
    assert checked.warnings == ((TRAILING,) if is_trailing else ())
    assert checked.problem is None


@pytest.mark.parametrize(
    "rows", [[LONGER], [LONGER] * 51 + [PLAIN] * 49, [LONGER] * 2 + [TRAILED] * 98]
)
def test_a_header_that_is_one_name_short_is_a_problem(rows):
    problem = check(*rows).problem

    assert problem is not None
    assert problem.startswith("its header has 4 names, but ")
    assert "if it is the first, a row reads ? = '1', id = 'a', name = 'b', …" in problem
    assert "if it is the last, id = '1', name = 'a', city = 'b', …, ? = 'd'" in problem


def test_some_rows_with_a_value_too_many_are_bad_by_themselves():
    checked = check(*[LONGER] * 50, *[PLAIN] * 50)

    assert checked.problem is None
    assert checked.shape.find_flaw(LONGER) == (
        Reason.TOO_MANY_VALUES,
        "5 values, but the file has 4 columns",
    )


def test_a_problem_of_many_long_values_is_still_a_sentence():
    names = tuple(f"column_{number}" for number in range(500))

    problem = check(["x" * 1000] * 501, names=names, has_header=False).problem

    assert problem is not None
    assert problem.startswith("columns has 500 names, but ")
    assert len(problem) < 600


@pytest.mark.parametrize(
    ("row", "flaw"),
    [
        (TRAILED, None),
        # it has no delimiter at its end, and all values
        (PLAIN, None),
        # it has one, and lacks a value
        (["1", "a", "b", ""], Reason.TOO_FEW_VALUES),
        (LONGER, Reason.TOO_MANY_VALUES),
        ([*LONGER, ""], Reason.TOO_MANY_VALUES),
        ([""], Reason.TOO_FEW_VALUES),
    ],
)
def test_where_rows_end_in_a_delimiter_none_may_lack_a_value(row, flaw):
    found = RowShape(width=4, is_trailing=True).find_flaw(row)

    assert (found and found[0]) == flaw
