"""Lanes cannot block each other, and nobody waits long or works for nothing."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.entrypoints.api.concurrency import lanes as module
from penstock.entrypoints.api.concurrency.lanes import (
    MAX_WAITING_PER_THREAD,
    QUEUE_TIMEOUT,
    Lanes,
)
from penstock.entrypoints.api.concurrency.thread_shares import (
    DEADLINES,
    Lane,
    ThreadShares,
    divide_threads,
    fair_share,
)
from penstock.errors import Overloaded, StoreTimeout
from penstock.ports.cancellation import CURRENT_TOKEN, CancelToken
from tests.support.workshop import wait_until

BUSY = tuple(DEADLINES)


def fill(room: ThreadShares, wanted: list[Lane]) -> dict[Lane, int]:
    """Let those in who may come in, in the order of their coming."""
    busy = dict.fromkeys(BUSY, 0)
    for lane in wanted:
        if room.admits(lane, busy):
            busy[lane] += 1
    return busy


@given(st.integers(1, 64), st.lists(st.sampled_from(BUSY), max_size=200))
def test_there_are_never_more_than_there_are_threads(threads, wanted):
    busy = fill(divide_threads(threads), wanted)

    assert sum(busy.values()) <= threads


@given(st.integers(4, 64), st.lists(st.sampled_from(BUSY), max_size=200), st.data())
def test_a_lane_always_has_a_thread_of_its_own(threads, wanted, data):
    # exports have time: they only borrow
    lane = data.draw(st.sampled_from([lane for lane in BUSY if lane != Lane.EXPORT]))
    room = divide_threads(threads)
    busy = fill(room, [each for each in wanted if each is not lane])

    assert room.admits(lane, busy)


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8, 64])
def test_a_lane_that_is_alone_has_most_threads(threads):
    busy = fill(divide_threads(threads), [Lane.READS] * 100)

    assert busy[Lane.READS] >= max(1, threads // 2)


@given(st.integers(1, 64), st.lists(st.sampled_from("abc"), max_size=200))
def test_no_dataset_takes_all_places_of_a_lane_from_another(places, wanted):
    taken: Counter[str] = Counter()
    for each in wanted:
        if taken[each] < fair_share(places, others=taken.total() - taken[each]):
            taken[each] += 1
    free = places - taken.total()

    assert free >= 0
    if places > 1 and len(+taken) == 1:
        assert fair_share(places, others=taken.total())


class Block:
    """Work that lasts until it is let go, or called off."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.called_off = 0

    def __call__(self) -> str:
        ticket = CURRENT_TOKEN.get()
        assert ticket is not None
        with ticket.on_cancel(self._call_off):
            self.begun.release()
            assert self.go.wait(20)
        return "done"

    def _call_off(self) -> None:
        self.called_off += 1
        self.go.set()


@contextmanager
def opened(threads: int, **how: Any) -> Iterator[Lanes]:
    lanes = Lanes(threads, **how)
    try:
        yield lanes
    finally:
        lanes.close()


def test_a_flood_of_searches_leaves_room_for_reads_and_writes():
    block = Block()

    async def go(lanes: Lanes) -> list[str]:
        flood = [
            asyncio.ensure_future(lanes.run(Lane.SEARCH, block)) for _ in range(50)
        ]
        await asyncio.sleep(0.05)
        assert lanes.busy[Lane.SEARCH] == 4
        quick = [
            await lanes.run(lane, lambda: "quick")
            for lane in (Lane.READS, Lane.WRITES, Lane.FEEDS)
        ]
        block.go.set()
        found = await asyncio.gather(*flood, return_exceptions=True)
        assert found == ["done"] * 50
        return quick

    with opened(8) as lanes:
        assert asyncio.run(go(lanes)) == ["quick"] * 3


@pytest.mark.parametrize("lane", BUSY)
@pytest.mark.parametrize("threads", [8, 16])
def test_a_dataset_whose_table_is_locked_blocks_no_other(lane, threads):
    """Neither those who wait for it in threads, nor those who queue for one."""
    block = Block()

    async def go(lanes: Lanes) -> None:
        flood = [
            asyncio.ensure_future(lanes.run(lane, block, dataset="locked"))
            for _ in range(500)
        ]
        await asyncio.to_thread(block.begun.acquire)
        for _ in range(60):
            assert await lanes.run(lane, lambda: "quick", dataset="other") == "quick"
            assert await lanes.run(lane, lambda: "quick") == "quick"
        block.go.set()
        found = await asyncio.gather(*flood, return_exceptions=True)
        assert {type(each) for each in found} == {str, Overloaded}

    with opened(threads, datasets=2) as lanes:
        asyncio.run(go(lanes))
        assert lanes.busy == lanes.waiting == dict.fromkeys(BUSY, 0)


