"""Slices that lie edge to edge lose nothing."""

import pytest

from penstock.domain.sharding.axes import FileAxis, ListAxis
from penstock.domain.sharding.parts import Choice, Slice, find_coverage_errors
from penstock.domain.sharding.shard import Shard


def part(start: int, end: int | None, **other) -> Slice:
    result = {"number": 0, "file": "a.csv", "size": 100, "fingerprint": "f", "line": 1}
    return Slice(start=start, end=end, **{**result, **other})


WHOLE = [part(10, 40), part(40, 70), part(70, 100)]


def test_slices_that_meet_are_whole():
    other = part(3, None, number=1, file="b.csv.gz", size=7)

    assert list(find_coverage_errors([*reversed(WHOLE), other])) == []


@pytest.mark.parametrize(
    ("slices", "detail"),
    [
        ([WHOLE[0], WHOLE[2]], "begins at 70, not at 40"),
        ([*WHOLE, part(60, 80)], "begins at 60, not at 70"),
        (WHOLE[:2], "ends at 70, and the file at 100"),
        ([*WHOLE[:2], part(70, 100, fingerprint="g")], "of another file"),
    ],
    ids=["gap", "overlap", "end", "changed"],
)
def test_what_does_not_meet_is_reported(slices, detail):
    assert any(detail in result for _, result in find_coverage_errors(slices))


@pytest.mark.parametrize("name", ["a.csv", "x|y.csv", "50%7C.csv", "sub/a b.csv", "ü"])
@pytest.mark.parametrize("end", [None, 99])
def test_a_slice_is_read_back_from_its_text(name, end):
    one = part(7, end, file=name, number=3, line=12)

    assert Slice.parse(one.text) == one
    assert "|" not in one.text


@pytest.mark.parametrize("name", ["a.csv", "100%.csv", "a|b.csv", "a/b:c.csv"])
def test_a_slice_is_read_back_from_the_key_of_its_shard(name):
    one = part(7, 99, file=name)
    shard = Shard((FileAxis(),), (one,))

    assert Slice.of_key(shard.key) == shard.slice == one


def test_a_shard_of_an_api_is_no_slice():
    shard = Shard((ListAxis(name="country", values=("DE",)),), (Choice("DE"),))

    with pytest.raises(TypeError, match="slice"):
        _ = shard.slice


def test_ranks_rise_with_files_and_with_places_in_them():
    first, second = part(0, None), part(50, None, number=1)

    ranks = [first.rank(0), first.rank(1), first.rank(2**40), second.rank(0)]

    assert ranks == sorted(set(ranks))
    assert ranks[0] > 0
    # of one file, whichever slice tells it
    assert part(50, None).rank(70) == first.rank(70)
