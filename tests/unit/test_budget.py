"""No order of events lets a budget grant more than its limits, nor much less."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.domain.budget import (
    MAX_CLOSURE,
    MIN_CLOSURE,
    Budget,
    Limit,
    Usage,
    closure_duration,
    remaining_requests,
    reserve,
    return_grant,
    unlimited_budget,
)
from tests.contracts.budgets import BUDGETS, holds
from tests.support.builders import (
    HOUR,
    MINUTE,
    SECOND,
    budget,
    per_hour,
    per_minute,
    per_second,
)

DAY = timedelta(days=1)
# a time like today's, in microseconds since 1970
TODAY = 1_772_366_400_000_000

SPANS = st.one_of(
    st.integers(0, 3_000_000), st.integers(0, 7_200_000_000), st.integers(0, 10**11)
)
DEEDS = st.one_of(
    st.tuples(st.just("take"), st.just(0)),
    st.tuples(st.just("take"), SPANS),
    st.tuples(st.just("wait"), SPANS),
    st.tuples(st.just("give_back"), st.integers(0, 9)),
)


def take(of: Budget, takes: int, *, usage: Usage | None = None, now: int = TODAY):
    """Reserve so many at once; return the slots, from now on, and what is used."""
    usage = Usage() if usage is None else usage
    slots = []
    for _ in range(takes):
        usage, grant = reserve(of, usage, now=now)
        slots.append(grant.slot - now)
    return slots, usage


@given(of=BUDGETS, deeds=st.lists(DEEDS, max_size=60))
@example(
    of=budget(per_hour(2)),
    deeds=[*[("take", 0)] * 3, ("wait", 1_000_000), ("take", 0)],
)
@settings(max_examples=200)
def test_no_order_of_events_grants_more_than_the_limits(of, deeds):
    usage, now, grants = Usage(), TODAY, []
    for deed, result in deeds:
        if deed == "take":
            # a closure makes the slot later; nobody has to wait for it
            usage, grant = reserve(of, usage, now=now, not_before=now + result)
            grants.append(grant)
            assert grant.slot >= now + result
            assert grant.wait == timedelta(microseconds=grant.slot - now)
        elif deed == "wait":
            now += result
        elif result < len(grants):
            usage = return_grant(of, usage, grants.pop(-1 - result))

    slots = [grant.slot for grant in grants]

    assert all(holds(limit, of.burst, slots) for limit in of.limits)


@given(of=BUDGETS, waits=st.lists(st.integers(0, 3_000_000), max_size=40))
def test_a_slot_is_never_before_those_reserved_earlier(of, waits):
    usage, now, slots = Usage(), TODAY, []
    for wait in waits:
        now += wait
        usage, grant = reserve(of, usage, now=now)
        slots.append(grant.slot)

    assert slots == sorted(slots)


@pytest.mark.parametrize(
    ("of", "periods", "allowance"),
    [
        (budget(per_second(10), burst=10), 60 * SECOND, 600),
        (budget(per_second(3)), 60 * SECOND, 180),
        (budget(per_minute(7)), 60 * MINUTE, 420),
        (budget(per_hour(500)), 10 * HOUR, 5000),
        (budget(per_second(10), per_hour(500), burst=10), 10 * HOUR, 5000),
        (budget(Limit(requests=300, period=DAY), per_minute(30)), 5 * DAY, 1500),
    ],
)
def test_a_busy_queue_uses_almost_all_of_the_allowance(of, periods, allowance):
    usage, now, sent = Usage(), TODAY, 0
    while now <= TODAY + periods // timedelta(microseconds=1):
        usage, grant = reserve(of, usage, now=now)
        now, sent = grant.slot, sent + 1

    assert sent >= 0.98 * allowance


def test_a_queue_that_reserves_ahead_keeps_the_quota():
    slots, _ = take(budget(per_hour(100)), 1000)

    assert holds(per_hour(100), 1, slots)
    assert slots[-1] <= 1.02 * 9 * 3_600_000_000


def test_requests_are_spaced_evenly():
    slots, _ = take(budget(per_second(3)), 7)

    assert {later - one for one, later in pairwise(slots)} <= {333_333, 333_334}


def test_a_burst_is_smaller_by_what_late_requests_may_add():
    slots, _ = take(budget(per_second(10), burst=10), 30)

    assert slots.count(0) == 9
    assert all(later - one == 100_000 for one, later in pairwise(slots[9:]))


def test_the_strictest_limit_decides():
    slots, _ = take(budget(per_second(10), per_minute(30), per_hour(40), burst=10), 41)

    assert slots[39] == 60_100_000
    assert slots[40] >= 3_600_000_000


def test_a_closure_delays_but_reserves_in_order():
    usage, first = reserve(
        budget(per_second(1)), Usage(), now=TODAY, not_before=TODAY + 5_000_000
    )
    _, second = reserve(budget(per_second(1)), usage, now=TODAY)

    assert (first.wait, second.wait) == (5 * SECOND, 6 * SECOND)


def test_what_remains_falls_with_each_token_and_comes_back_with_time():
    of = budget(per_second(1), per_hour(10), burst=4)
    smooth, quota = of.limits
    _, usage = take(of, 2)

    def left(limit, after=0):
        return remaining_requests(of, usage, limit, now=TODAY + after)

    assert (left(smooth), left(quota)) == (1, 8)
    assert left(smooth, after=1_000_000) == 2
    assert left(smooth, after=3_600_000_000) == 3
    assert left(quota, after=2 * 3_600_000_000) == 10


def test_nothing_remains_while_others_wait():
    of = budget(per_second(1), per_hour(3))
    _, usage = take(of, 5)

    assert [remaining_requests(of, usage, each, now=TODAY) for each in of.limits] == [
        0,
        0,
    ]


def test_only_the_last_token_of_a_smooth_limit_is_given_back():
    of = budget(per_second(1))
    usage, first = reserve(of, Usage(), now=TODAY)
    usage, second = reserve(of, usage, now=TODAY)

    assert return_grant(of, usage, first) == usage
    assert (
        reserve(of, return_grant(of, usage, second), now=TODAY)[1].slot == second.slot
    )


def test_a_quota_forgets_what_no_longer_counts():
    of, usage = budget(per_hour(100)), Usage()
    for hour in range(50):
        _, usage = take(of, 3, usage=usage, now=TODAY + hour * 3_600_000_000)

    assert sum(len(counted) for counted in usage.buckets.values()) < 5


@pytest.mark.parametrize(
    ("requested", "closed"),
    [
        (None, MIN_CLOSURE),
        (timedelta(), MIN_CLOSURE),
        (-MINUTE, MIN_CLOSURE),
        (MINUTE, MINUTE),
        (30 * DAY, MAX_CLOSURE),
    ],
)
def test_a_provider_is_believed_within_reason(requested, closed):
    assert closure_duration(requested) == closed


@pytest.mark.parametrize(
    ("limit", "text", "is_quota"),
    [
        (per_second(10), "10/s", False),
        (per_minute(5), "5/min", False),
        (per_hour(7), "7/h", True),
        (Limit(requests=20_000, period=DAY), "20000/day", True),
        (Limit(requests=1, period=15 * SECOND), "1/15s", False),
    ],
)
def test_a_limit_is_written_as_it_is_declared(limit, text, is_quota):
    assert str(limit) == text
    assert limit.is_quota is is_quota


def test_the_duration_of_many_requests_is_that_of_the_strictest_limit():
    of = budget(per_second(10), per_hour(600), burst=10)

    assert of.per_second == pytest.approx(1 / 6)
    assert of.duration(5) == timedelta()
    assert of.duration(610) == max(60 * SECOND, 60 * SECOND)
    assert of.duration(1200) == HOUR


def test_a_budget_without_limits_costs_no_time():
    free = unlimited_budget("poi")

    assert free.name == "poi"
    assert free.per_second == float("inf")
    assert free.duration(10**9) == timedelta()
    assert take(free, 5)[0] == [0] * 5
