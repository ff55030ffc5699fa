"""Processes that share a socket have about as many connections each."""

import random

import pytest

from penstock.entrypoints.api.accept_balancing import FEW_MORE, ConnectionCounts


@pytest.mark.parametrize("processes", [1, 2, 3, 8, 64])
def test_whoever_wakes_first_connections_are_spread(tmp_path, processes):
    counts = ConnectionCounts.create(tmp_path / "counts", processes=processes)
    for each in range(processes):
        counts.set(each, 0)
    held = [0] * processes
    # the kernel mostly wakes the same one
    order = [*range(processes)]
    for _ in range(64 * processes):
        process = next(each for each in order if counts.is_fair(each))
        held[process] += 1
        counts.set(process, held[process])

    assert min(held) > 0
    assert max(held) - min(held) <= max(FEW_MORE, max(held) // 8) + 1


def test_someone_may_always_accept(tmp_path):
    dice = random.Random(1)
    counts = ConnectionCounts.create(tmp_path / "counts", processes=5)
    for _ in range(1000):
        for each in range(5):
            counts.set(each, dice.choice([0, 1, 2, 30, 500]))

        assert any(map(counts.is_fair, range(5)))


def test_one_that_has_ended_is_not_waited_for(tmp_path):
    counts = ConnectionCounts.create(tmp_path / "counts", processes=2)
    other = ConnectionCounts(tmp_path / "counts")
    counts.set(0, 500)
    assert counts.is_fair(0)

    other.set(1, 3)
    assert not counts.is_fair(0)
    assert other.is_fair(1)

    other.close(1)
    assert counts.is_fair(0)
