"""Threads that ask at the same time share a call, and each gets its own answer."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from penstock.adapters.redis.call_batcher import CallBatcher
from penstock.errors import StoreUnavailable


class Doubler:
    """Doubles what it is asked; the first call waits until it is let go."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.calls: list[list[int]] = []
        self.under_way = threading.Event()
        self.go_on = threading.Event()
        self.error = error

    def __call__(self, request: Sequence[int]) -> list[int]:
        self.calls.append(list(request))
        self.under_way.set()
        assert self.go_on.wait(10)
        if self.error is not None and len(self.calls) > 1:
            raise self.error
        return [2 * each for each in request]


def ask_together(doubler: Doubler, *, threads: int, most: int) -> list[object]:
    """Ask once, and by the other threads while the first call is under way."""
    combined: CallBatcher[int, int] = CallBatcher(doubler, most=most)

    def ask(number: int) -> object:
        try:
            return combined(number)
        except BaseException as error:  # noqa: BLE001 (told as it is)
            return error

    with ThreadPoolExecutor(threads) as pool:
        first = pool.submit(ask, 0)
        assert doubler.under_way.wait(10)
        others = [pool.submit(ask, number) for number in range(1, threads)]
        while len(combined._line) < threads - 1:
            pass
        doubler.go_on.set()
        return [each.result(10) for each in (first, *others)]


def test_those_who_come_meanwhile_share_the_next_call():
    doubler = Doubler()

    answers = ask_together(doubler, threads=8, most=100)

    assert answers == [2 * number for number in range(8)]
    assert [len(call) for call in doubler.calls] == [1, 7]


def test_a_call_is_no_larger_than_allowed():
    doubler = Doubler()

    answers = ask_together(doubler, threads=8, most=3)

    assert answers == [2 * number for number in range(8)]
    assert [len(call) for call in doubler.calls] == [1, 3, 3, 1]
    assert sorted(chain(*doubler.calls)) == list(range(8))


def test_all_of_a_call_learn_that_it_failed_and_nobody_waits_for_ever():
    doubler = Doubler(StoreUnavailable("gone"))

    answers = ask_together(doubler, threads=4, most=100)

    assert answers[0] == 0
    assert [str(each) for each in answers[1:]] == ["gone"] * 3
    # a traceback belongs to one thread
    assert len({id(each) for each in answers}) == 4


def test_nobody_waits_for_a_thread_that_was_ended():
    doubler = Doubler(KeyboardInterrupt())

    answers = ask_together(doubler, threads=4, most=100)

    kinds = sorted(type(each).__name__ for each in answers[1:])
    assert kinds == ["KeyboardInterrupt", "StoreUnavailable", "StoreUnavailable"]


def test_after_a_failure_the_next_call_is_made():
    failures = [StoreUnavailable("once")]

    def call(request: Sequence[int]) -> Sequence[int]:
        if failures:
            raise failures.pop()
        return request

    combined: CallBatcher[int, int] = CallBatcher(call, most=1)
    with pytest.raises(StoreUnavailable):
        combined(1)

    assert combined(2) == 2