def test_a_dataset_that_is_alone_has_all_threads_of_its_lane():
    block = Block()

    async def go(lanes: Lanes) -> int:
        flood = [
            asyncio.ensure_future(lanes.run(Lane.READS, block, dataset="one"))
            for _ in range(9)
        ]
        await asyncio.to_thread(block.begun.acquire)
        busy = lanes.busy[Lane.READS]
        block.go.set()
        await asyncio.gather(*flood)
        return busy

    with opened(8) as lanes:
        assert asyncio.run(go(lanes)) == 6


def test_whoever_finds_no_thread_is_refused_in_a_moment():
    block = Block()

    async def go(lanes: Lanes) -> float:
        first = [asyncio.ensure_future(lanes.run(Lane.WRITES, block)) for _ in range(2)]
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        with pytest.raises(Overloaded, match="too many writes at once"):
            await lanes.run(Lane.WRITES, block)
        took = time.monotonic() - begun
        block.go.set()
        assert await asyncio.gather(*first) == ["done"] * 2
        return took

    with opened(4) as lanes:
        took = asyncio.run(go(lanes))
        assert QUEUE_TIMEOUT <= took < QUEUE_TIMEOUT + 30
        assert lanes.refused[Lane.WRITES] == 1
        assert lanes.busy == dict.fromkeys(BUSY, 0)


def test_a_queue_that_is_full_refuses_at_once():
    block = Block()

    async def go(lanes: Lanes) -> float:
        room = 4 * MAX_WAITING_PER_THREAD
        waiting = [
            asyncio.ensure_future(lanes.run(Lane.WRITES, block))
            for _ in range(room + 2)
        ]
        await asyncio.sleep(0.05)
        assert lanes.waiting[Lane.WRITES] == room
        begun = time.monotonic()
        with pytest.raises(Overloaded):
            await lanes.run(Lane.WRITES, block)
        took = time.monotonic() - begun
        block.go.set()
        assert await asyncio.gather(*waiting) == ["done"] * (room + 2)
        return took

    with opened(4) as lanes:
        assert asyncio.run(go(lanes)) < QUEUE_TIMEOUT / 2


def test_first_come_first_served():
    block = Block()
    served: list[int] = []

    async def go(lanes: Lanes) -> None:
        first = asyncio.ensure_future(lanes.run(Lane.READS, block))
        await asyncio.sleep(0.05)
        waiting = [
            asyncio.ensure_future(lanes.run(Lane.READS, partial(served.append, number)))
            for number in range(10)
        ]
        await asyncio.sleep(0.05)
        block.go.set()
        await asyncio.gather(first, *waiting)

    with opened(1) as lanes:
        asyncio.run(go(lanes))
        assert served == [*range(10)]


def test_who_leaves_calls_off_what_was_requested_it_and_frees_the_thread():
    block = Block()

    async def go(lanes: Lanes) -> None:
        request = asyncio.ensure_future(lanes.run(Lane.READS, block))
        await asyncio.to_thread(block.begun.acquire)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert await lanes.run(Lane.READS, lambda: "next") == "next"

    with opened(1) as lanes:
        asyncio.run(go(lanes))
        assert block.called_off == 1
        assert lanes.cancelled[Lane.READS] == 1
        assert lanes.busy[Lane.READS] == 0


def test_who_leaves_the_queue_takes_no_thread_along():
    block = Block()

    async def go(lanes: Lanes) -> None:
        first = asyncio.ensure_future(lanes.run(Lane.READS, block))
        await asyncio.sleep(0.05)
        waiting = asyncio.ensure_future(lanes.run(Lane.READS, block))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        block.go.set()
        assert await first == "done"
        assert await lanes.run(Lane.READS, lambda: "next") == "next"

    with opened(1) as lanes:
        asyncio.run(go(lanes))
        assert lanes.busy[Lane.READS] == 0
        assert block.called_off == 0


