"""Nobody asks more often than allowed, and whoever waits as told is let in."""

import asyncio
import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.client_rate import ClientRate, ceil_seconds, charge_request
from penstock.entrypoints.api.middleware import rate_limit as module
from penstock.entrypoints.api.middleware.rate_limit import RateLimiter
from penstock.errors import StoreUnavailable
from penstock.ports.rate_limits import RequestBatch, SharedRateLimiter

SECOND = timedelta(seconds=1)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Store(SharedRateLimiter):
    """One allowance for all, on the clock of the test."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.full_at: dict[str, float] = {}
        self.requests = 0
        self.is_away = False

    def take(self, client: str, rate: ClientRate, *, most: int) -> RequestBatch:
        self.requests += 1
        if self.is_away:
            raise StoreUnavailable("away")
        granted, left, wait = 0, 0, 0.0
        while granted < most:
            standing = charge_request(
                rate, self.full_at.get(client, 0.0), self._clock()
            )
            left, wait = standing.left, standing.wait
            if not standing.is_allowed:
                break
            self.full_at[client] = standing.full_at
            granted += 1
        return RequestBatch(granted=granted, left=left, wait=wait)

    def failure(self) -> str | None:
        return "away" if self.is_away else None


def allowed(rates: RateLimiter, client: str, times: int) -> int:
    async def go() -> int:
        found = [await rates.charge(client) for _ in range(times)]
        return sum(each.is_allowed for each in found)

    return asyncio.run(go())


@given(
    st.builds(
        ClientRate,
        requests=st.integers(1, 10_000),
        period=st.sampled_from([SECOND, timedelta(minutes=1), timedelta(hours=1)]),
        burst=st.integers(1, 1_000),
    ),
    st.lists(st.floats(0, 2), min_size=1, max_size=200),
)
def test_over_any_time_at_most_the_rate_and_one_burst(rate, gaps):
    now, full_at, let_in = 1_000.0, 0.0, []
    for gap in gaps:
        now += gap * rate.interval
        standing = charge_request(rate, full_at, now)
        if standing.is_allowed:
            full_at = standing.full_at
            let_in.append(now)
    for first, begin in enumerate(let_in):
        for last in range(first, len(let_in)):
            count = last - first + 1
            assert count <= (let_in[last] - begin) / rate.interval + rate.burst + 1e-3


@given(st.integers(1, 100), st.integers(1, 50))
def test_whoever_waits_as_reported_is_let_in(requests, burst):
    rate = ClientRate(requests=requests, period=SECOND, burst=burst)
    now, full_at = 1_000.0, 0.0
    for left in reversed(range(burst)):
        standing = charge_request(rate, full_at, now)
        assert standing.is_allowed
        assert standing.left == left
        full_at = standing.full_at

    refused = charge_request(rate, full_at, now)
    assert not refused.is_allowed
    assert 0 < refused.wait <= rate.interval * 1.001
    assert refused.full_at == full_at
    assert charge_request(rate, full_at, now + refused.wait).is_allowed


@pytest.mark.parametrize(
    ("wait", "result"), [(0, 1), (0.2, 1), (1, 1), (1.01, 2), (3600, 3600)]
)
def test_waits_are_reported_in_whole_seconds(wait, result):
    assert ceil_seconds(wait) == result


def test_each_client_has_an_allowance_of_its_own():
    clock = Clock()
    rates = RateLimiter(ClientRate(requests=10, period=SECOND, burst=3), clock=clock)

    assert allowed(rates, "ann", 5) == 3
    assert allowed(rates, "ben", 5) == 3
    clock.now += 0.1
    assert allowed(rates, "ann", 5) == 1
    assert rates.refused == 8
    rates.close()


def test_only_so_many_clients_are_remembered(monkeypatch):
    monkeypatch.setattr(module, "MAX_CLIENTS", 100)
    clock = Clock()
    rates = RateLimiter(ClientRate(requests=1, period=SECOND, burst=1), clock=clock)

    for number in range(1000):
        allowed(rates, f"client {number}", 1)

    assert len(rates._buckets) == 100
    assert allowed(rates, "client 999", 1) == 0
    rates.close()


def test_the_policy_is_reported_as_the_draft_has_it():
    rates = RateLimiter(ClientRate(requests=10, period=SECOND, burst=25))

    assert rates.policy == b'"client";q=25;w=3'
    rates.close()


def test_processes_count_together():
    clock = Clock()
    store = Store(clock)
    rate = ClientRate(requests=10, period=SECOND, burst=100)
    processes = [RateLimiter(rate, store, clock=clock) for _ in range(4)]

    async def go() -> int:
        let_in = 0
        for _ in range(200):
            for each in processes:
                let_in += (await each.charge("ann")).is_allowed
        return let_in

    assert asyncio.run(go()) == 100
    # most requests asked nobody
    assert store.requests <= 100 / 5 + len(processes)
    for each in processes:
        each.close()


def test_who_was_refused_by_all_does_not_ask_the_store_again_at_once():
    clock = Clock()
    store = Store(clock)
    rates = RateLimiter(
        ClientRate(requests=1, period=SECOND, burst=20), store, clock=clock
    )
    other = RateLimiter(
        ClientRate(requests=1, period=SECOND, burst=20), store, clock=clock
    )
    assert allowed(other, "ann", 25) == 20
    request = store.requests

    assert allowed(rates, "ann", 50) == 0
    assert store.requests == request + 1
    clock.now += 1
    assert allowed(rates, "ann", 5) == 1
    rates.close()
    other.close()


def test_without_the_store_each_process_goes_on_by_its_own_count():
    clock = Clock()
    store = Store(clock)
    store.is_away = True
    rates = RateLimiter(
        ClientRate(requests=10, period=SECOND, burst=20), store, clock=clock
    )

    assert allowed(rates, "ann", 50) == 20
    assert store.requests == 1
    clock.now += 1.1
    assert allowed(rates, "ann", 50) == 11
    assert store.requests == 2
    rates.close()


def test_a_store_that_goes_away_gives_nobody_another_burst():
    clock = Clock()
    store = Store(clock)
    rates = RateLimiter(
        ClientRate(requests=10, period=SECOND, burst=20), store, clock=clock
    )
    assert allowed(rates, "ann", 15) == 15

    store.is_away = True

    assert allowed(rates, "ann", 50) == 5
    rates.close()


def test_many_requests_of_a_client_share_one_question_and_all_that_may_come_in():
    clock = Clock()
    asking, go_on = threading.Event(), threading.Event()

    class Slow(Store):
        def take(self, client: str, rate: ClientRate, *, most: int) -> RequestBatch:
            asking.set()
            assert go_on.wait(20)
            return super().take(client, rate, most=most)

    store = Slow(clock)
    rates = RateLimiter(
        ClientRate(requests=10, period=SECOND, burst=40), store, clock=clock
    )

    async def go() -> int:
        waiting = [asyncio.ensure_future(rates.charge("ann")) for _ in range(60)]
        await asyncio.to_thread(asking.wait)
        go_on.set()
        return sum(each.is_allowed for each in await asyncio.gather(*waiting))

    assert asyncio.run(go()) == 40
    assert store.requests == 40 / 2 + 1
    rates.close()


def test_what_was_taken_and_not_used_is_not_retained_for_ever():
    clock = Clock()
    store = Store(clock)
    rate = ClientRate(requests=10, period=SECOND, burst=200)
    rates = RateLimiter(rate, store, clock=clock)
    other = RateLimiter(rate, store, clock=clock)
    assert allowed(rates, "ann", 1) == 1
    clock.now += 60

    assert allowed(other, "ann", 300) == 200
    assert allowed(rates, "ann", 300) == 0
    rates.close()
    other.close()


def test_a_refused_request_is_counted_without_a_trip_to_the_store():
    clock = Clock()
    store = Store(clock)
    rates = RateLimiter(
        ClientRate(requests=100, period=SECOND, burst=100), store, clock=clock
    )
    assert [rates.charge_locally("a").left for _ in range(60)] == [*range(99, 39, -1)]
    assert store.requests == 0
    # what is left is for all requests of the client
    assert allowed(rates, "a", 50) == 40
    assert not rates.charge_locally("a").is_allowed
    rates.close()


def test_a_client_that_the_store_refuses_is_refused_without_another_trip():
    clock = Clock()
    store = Store(clock)
    rate = ClientRate(requests=10, period=SECOND, burst=10)
    one, other = (RateLimiter(rate, store, clock=clock) for _ in range(2))
    assert allowed(one, "a", 10) == 10
    assert allowed(other, "a", 1) == 0
    trips = store.requests

    refused = other.charge_locally("a")
    assert not refused.is_allowed
    assert refused.wait > 0
    assert store.requests == trips
    one.close()
    other.close()
