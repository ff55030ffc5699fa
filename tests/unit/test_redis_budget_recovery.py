"""What the database is told of a budget in Redis is enough to lose Redis."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.redis.budget_recovery import (
    SAME_CLOCK,
    clock_ahead,
    is_record_due,
    max_unnoted,
    starting_usage,
    was_used,
)
from penstock.adapters.redis.budgets import max_batch_size
from penstock.domain.budget import (
    Limit,
    Usage,
    bucket_width,
    remaining_requests,
    reserve,
)
from penstock.ports import BudgetSnapshot
from tests.support.builders import (
    MINUTE,
    SECOND,
    budget,
    per_hour,
    per_minute,
    per_second,
)

TODAY = 1_772_366_400_000_000
A_DAY = Limit(requests=20_000, period=timedelta(days=1))
WIDTH = bucket_width(per_hour(1))


def remembered(usage: Usage, *, now: int = TODAY) -> BudgetSnapshot:
    return BudgetSnapshot(usage=usage, now=now)


def noted(*counts: tuple[int, int]) -> BudgetSnapshot:
    """Return the notes of an hourly quota, by buckets from now on."""
    numbers = {TODAY // WIDTH + ago: count for ago, count in counts}
    return remembered(Usage(buckets={"3600s": numbers}))


@pytest.mark.parametrize(
    ("of", "unnoted", "due"),
    [
        (budget(per_second(1)), -1, True),
        (budget(per_second(1)), 0, False),
        (budget(per_second(1)), 10**6, False),
        (budget(), 10**6, False),
        (budget(per_hour(99)), 0, False),
        (budget(per_hour(99)), 1, True),
        (budget(per_hour(500)), 5, False),
        (budget(per_hour(500)), 6, True),
        (budget(per_second(10), per_hour(500), A_DAY), 6, True),
        (budget(A_DAY), 200, False),
        (budget(A_DAY), 201, True),
    ],
)
def test_a_note_is_due_for_each_hundredth_of_the_smallest_quota(of, unnoted, due):
    assert is_record_due(of, unnoted) is due


def test_a_budget_that_was_never_used_begins_full():
    of = budget(per_second(1), per_hour(100), burst=3)

    for known in (None, remembered(Usage())):
        assert not was_used(known)
        assert starting_usage(of, known, now=TODAY) == Usage()


def test_after_a_loss_the_first_token_comes_after_one_interval():
    of = budget(per_second(10), per_minute(60), burst=5)
    known = remembered(Usage(full_at={"1s": TODAY, "60s": TODAY}))

    usage = starting_usage(of, known, now=TODAY)
    usage, first = reserve(of, usage, now=TODAY)
    _, second = reserve(of, usage, now=TODAY)

    assert (first.wait, second.wait) == (SECOND, 2 * SECOND)


def test_after_a_loss_a_quota_counts_what_was_noted_and_what_may_be_missing():
    of = budget(per_hour(500))
    known = noted((-50, 100), (0, 30))

    usage = starting_usage(of, known, now=TODAY)

    left = 500 - 100 - 30 - max_unnoted(of)
    assert remaining_requests(of, usage, of.limits[0], now=TODAY) == left


def test_what_was_noted_counts_a_bucket_longer_for_the_sake_of_the_clocks():
    of = budget(per_hour(50))
    usage = starting_usage(of, noted((0, 50)), now=TODAY)

    _, grant = reserve(of, usage, now=TODAY)

    assert grant.slot == (TODAY // WIDTH + 2) * WIDTH + 3_600_000_000


@given(
    ahead=st.integers(-(10**10), 10**10),
    jitter=st.integers(-2_000_000, 2_000_000),
    used=st.integers(0, 3_600_000_000),
)
def test_no_clock_makes_a_count_end_early(ahead, jitter, used):
    """Note by one clock, as the database does, and begin again by the same."""
    of, slot = budget(per_hour(50)), TODAY + ahead - used
    result = clock_ahead(TODAY + ahead + jitter, TODAY)
    number = -((result - slot // WIDTH * WIDTH) // WIDTH)
    known = remembered(Usage(buckets={"3600s": {number: 50}}))

    usage = starting_usage(of, known, now=TODAY + ahead)
    _, grant = reserve(of, usage, now=TODAY + ahead)

    assert grant.slot >= slot + 3_600_000_000
    assert grant.slot <= slot + 3_600_000_000 + 4 * WIDTH


def test_clocks_that_almost_agree_are_taken_for_one():
    assert {clock_ahead(TODAY + each, TODAY) for each in (-999, 0, 4_000_000)} == {0}
    assert clock_ahead(TODAY + 3 * SAME_CLOCK + 99, TODAY) == 3 * SAME_CLOCK


@pytest.mark.parametrize(
    ("of", "most"),
    [
        (budget(per_second(1)), 1),
        (budget(per_second(10), per_hour(5)), 1),
        (budget(per_second(300)), 30),
        (budget(per_second(10**6)), 100),
        (budget(), 100),
        (budget(Limit(requests=1, period=MINUTE)), 1),
    ],
)
def test_one_call_reserves_a_tenth_of_a_second_at_most(of, most):
    assert max_batch_size(of) == most