def test_who_leaves_as_its_patience_ends_gives_nothing_back():
    block = Block()

    async def go(lanes: Lanes) -> None:
        first = asyncio.ensure_future(lanes.run(Lane.READS, block))
        await asyncio.sleep(0.05)
        waiting = asyncio.ensure_future(lanes.run(Lane.READS, block))
        # both in one turn of the loop
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(QUEUE_TIMEOUT, waiting.cancel)
        time.sleep(QUEUE_TIMEOUT + 0.05)  # noqa: ASYNC251 (so that both are due)
        with pytest.raises((asyncio.CancelledError, Overloaded)):
            await waiting
        assert lanes.busy[Lane.READS] == 1
        block.go.set()
        assert await first == "done"

    with opened(1) as lanes:
        asyncio.run(go(lanes))
        assert lanes.busy[Lane.READS] == 0


def test_an_answer_that_takes_too_long_is_given_up_and_called_off(monkeypatch):
    deadlines = {**DEADLINES, Lane.SEARCH: timedelta(milliseconds=100)}
    monkeypatch.setattr(module, "DEADLINES", deadlines)
    block = Block()

    async def go(lanes: Lanes) -> None:
        with pytest.raises(StoreTimeout, match=r"longer than 0\.1 s"):
            await lanes.run(Lane.SEARCH, block)

    with opened(4) as lanes:
        asyncio.run(go(lanes))
        wait_until(lambda: block.called_off == 1)


def test_a_thread_that_does_not_come_back_is_not_given_to_others(monkeypatch):
    deadlines = {**DEADLINES, Lane.READS: timedelta(milliseconds=100)}
    monkeypatch.setattr(module, "DEADLINES", deadlines)
    stuck = threading.Event()

    async def go(lanes: Lanes) -> None:
        with pytest.raises(StoreTimeout):
            await lanes.run(Lane.READS, lambda: stuck.wait(20))
        assert lanes.busy[Lane.READS] == 1
        with pytest.raises(Overloaded):
            await lanes.run(Lane.READS, lambda: "next")
        stuck.set()
        assert await lanes.run(Lane.READS, lambda: "next") == "next"

    with opened(1) as lanes:
        asyncio.run(go(lanes))


def test_what_goes_wrong_in_a_thread_is_raised_to_who_waits():
    def fail() -> None:
        raise ValueError("so it is")

    async def go(lanes: Lanes) -> None:
        with pytest.raises(ValueError, match="so it is"):
            await lanes.run(Lane.READS, fail)

    with opened(1) as lanes:
        asyncio.run(go(lanes))
        assert lanes.busy[Lane.READS] == 0
        assert lanes.cancelled[Lane.READS] == 0


def test_those_who_wait_for_news_are_bounded_by_themselves():
    async def go(lanes: Lanes) -> None:
        with lanes.follow(), lanes.follow():
            assert lanes.feeds == 2
            with pytest.raises(Overloaded, match="too many feeds"), lanes.follow():
                pass
            assert await lanes.run(Lane.FEEDS, lambda: "news") == "news"
        with lanes.follow():
            assert lanes.feeds == 1

    with opened(1, max_feeds=2) as lanes:
        asyncio.run(go(lanes))
        assert lanes.refused[Lane.FEEDS] == 1


def test_a_ticket_that_was_called_off_asks_nothing_more():
    ticket, request = CancelToken(), []
    ticket.cancel()

    with pytest.raises(StoreTimeout), ticket.on_cancel(lambda: None):
        request.append("something")

    assert request == []


def test_a_connection_is_held_as_long_as_it_is_being_called_off():
    """Else its next user would be called off instead."""
    ticket, order = CancelToken(), []
    calling, may_end = threading.Event(), threading.Event()

    def call_off() -> None:
        calling.set()
        assert may_end.wait(20)
        order.append("called off")

    def ask() -> None:
        with ticket.on_cancel(call_off):
            assert calling.wait(20)
        order.append("given back")

    asking = threading.Thread(target=ask)
    asking.start()
    leaving = threading.Thread(target=ticket.cancel)
    leaving.start()
    assert calling.wait(20)
    time.sleep(0.05)
    may_end.set()
    asking.join()
    leaving.join()

    assert order == ["called off", "given back"]
