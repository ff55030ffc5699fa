"""Digests of files and of their parts."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.csv import content_hash
from penstock.adapters.csv.content_hash import (
    GRAIN,
    MAX_GRAINS_READ,
    digest_part,
    select_grains,
)

RAW = Random(1).randbytes(3 * GRAIN + 4_321)


def hashed(raw, *, block):
    hashing = content_hash.HashingStream()
    for at in range(0, len(raw), block):
        hashing.add(raw[at : at + block])
    return hashing.content()


@pytest.mark.parametrize("block", [GRAIN - 1, GRAIN, GRAIN + 1, 10 * GRAIN])
def test_the_digests_do_not_depend_on_the_blocks(block):
    assert hashed(RAW, block=block) == hashed(RAW, block=700_001)
    assert len(hashed(RAW, block=block).grains) == 4


@pytest.mark.parametrize("size", [0, 1, GRAIN, 2 * GRAIN])
def test_files_that_end_with_a_grain_have_no_other(size):
    assert len(hashed(bytes(size), block=GRAIN).grains) == -(-size // GRAIN)


@given(cuts=st.tuples(*[st.integers(0, len(RAW))] * 2), at=st.integers(0, len(RAW) - 1))
def test_a_part_is_known_again_and_any_other_byte_in_it_is_noticed(
    tmp_path_factory, cuts, at
):
    start, end = sorted(cuts)
    path = tmp_path_factory.getbasetemp() / "file.csv"
    path.write_bytes(RAW)
    known = hashed(RAW, block=GRAIN).digest(start, end)
    same = digest_part(path, start, end, size=len(RAW))
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([RAW[at] ^ 1]))
    other = digest_part(path, start, end, size=len(RAW))

    assert same == known
    assert other != known or not start <= at < end


def test_without_an_end_the_whole_file_is_meant(tmp_path):
    path = tmp_path / "file.csv.gz"
    path.write_bytes(RAW)

    found = digest_part(path, 17, None, size=len(RAW))

    assert found == hashed(RAW, block=GRAIN).digest(0, len(RAW))


def test_of_a_long_part_a_bounded_number_of_grains_is_looked_at():
    one_mile = 1_000_000 * GRAIN
    chosen = select_grains(5 * GRAIN, one_mile, size=one_mile)

    assert len(chosen) == MAX_GRAINS_READ
    assert (chosen[0], chosen[-1]) == (5, 5 + 3907 * 255)
    assert list(select_grains(1, GRAIN * 256, size=one_mile)) == list(range(256))
