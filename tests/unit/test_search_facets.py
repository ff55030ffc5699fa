"""Facets divide what is counted into a few ranges with round bounds."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.domain.dataset import FieldType
from penstock.domain.search.facets import MAX_RANGES, build_ranges, is_ranged

NUMBERS = st.dictionaries(
    st.one_of(st.integers(-(2**63), 2**63 - 1)), st.integers(1, 9), min_size=1
)
FLOATS = st.dictionaries(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(1, 9),
    min_size=1,
)
TIMES = st.dictionaries(
    st.datetimes(timezones=st.just(UTC)), st.integers(1, 9), min_size=1
)
DAYS = st.dictionaries(st.dates(), st.integers(1, 9), min_size=1)


@given(st.one_of(NUMBERS, FLOATS, TIMES, DAYS))
@example({1.6e308: 1, -6e307: 1})
@example({1.7e308: 1, -1.7e308: 1})
def test_every_value_is_in_one_range(counted):
    found = build_ranges(counted)

    assert len(found) <= MAX_RANGES + 2
    assert sum(each.rows for each in found) == sum(counted.values())
    assert all(one.end == other.start for one, other in pairwise(found))
    assert found[0].start <= min(counted)
    assert found[-1].end >= max(counted)


@given(st.dictionaries(st.integers(-1000, 1000), st.integers(1, 9), min_size=1))
def test_a_range_holds_what_lies_in_it(counted):
    for each in build_ranges(counted):
        inside = [n for n in counted if each.start <= n < each.end]
        assert each.rows == sum(counted[n] for n in inside)


@pytest.mark.parametrize(
    ("first", "last", "bounds"),
    [
        (0, 60, [0, 10, 20, 30, 40, 50, 60, 70]),
        (3, 17, [2, 4, 6, 8, 10, 12, 14, 16, 18]),
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2]),
        (date(2026, 1, 5), date(2026, 1, 9), [date(2026, 1, n) for n in range(5, 11)]),
        (
            date(2020, 3, 1),
            date(2026, 2, 1),
            [date(y, 1, 1) for y in range(2020, 2028)],
        ),
    ],
    ids=range(5),
)
def test_bounds_are_round(first, last, bounds):
    found = build_ranges({first: 1, last: 1})

    assert [each.start for each in found] + [found[-1].end] == bounds


def test_hours_are_cut_at_hours():
    start = datetime(2026, 3, 1, 7, 12, tzinfo=UTC)

    found: Any = build_ranges({start: 1, start + timedelta(hours=6): 2})

    assert {each.start.minute for each in found} == {0}
    assert found[0].start == datetime(2026, 3, 1, 7, tzinfo=UTC)


def test_only_numbers_and_times_have_ranges():
    assert is_ranged(FieldType.INT, 21)
    assert not is_ranged(FieldType.INT, 20)
    assert not is_ranged(FieldType.TEXT, 5000)
    with pytest.raises(TypeError):
        build_ranges({"a": 1})
