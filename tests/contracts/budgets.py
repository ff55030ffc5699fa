"""What every shared budget promises those who send."""

from datetime import timedelta
from itertools import pairwise
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.domain.budget import Budget, Limit
from penstock.domain.formats import MICROSECOND
from penstock.errors import BudgetClosed, BudgetStopped
from penstock.ports import Stores
from tests.support.builders import (
    HOUR,
    MINUTE,
    SECOND,
    budget,
    per_hour,
    per_minute,
    per_second,
)

ONCE_A_SECOND = budget(per_second(1))
AT_ONCE = timedelta()
DAY = timedelta(days=1)


def per_window(limit: Limit) -> str:
    """Two limits of one period are refused by the settings: the lower one says all."""
    return limit.window


LIMITS = st.builds(
    Limit,
    requests=st.integers(1, 7),
    period=st.sampled_from([SECOND, 7 * SECOND, MINUTE, HOUR, DAY]),
)
BUDGETS = st.builds(
    Budget,
    name=st.uuids().map(str),
    limits=st.lists(LIMITS, min_size=1, max_size=3, unique_by=per_window).map(tuple),
    burst=st.integers(1, 5),
)
SPANS = st.one_of(
    st.timedeltas(timedelta(), 2 * SECOND),
    st.timedeltas(timedelta(), 2 * HOUR),
)
DEEDS = st.one_of(
    # no store reserves further ahead than an hour
    st.tuples(st.just("take"), st.timedeltas(timedelta(), HOUR)),
    st.tuples(st.just("wait"), SPANS),
    st.tuples(st.just("close"), SPANS),
    st.tuples(st.just("open"), st.none()),
    st.tuples(st.just("give_back"), st.integers(0, 9)),
)


def waits(stores: Stores, of: Budget, takes: int) -> list[timedelta]:
    return [stores.budgets.take(of, longest=DAY).wait for _ in range(takes)]


def holds(limit: Limit, burst: int, slots: list[int]) -> bool:
    """Say whether no window of these instants holds more than the limit allows."""
    slots = sorted(slots)
    period = limit.period // MICROSECOND
    if limit.is_quota:
        after = slots[limit.requests :]
        return all(
            later - slot >= period for slot, later in zip(slots, after, strict=False)
        )
    return all(
        (last - first + 1) * period
        <= (slots[last] - slots[first]) * limit.requests + burst * period
        for first in range(len(slots))
        for last in range(first, len(slots))
    )


