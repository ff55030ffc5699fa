"""Answers in Redis end when they were said to, and a Redis that is away has none."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from penstock.adapters.redis.circuit_breaker import FAILURE_PAUSE
from penstock.adapters.redis.response_cache import (
    RedisResponseCache,
    connect_with_short_timeout,
)
from tests.services.private import PrivateRedis


@pytest.fixture
def answers(redis_url: str) -> Iterator[RedisResponseCache]:
    with closing(connect_with_short_timeout(redis_url)) as client:
        yield RedisResponseCache(client, namespace="t")


def test_bytes_come_back_as_they_were_with_the_time_they_have_left(answers):
    body = bytes(range(256))
    answers.store("a", body, seconds=5)

    found = answers.find("a")

    assert found is not None
    assert found[0] == body
    assert 4 < found[1] <= 5
    assert answers.find("b") is None


def test_an_answer_ends_when_it_was_said_to(answers):
    answers.store("a", b"x", seconds=0.05)

    time.sleep(0.1)

    assert answers.find("a") is None


def test_installations_do_not_meet(answers, redis_url):
    answers.store("a", b"x", seconds=5)

    with closing(connect_with_short_timeout(redis_url)) as client:
        assert RedisResponseCache(client, namespace="other").find("a") is None


def test_a_server_that_is_away_has_nothing_costs_little_and_comes_back(
    own_redis: Callable[[], PrivateRedis],
):
    server = own_redis()
    now = [0.0]
    with closing(connect_with_short_timeout(server.url)) as client:
        answers = RedisResponseCache(client, namespace="t", clock=lambda: now[0])
        answers.store("a", b"x", seconds=60)
        assert answers.failure() is None
        server.kill()

        assert answers.find("a") is None
        assert str(answers.failure()).endswith("does not respond")
        begun = time.monotonic()
        for _ in range(1000):
            # it is left alone for a while: none of these reaches for it
            assert answers.find("a") is None
            answers.store("a", b"y", seconds=60)
        assert time.monotonic() - begun < 60

        server.start()
        assert answers.failure() is not None
        now[0] += FAILURE_PAUSE
        assert answers.failure() is None
        answers.store("a", b"z", seconds=60)
        found = answers.find("a")
    assert found is not None
    assert found[0] == b"z"
