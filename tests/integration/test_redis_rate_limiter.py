"""Redis allows as often as the domain does, and names nobody."""

import time
from datetime import timedelta

import pytest
import redis

from penstock.adapters.redis.circuit_breaker import FAILURE_PAUSE
from penstock.adapters.redis.rate_limiter import RedisRateLimiter
from penstock.adapters.redis.response_cache import connect_with_short_timeout
from penstock.domain.client_rate import ClientRate
from penstock.errors import StoreUnavailable
from tests.conftest import StartRedis

SECOND = timedelta(seconds=1)
SLOW = ClientRate(requests=60, period=timedelta(hours=1), burst=100)


@pytest.fixture
def rates(redis_url):
    client = connect_with_short_timeout(redis_url)
    yield RedisRateLimiter(client, namespace="penstock")
    client.close()


def taken(
    rates: RedisRateLimiter, client: str, rate: ClientRate, *, most: int, times: int
) -> int:
    return sum(rates.take(client, rate, most=most).granted for _ in range(times))


@pytest.mark.parametrize("most", [1, 7, 100, 1000])
def test_never_more_than_the_burst_at_once(rates, most):
    assert taken(rates, "ann", SLOW, most=most, times=120) == 100


def test_what_is_left_and_how_long_to_wait(rates):
    first = rates.take("ann", SLOW, most=30)
    assert (first.granted, first.left) == (30, 70)
    assert first.wait == 0

    assert taken(rates, "ann", SLOW, most=70, times=1) == 70
    refused = rates.take("ann", SLOW, most=10)
    assert (refused.granted, refused.left) == (0, 0)
    assert 55 < refused.wait <= 60


def test_over_time_no_more_often_than_the_rate_says(rates):
    rate = ClientRate(requests=100, period=SECOND, burst=5)
    begun, granted = time.monotonic(), 0
    while time.monotonic() - begun < 1:
        granted += rates.take("ann", rate, most=3).granted
    took = time.monotonic() - begun

    # a busy machine takes less, never more
    assert 5 < granted <= 100 * took + 5 + 1


def test_whoever_waits_as_reported_is_let_in(rates):
    rate = ClientRate(requests=20, period=SECOND, burst=2)
    assert taken(rates, "ann", rate, most=2, times=1) == 2
    refused = rates.take("ann", rate, most=1)
    assert not refused.granted

    time.sleep(refused.wait)

    assert rates.take("ann", rate, most=1).granted == 1


def test_rates_beyond_a_million_a_second_are_held(rates):
    rate = ClientRate(requests=50_000_000, period=SECOND, burst=1_000)

    assert taken(rates, "ann", rate, most=2_000, times=1) == 1_000


def test_clients_have_allowances_of_their_own(rates):
    assert taken(rates, "ann", SLOW, most=100, times=2) == 100
    assert taken(rates, "ben", SLOW, most=100, times=2) == 100
    # and so has another rate, as after a change of the settings
    other = ClientRate(requests=60, period=timedelta(hours=1), burst=10)
    assert taken(rates, "ann", other, most=100, times=2) == 10


def test_nothing_is_retained_for_ever_and_nobody_is_named(rates, redis_url):
    rates.take("ann@example.org", SLOW, most=1)

    with redis.Redis.from_url(redis_url, decode_responses=True) as server:
        [key] = server.keys("*")
        assert key.startswith("penstock:penstock:rates:")
        assert "ann" not in key
        assert 0 < server.pttl(key) <= 61_000


def test_a_clock_that_was_set_back_locks_nobody_out(rates, redis_url):
    rates.take("ann", SLOW, most=1)
    with redis.Redis.from_url(redis_url, decode_responses=True) as server:
        [key] = server.keys("*")
        server.set(key, (time.time() + 10 * 86_400) * 1_000_000, px=60_000)

    assert rates.take("ann", SLOW, most=1).wait <= 61


def test_a_server_that_is_away_is_reported_at_once_and_left_alone(
    own_redis: StartRedis,
):
    server = own_redis()
    now = [1_000.0]
    client = connect_with_short_timeout(server.url)
    rates = RedisRateLimiter(client, namespace="penstock", clock=lambda: now[0])
    assert rates.take("ann", SLOW, most=1).granted == 1
    assert rates.failure() is None
    server.kill()

    with pytest.raises(StoreUnavailable, match="cannot count the requests of clients"):
        rates.take("ann", SLOW, most=1)
    with pytest.raises(StoreUnavailable, match="did not respond a moment ago"):
        rates.take("ann", SLOW, most=1)

    assert str(rates.failure()).endswith("does not respond")
    now[0] += FAILURE_PAUSE
    assert rates.failure() is not None
    server.start()
    now[0] += FAILURE_PAUSE
    assert rates.failure() is None
    assert rates.take("ann", SLOW, most=1).granted == 1
    client.close()
