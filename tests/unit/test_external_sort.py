"""Sorting by runs in a file gives what sorting in memory gives."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.external_sort import sorted_on_disk

ITEMS = st.lists(
    st.tuples(st.text(max_size=3), st.integers(0, 5), st.binary(max_size=2))
)


@given(items=ITEMS, run=st.integers(1, 7), reverse=st.booleans())
def test_any_tuples_come_in_their_order(items, run, reverse):
    found = sorted_on_disk(iter(items), reverse=reverse, run=run)

    assert list(found) == sorted(items, reverse=reverse)


def test_many_runs_of_several_blocks_are_merged():
    items = [(number * 7919 % 10_007, "x") for number in range(10_007)]

    assert list(sorted_on_disk(items, run=1_300)) == sorted(items)
