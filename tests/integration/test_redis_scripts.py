"""The scripts decide what the domain decides, to the microsecond."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis

from penstock.adapters.redis.budget_state import (
    BudgetReply,
    BudgetStateReader,
    KnownBudget,
    UnknownBudget,
    usage_fields,
)
from penstock.adapters.redis.client import connect
from penstock.adapters.redis.lua_scripts import LuaScripts
from penstock.domain.budget import (
    Budget,
    Grant,
    Limit,
    LimitState,
    Usage,
    drop_future_usage,
    limit_states,
    reserve,
    return_grant,
)
from penstock.domain.formats import EPOCH, MICROSECOND
from penstock.errors import BudgetClosed
from tests.support.builders import (
    HOUR,
    MINUTE,
    SECOND,
    Clock,
    budget,
    per_hour,
    per_second,
)

DAY = timedelta(days=1)

LIMITS = st.builds(
    Limit,
    requests=st.one_of(st.integers(1, 7), st.integers(1, 20_000)),
    period=st.sampled_from([SECOND, 7 * SECOND, MINUTE, HOUR, 7 * HOUR, DAY]),
)
# the settings refuse two limits for one period
BUDGETS = st.builds(
    Budget,
    name=st.just("ocm"),
    limits=st.lists(LIMITS, max_size=4, unique_by=lambda limit: limit.period).map(
        tuple
    ),
    burst=st.integers(1, 20),
)
SPANS = st.one_of(
    st.timedeltas(timedelta(), SECOND),
    st.timedeltas(timedelta(), 2 * HOUR),
    st.timedeltas(timedelta(), 2 * DAY),
)
DEEDS = st.one_of(
    st.tuples(st.just("take"), st.lists(SPANS, min_size=1, max_size=9)),
    st.tuples(st.just("take"), st.integers(1, 30).map(lambda n: [3 * DAY] * n)),
    st.tuples(st.just("wait"), SPANS),
    st.tuples(st.just("wait"), st.timedeltas(-2 * HOUR, timedelta())),
    st.tuples(st.just("close"), SPANS),
    st.tuples(st.just("open"), st.none()),
    st.tuples(st.just("give_back"), st.integers(0, 9)),
)


@pytest.fixture
def client(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client


class Model:
    """The domain's functions on one budget, as a store would call them."""

    def __init__(self, of: Budget, clock: Clock) -> None:
        self.of = of
        self.clock = clock
        self.usage = Usage()
        self.closed_until = 0
        self.taken = 0

    @property
    def now(self) -> int:
        return (self.clock() - EPOCH) // MICROSECOND

    def take(self, longest: Sequence[timedelta]) -> list[Grant | timedelta]:
        # once a call: what it has just reserved itself is no sign of a wrong clock
        usage = drop_future_usage(self.of, self.usage, now=self.now)
        answers: list[Grant | timedelta] = []
        for each in longest:
            taken, grant = reserve(
                self.of, usage, now=self.now, not_before=self.closed_until
            )
            if grant.wait > each:
                answers.append(grant.wait)
                continue
            self.usage = usage = taken
            self.taken += 1
            answers.append(grant)
        return answers

    def give_back(self, grant: Grant) -> None:
        self.usage = return_grant(self.of, self.usage, grant)
        self.taken -= 1

    def close(self, wait: timedelta) -> None:
        self.closed_until = max(self.closed_until, self.now + wait // MICROSECOND)

    def left(self) -> tuple[LimitState, ...]:
        return limit_states(self.of, self.usage, now=self.now)


class Real:
    """The scripts on one budget of their own."""

    def __init__(self, of: Budget, clock: Clock, client: Redis) -> None:
        self.of = of
        scripts = LuaScripts(client, namespace=str(uuid4()), clock=clock)
        self.memory = BudgetStateReader(scripts)
        lost = self.memory.read(of.name)
        assert isinstance(lost, UnknownBudget)
        assert self.memory.create(of, lost, Usage(), None)

    def take(self, longest: Sequence[timedelta]) -> Sequence[Grant | BudgetClosed]:
        result = self.memory.take(self.of, longest)
        assert isinstance(result, BudgetReply)
        return result.results

    def look(self) -> KnownBudget:
        result = self.memory.read(self.of.name, "taken", *usage_fields(self.of))
        assert isinstance(result, KnownBudget)
        return result


def comparable(answer: Grant | BudgetClosed | timedelta) -> object:
    if isinstance(answer, BudgetClosed):
        return answer.wait
    if isinstance(answer, Grant):
        return answer.slot, answer.wait, dict(answer.full_at)
    return answer


@given(of=BUDGETS, deeds=st.lists(DEEDS, max_size=30))
@example(
    of=budget(per_hour(2), per_second(1)),
    deeds=[
        ("take", [3 * DAY] * 3),
        ("wait", HOUR),
        ("give_back", 0),
        ("take", [SECOND, 3 * DAY, SECOND]),
        ("wait", -HOUR),
        ("take", [3 * DAY]),
    ],
)
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_scripts_and_domain_give_the_same_slots_waits_and_rest(client, of, deeds):
    clock = Clock()
    model, real = Model(of, clock), Real(of, clock, client)
    grants: list[tuple[Grant, Grant]] = []
    for deed, result in deeds:
        match deed:
            case "take":
                expected, found = model.take(result), real.take(result)
                assert [*map(comparable, found)] == [*map(comparable, expected)]
                grants += [
                    (one, other)
                    for one, other in zip(expected, found, strict=True)
                    if isinstance(one, Grant) and isinstance(other, Grant)
                ]
            case "wait":
                clock.pass_time(result)
            case "close":
                model.close(result)
                real.memory.close(of.name, wait=result, reason="429")
            case "open":
                model.closed_until = 0
                real.memory.open(of.name)
            case _:
                if result < len(grants):
                    one, other = grants.pop(-1 - result)
                    model.give_back(one)
                    real.memory.give_back(of, other)
        known = real.look()
        assert limit_states(of, known.usage(of), now=known.now) == model.left()
        assert known.number("taken") == model.taken


def test_a_tail_that_nobody_may_wait_for_is_not_reserved(client):
    real = Real(budget(per_second(1)), Clock(), client)

    first = real.take([SECOND] * 5)
    second = real.take([3 * SECOND])

    waits = [answer.wait for answer in (*first, *second)]
    assert waits == [0 * SECOND, SECOND, 2 * SECOND, 2 * SECOND, 2 * SECOND, 2 * SECOND]
    assert [type(answer) for answer in first[2:]] == [BudgetClosed] * 3
    assert isinstance(second[0], Grant)


def test_the_server_keeps_its_own_time(client):
    memory = BudgetStateReader(LuaScripts(client, namespace="own"))
    seconds, _ = client.time()

    result = memory.read("ocm")

    assert 0 <= result.now // 1_000_000 - seconds <= 5


def test_numbers_stay_exact(client):
    clock = Clock()
    clock.pass_time(timedelta(days=365 * 200))
    of = budget(Limit(requests=1, period=timedelta(days=365)), per_second(3))
    model, real = Model(of, clock), Real(of, clock, client)
    longest = [timedelta.max] * 8

    assert [*map(comparable, real.take(longest))] == [
        *map(comparable, model.take([timedelta(days=3650)] * 8))
    ]
