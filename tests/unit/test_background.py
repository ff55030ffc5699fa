"""Errands wait for each other only as far as they must, and not without end."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator

import pytest
from starlette.types import Message

from penstock.domain.events import Event, RequestFailed
from penstock.entrypoints.api import responses
from penstock.entrypoints.api.concurrency import background as module
from penstock.entrypoints.api.concurrency.background import (
    FILE_THREADS,
    MAX_WAITING,
    PLAN_THREADS,
    BackgroundExecutor,
)
from penstock.entrypoints.api.request_context import ClientDisconnected
from penstock.entrypoints.api.responses import TimeoutStreamingResponse, prepend_chunk
from penstock.errors import Overloaded, StoreTimeout
from tests.support.workshop import wait_until

THREADS = 2


class Bench:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.executor = BackgroundExecutor(self.events.append, threads=THREADS)
        self.release = threading.Event()
        self.begun: list[int] = []

    def block(self) -> None:
        self.begun.append(1)
        assert self.release.wait(20)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.release.set()
    made.executor.close()


def test_nobody_waits_for_plans_and_files_of_others(bench: Bench):
    async def ask() -> str:
        for _ in range(2 * PLAN_THREADS):
            bench.executor.submit_once(bench.block, trace_id="t")
        files = [
            asyncio.ensure_future(bench.executor.run_for_file(bench.block))
            for _ in range(FILE_THREADS)
        ]
        all_taken = PLAN_THREADS + FILE_THREADS
        await asyncio.to_thread(wait_until, lambda: len(bench.begun) == all_taken)
        done = await bench.executor.run(lambda: "cancelled", longest=5)
        bench.release.set()
        await asyncio.gather(*files)
        return done

    assert asyncio.run(ask()) == "cancelled"


def test_more_than_can_wait_are_sent_away_at_once(bench: Bench):
    async def ask() -> float:
        waiting = [
            asyncio.ensure_future(bench.executor.run(bench.block))
            for _ in range(THREADS + MAX_WAITING)
        ]
        await asyncio.sleep(0)
        begun = time.monotonic()
        with pytest.raises(Overloaded):
            await bench.executor.run(bench.block)
        took = time.monotonic() - begun
        bench.release.set()
        await asyncio.gather(*waiting)
        # there is room again
        await bench.executor.run(bench.block)
        return took

    assert asyncio.run(ask()) < 1


def test_what_takes_too_long_is_not_waited_for(bench: Bench):
    async def ask() -> None:
        for _ in range(THREADS):
            with pytest.raises(StoreTimeout):
                await bench.executor.run(bench.block, longest=0.05)
        # this one finds no thread, and does not begin when nobody waits any more
        with pytest.raises(StoreTimeout):
            await bench.executor.run(lambda: bench.begun.append(9), longest=0.05)
        bench.release.set()
        await bench.executor.run(lambda: None)

    asyncio.run(ask())

    assert 9 not in bench.begun


def test_what_the_task_itself_raises_is_passed_on(bench: Bench):
    def give_up() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        asyncio.run(bench.executor.run(give_up))


def test_a_plan_that_is_under_way_is_not_begun_again(bench: Bench):
    for _ in range(3):
        bench.executor.submit_once(bench.block, name=7, trace_id="t")
    wait_until(lambda: bench.begun)
    bench.release.set()
    wait_until(lambda: not bench.executor._planned)

    bench.executor.submit_once(bench.block, name=7, trace_id="t")

    wait_until(lambda: len(bench.begun) == 2)


def test_what_goes_wrong_with_a_plan_is_reported_by_its_trace(bench: Bench):
    def stumble() -> None:
        raise ZeroDivisionError("oh")

    bench.executor.submit_once(stumble, trace_id="known")

    wait_until(lambda: bench.events)
    (event,) = bench.events
    assert isinstance(event, RequestFailed)
    assert (event.trace_id, event.error) == ("known", "ZeroDivisionError: oh")


def test_whoever_maintains_things_goes_on_after_a_failure(bench: Bench):
    polls: list[int] = []

    def read() -> None:
        polls.append(1)
        if len(polls) == 1:
            raise ZeroDivisionError

    bench.executor.run_periodically(read, every=0.01)

    wait_until(lambda: len(polls) > 2)
    assert len(bench.events) == 1


def test_all_that_asks_a_store_has_a_connection():
    assert module.CONNECTIONS > module.THREADS + FILE_THREADS + PLAN_THREADS


class TestASlowReader:
    """Somebody who asked for a list, and reads no more of it."""

    def served(self, taken: Callable[[], bool]) -> tuple[list[Message], list[bool]]:
        sent: list[Message] = []
        is_over: list[bool] = []

        async def lines() -> AsyncGenerator[bytes, None]:
            try:
                while True:
                    yield b"line\n"
            finally:
                is_over.append(True)

        async def send(message: Message) -> None:
            sent.append(message)
            if not taken():
                await asyncio.Event().wait()

        async def answer() -> None:
            whole = lines()
            response = TimeoutStreamingResponse(
                prepend_chunk(await anext(whole), whole)
            )
            with pytest.raises(ClientDisconnected):
                await response.stream_response(send)
            # its place is free, whether or not it is collected
            del whole, response

        async def main() -> None:
            await answer()
            await asyncio.sleep(0)

        asyncio.run(main())
        return sent, is_over

    def test_it_is_not_waited_for(self, monkeypatch):
        monkeypatch.setattr(responses, "SEND_TIMEOUT", 0.1)
        some = iter([True, True, False])

        sent, is_over = self.served(lambda: next(some))

        assert len(sent) == 3
        assert is_over == [True]
