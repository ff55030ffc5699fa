"""Answers in Redis end when they were said to, and a Redis that is away has none."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from penstock.adapters.redis.answers import REST, RedisAnswers, connect_for_answers
from tests.services.private import PrivateRedis


@pytest.fixture
def answers(redis_url: str) -> Iterator[RedisAnswers]:
    with closing(connect_for_answers(redis_url)) as client:
        yield RedisAnswers(client, namespace="t")


def test_bytes_come_back_as_they_were_with_the_time_they_have_left(answers):
    body = bytes(range(256))
    answers.keep("a", body, seconds=5)

    found = answers.find("a")

    assert found is not None
    assert found[0] == body
    assert 4 < found[1] <= 5
    assert answers.find("b") is None


def test_an_answer_ends_when_it_was_said_to(answers):
    answers.keep("a", b"x", seconds=0.05)

    time.sleep(0.1)

    assert answers.find("a") is None


def test_installations_do_not_meet(answers, redis_url):
    answers.keep("a", b"x", seconds=5)

    with closing(connect_for_answers(redis_url)) as client:
        assert RedisAnswers(client, namespace="other").find("a") is None


def test_a_server_that_is_away_has_nothing_costs_little_and_comes_back(
    own_redis: Callable[[], PrivateRedis],
):
    server = own_redis()
    now = [0.0]
    with closing(connect_for_answers(server.url)) as client:
        answers = RedisAnswers(client, namespace="t", clock=lambda: now[0])
        answers.keep("a", b"x", seconds=60)
        assert answers.trouble() is None
        server.kill()

        assert answers.find("a") is None
        assert str(answers.trouble()).endswith("does not answer")
        begun = time.monotonic()
        for _ in range(1000):
            # it is left alone for a while: none of these reaches for it
            assert answers.find("a") is None
            answers.keep("a", b"y", seconds=60)
        assert time.monotonic() - begun < 0.5

        server.start()
        assert answers.trouble() is not None
        now[0] += REST
        assert answers.trouble() is None
        answers.keep("a", b"z", seconds=60)
        found = answers.find("a")
    assert found is not None
    assert found[0] == b"z"