class BudgetsContract:
    """Subclasses bring `stores` and `pass_time`."""

    def test_a_clock_that_was_set_back_does_not_keep_a_budget_shut(
        self, stores: Stores, pass_time
    ):
        slow = budget(per_second(1))
        pass_time(48 * HOUR)
        stores.budgets.take(slow, longest=SECOND)
        pass_time(-48 * HOUR)

        assert not stores.budgets.take(slow, longest=SECOND).wait

    def test_a_changed_quota_goes_on_from_what_was_used(self, stores: Stores):
        for _ in range(5):
            stores.budgets.take(budget(per_hour(5)), longest=SECOND)

        with pytest.raises(BudgetClosed):
            stores.budgets.take(budget(per_hour(4)), longest=SECOND)

    def test_the_first_token_is_there_at_once(self, stores: Stores):
        grant = stores.budgets.take(ONCE_A_SECOND, longest=AT_ONCE)

        assert grant.wait == AT_ONCE
        assert grant.budget == ONCE_A_SECOND.name

    def test_those_who_wait_stand_in_a_queue(self, stores: Stores):
        found = waits(stores, ONCE_A_SECOND, 4)

        assert found == [0 * SECOND, 1 * SECOND, 2 * SECOND, 3 * SECOND]

    def test_a_burst_comes_at_once_and_then_all_are_spaced(self, stores: Stores):
        found = waits(stores, budget(per_second(1), burst=5), 8)

        # late requests may bunch up, which costs the burst a tenth of a second
        assert found[:4] == [AT_ONCE] * 4
        assert AT_ONCE < found[4] <= SECOND
        assert {later - one for one, later in pairwise(found[4:])} == {SECOND}

    def test_an_idle_time_fills_the_burst_and_no_more(self, stores: Stores, pass_time):
        bursting = budget(per_second(10), burst=3)
        first = waits(stores, bursting, 5)
        pass_time(HOUR)

        assert waits(stores, bursting, 5) == first

    def test_time_that_passed_is_not_waited_for_again(self, stores: Stores, pass_time):
        waits(stores, ONCE_A_SECOND, 2)
        pass_time(1.5 * SECOND)

        assert waits(stores, ONCE_A_SECOND, 1) == [0.5 * SECOND]

    def test_all_limits_hold_at_once(self, stores: Stores):
        found = waits(stores, budget(per_second(1), per_minute(6), per_hour(8)), 9)

        assert found[:3] == [AT_ONCE, 10 * SECOND, 20 * SECOND]
        assert found[7] == 70 * SECOND
        assert found[8] >= HOUR

    def test_budgets_do_not_share_what_they_do_not_name(self, stores: Stores):
        waits(stores, ONCE_A_SECOND, 3)

        assert waits(stores, budget(per_second(1), name="other"), 1) == [AT_ONCE]

    def test_a_budget_without_limits_never_waits(self, stores: Stores):
        assert waits(stores, budget(), 100) == [AT_ONCE] * 100

    def test_a_wait_that_is_too_long_is_refused(self, stores: Stores):
        waits(stores, ONCE_A_SECOND, 3)

        with pytest.raises(BudgetClosed) as refused:
            stores.budgets.take(ONCE_A_SECOND, longest=3 * SECOND - MICROSECOND)

        assert refused.value.wait == 3 * SECOND
        assert refused.value.budget == ONCE_A_SECOND.name

    def test_a_wait_as_long_as_allowed_is_granted(self, stores: Stores):
        waits(stores, ONCE_A_SECOND, 3)

        grant = stores.budgets.take(ONCE_A_SECOND, longest=3 * SECOND)

        assert grant.wait == 3 * SECOND

    def test_what_was_refused_is_not_reserved(self, stores: Stores):
        waits(stores, ONCE_A_SECOND, 1)
        before = stores.budgets.state(ONCE_A_SECOND)
        for _ in range(5):
            with pytest.raises(BudgetClosed):
                stores.budgets.take(ONCE_A_SECOND, longest=AT_ONCE)

        assert stores.budgets.state(ONCE_A_SECOND) == before
        assert waits(stores, ONCE_A_SECOND, 1) == [SECOND]

    # giving back

    def test_the_last_token_given_back_is_free_again(self, stores: Stores):
        waits(stores, ONCE_A_SECOND, 2)
        grant = stores.budgets.take(ONCE_A_SECOND, longest=DAY)

        stores.budgets.give_back(ONCE_A_SECOND, grant)

        assert waits(stores, ONCE_A_SECOND, 1) == [grant.wait]

    def test_a_queue_that_is_given_back_from_its_end_is_all_free(self, stores: Stores):
        grants = [stores.budgets.take(ONCE_A_SECOND, longest=DAY) for _ in range(4)]

        for grant in reversed(grants[1:]):
            stores.budgets.give_back(ONCE_A_SECOND, grant)

        assert waits(stores, ONCE_A_SECOND, 2) == [SECOND, 2 * SECOND]

    def test_a_token_given_back_from_the_middle_does_not_bunch_the_others(
        self, stores: Stores
    ):
        grants = [stores.budgets.take(ONCE_A_SECOND, longest=DAY) for _ in range(3)]

        stores.budgets.give_back(ONCE_A_SECOND, grants[1])

        assert waits(stores, ONCE_A_SECOND, 1) == [3 * SECOND]

    def test_a_quota_takes_back_any_token(self, stores: Stores):
        two_an_hour = budget(per_hour(2))
        grants = [stores.budgets.take(two_an_hour, longest=DAY) for _ in range(2)]

        stores.budgets.give_back(two_an_hour, grants[0])

        assert waits(stores, two_an_hour, 1) == [AT_ONCE]

    # closing

    def test_a_closed_budget_grants_nothing_before_it_opens(
        self, stores: Stores, pass_time
    ):
        stores.budgets.close(ONCE_A_SECOND.name, wait=MINUTE, reason="429")
        pass_time(10 * SECOND)

        with pytest.raises(BudgetClosed) as refused:
            stores.budgets.take(ONCE_A_SECOND, longest=SECOND)

        assert refused.value.wait == 50 * SECOND

    def test_a_token_may_be_reserved_for_the_time_it_opens(self, stores: Stores):
        stores.budgets.close(ONCE_A_SECOND.name, wait=MINUTE, reason="429")

        assert waits(stores, ONCE_A_SECOND, 2) == [MINUTE, MINUTE + SECOND]

    def test_a_closed_budget_opens_by_itself(self, stores: Stores, pass_time):
        stores.budgets.close(ONCE_A_SECOND.name, wait=MINUTE, reason="429")
        pass_time(MINUTE)

        assert waits(stores, ONCE_A_SECOND, 1) == [AT_ONCE]

    def test_a_longer_closure_is_not_made_shorter(self, stores: Stores):
        stores.budgets.close(ONCE_A_SECOND.name, wait=MINUTE, reason="long")
        stores.budgets.close(ONCE_A_SECOND.name, wait=SECOND, reason="short")

        state = stores.budgets.state(ONCE_A_SECOND)

        assert (state.closed_for, state.closed_reason) == (MINUTE, "long")

    def test_a_shorter_closure_is_made_longer(self, stores: Stores):
        stores.budgets.close(ONCE_A_SECOND.name, wait=SECOND, reason="short")
        stores.budgets.close(ONCE_A_SECOND.name, wait=MINUTE, reason="long")

        state = stores.budgets.state(ONCE_A_SECOND)

        assert (state.closed_for, state.closed_reason) == (MINUTE, "long")

    def test_a_pause_says_since_when(self, stores: Stores, pass_time):
        name, began = ONCE_A_SECOND.name, stores.jobs.now()
        open_state = stores.budgets.state(ONCE_A_SECOND)
        stores.budgets.close(name, wait=MINUTE, reason="429")
        pass_time(10 * SECOND)
        stores.budgets.close(name, wait=HOUR, reason="429")
        extended = stores.budgets.state(ONCE_A_SECOND)
        pass_time(2 * HOUR)
        reopened = stores.budgets.state(ONCE_A_SECOND)
        stores.budgets.stop(name, reason="401")
        pass_time(MINUTE)
        stores.budgets.stop(name, reason="403")
        stopped = stores.budgets.state(ONCE_A_SECOND)
        stores.budgets.open(name)

        assert (open_state.paused_at, reopened.paused_at) == (None, None)
        assert extended.paused_at == began
        assert stopped.paused_at == began + 10 * SECOND + 2 * HOUR
        assert stores.budgets.state(ONCE_A_SECOND).paused_at is None

    def test_a_budget_without_limits_can_be_closed(self, stores: Stores):
        stores.budgets.close(budget().name, wait=MINUTE, reason="429")

        assert waits(stores, budget(), 1) == [MINUTE]

    def test_a_stopped_budget_grants_nothing_until_it_is_opened(
        self, stores: Stores, pass_time
    ):
        stores.budgets.stop(ONCE_A_SECOND.name, reason="401 Unauthorized")
        pass_time(DAY)
        with pytest.raises(BudgetStopped, match="penstock budgets open") as refused:
            stores.budgets.take(ONCE_A_SECOND, longest=DAY)
        assert refused.value.reason == "401 Unauthorized"

        stores.budgets.open(ONCE_A_SECOND.name)

        assert waits(stores, ONCE_A_SECOND, 1) == [AT_ONCE]

    def test_opening_ends_a_closure_too(self, stores: Stores):
        stores.budgets.close(ONCE_A_SECOND.name, wait=MINUTE, reason="429")

        stores.budgets.open(ONCE_A_SECOND.name)

        assert waits(stores, ONCE_A_SECOND, 1) == [AT_ONCE]

    def test_opening_gives_back_no_token(self, stores: Stores):
        waits(stores, ONCE_A_SECOND, 3)

        stores.budgets.open(ONCE_A_SECOND.name)

        assert waits(stores, ONCE_A_SECOND, 1) == [3 * SECOND]

    def test_a_grant_of_an_open_budget_is_confirmed(self, stores: Stores):
        grant = stores.budgets.take(ONCE_A_SECOND, longest=DAY)

        stores.budgets.confirm(grant)

    def test_a_grant_is_not_confirmed_once_the_budget_was_closed(self, stores: Stores):
        grant = stores.budgets.take(ONCE_A_SECOND, longest=DAY)
        stores.budgets.close(ONCE_A_SECOND.name, wait=MINUTE, reason="429")

        with pytest.raises(BudgetClosed) as refused:
            stores.budgets.confirm(grant)

        assert refused.value.wait == MINUTE

    def test_a_grant_is_not_confirmed_once_the_budget_was_stopped(self, stores: Stores):
        grant = stores.budgets.take(ONCE_A_SECOND, longest=DAY)
        stores.budgets.stop(ONCE_A_SECOND.name, reason="403")

        with pytest.raises(BudgetStopped):
            stores.budgets.confirm(grant)

    def test_a_grant_after_the_closure_is_confirmed_when_its_time_comes(
        self, stores: Stores, pass_time
    ):
        stores.budgets.close(ONCE_A_SECOND.name, wait=MINUTE, reason="429")
        grant = stores.budgets.take(ONCE_A_SECOND, longest=DAY)
        pass_time(grant.wait)

        stores.budgets.confirm(grant)

    # looking

    def test_an_untouched_budget_has_all_its_tokens(self, stores: Stores):
        fresh = budget(per_second(1), per_hour(100), burst=3)

        state = stores.budgets.state(fresh)

        # of the burst, a part is kept back for requests that leave late
        assert [each.remaining for each in state.limits] == [2, 100]
        assert [each.limit for each in state.limits] == list(fresh.limits)
        assert (state.taken, state.closed_for, state.stopped) == (0, None, None)

    def test_the_state_tells_what_is_left(self, stores: Stores):
        used = budget(per_second(1), per_hour(100), burst=3)
        waits(stores, used, 2)

        state = stores.budgets.state(used)

        assert [each.remaining for each in state.limits] == [0, 98]
        assert state.taken == 2

    def test_what_is_given_back_was_not_taken(self, stores: Stores):
        grant = stores.budgets.take(ONCE_A_SECOND, longest=DAY)

        stores.budgets.give_back(ONCE_A_SECOND, grant)

        assert stores.budgets.state(ONCE_A_SECOND).taken == 0

    def test_the_state_tells_why_nothing_is_granted(self, stores: Stores, pass_time):
        stores.budgets.close(ONCE_A_SECOND.name, wait=MINUTE, reason="429")
        stores.budgets.stop(ONCE_A_SECOND.name, reason="401")
        pass_time(SECOND)

        state = stores.budgets.state(ONCE_A_SECOND)

        assert (state.closed_for, state.closed_reason) == (59 * SECOND, "429")
        assert state.stopped == "401"

    def test_a_closure_that_is_over_is_not_reported(self, stores: Stores, pass_time):
        stores.budgets.close(ONCE_A_SECOND.name, wait=MINUTE, reason="429")
        pass_time(MINUTE)

        state = stores.budgets.state(ONCE_A_SECOND)

        assert (state.closed_for, state.closed_reason) == (None, None)

    def test_looking_changes_nothing(self, stores: Stores):
        for _ in range(3):
            stores.budgets.state(ONCE_A_SECOND)

        assert waits(stores, ONCE_A_SECOND, 1) == [AT_ONCE]

    # quotas, over time

    def test_a_quota_is_used_up_at_once_and_then_waited_for(self, stores: Stores):
        found = waits(stores, budget(per_hour(3)), 4)

        assert found[:3] == [AT_ONCE] * 3
        assert HOUR <= found[3] <= 1.02 * HOUR

    def test_a_quota_holds_in_any_period_and_is_almost_all_used(
        self, stores: Stores, pass_time
    ):
        allowance, periods = 50, 8
        quota = budget(per_hour(allowance), per_second(1))
        slots: list[timedelta] = []
        now = timedelta()
        while now < periods * HOUR:
            wait = stores.budgets.take(quota, longest=DAY).wait
            pass_time(wait)
            now += wait
            slots.append(now)

        assert holds(per_hour(allowance), 1, [slot // MICROSECOND for slot in slots])
        used = sum(1 for slot in slots if slot <= periods * HOUR)
        assert used >= 0.98 * allowance * periods

    def test_a_quota_that_others_wait_for_is_not_given_early(
        self, stores: Stores, pass_time
    ):
        quota = budget(per_hour(3))
        waits(stores, quota, 3)
        pass_time(HOUR - SECOND)
        first = stores.budgets.take(quota, longest=HOUR).wait

        assert waits(stores, quota, 2) == [first, first]
        assert first >= SECOND

    @given(of=BUDGETS, deeds=st.lists(DEEDS, max_size=25))
    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            # a contract is one method, run by the test class of every adapter
            HealthCheck.differing_executors,
        ],
    )
    def test_no_interleaving_grants_more_than_the_limits(
        self, stores: Stores, pass_time, of, deeds
    ):
        # each example has a budget of its own
        of = Budget(name=str(uuid4()), limits=of.limits, burst=of.burst)
        grants = []
        refusals = []
        for deed, result in deeds:
            match deed:
                case "take":
                    try:
                        grants.append(stores.budgets.take(of, longest=result))
                    except BudgetClosed as refused:
                        refusals.append((refused.wait, result))
                case "wait":
                    pass_time(result)
                case "close":
                    stores.budgets.close(of.name, wait=result, reason="429")
                case "open":
                    stores.budgets.open(of.name)
                case _:
                    if result < len(grants):
                        stores.budgets.give_back(of, grants.pop(-1 - result))

        slots = [grant.slot for grant in grants]

        assert all(wait > longest for wait, longest in refusals)
        assert all(holds(limit, of.burst, slots) for limit in of.limits)
