"""What several request at the same time is done once, and leaving harms nobody else."""

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from penstock.entrypoints.api.concurrency.single_flight import SingleFlight

CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


class Work:
    """Runs until it is released, and counts how often it was started and cancelled."""

    def __init__(self, error: Exception | None = None) -> None:
        self.started = self.cancelled = 0
        self.callers: list[str] = []
        self.error = error
        self.released = asyncio.Event()

    async def __call__(self) -> int:
        self.started += 1
        self.callers.append(CALLER.get())
        number = self.started
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return number


class Loop:
    """Runs a test, and has what asyncio would have logged."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        async def observed() -> None:
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: self.warnings.append(context["message"])
            )
            await test
            gc.collect()
            await settle()

        asyncio.run(observed())


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    assert loop.warnings == []


async def settle() -> None:
    """Let all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


async def start_waiters(
    flights: SingleFlight[int], work: Work, count: int
) -> list[asyncio.Task[int]]:
    waiters = [asyncio.create_task(flights.run(work)) for _ in range(count)]
    await settle()
    return waiters


async def leave(*waiters: asyncio.Task[int]) -> None:
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)
    assert all(waiter.cancelled() for waiter in waiters)
    await settle()


def test_all_who_request_the_same_get_the_outcome_of_one_run(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](), Work()
        waiters = await start_waiters(flights, work, 5)
        work.released.set()
        assert await asyncio.gather(*waiters) == [1] * 5

    loop.run(test())


def test_other_keys_run_on_their_own(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](), Work()
        work.released.set()
        runs = [flights.run(work, key=key) for key in ("a", "b", "a")]
        assert await asyncio.gather(*runs) == [1, 2, 1]

    loop.run(test())


def test_nothing_is_cached_or_left_behind(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](), Work()
        work.released.set()
        assert [await flights.run(work) for _ in range(3)] == [1, 2, 3]
        assert flights.find() is None
        assert not flights._flights

    loop.run(test())


def test_what_has_ended_is_not_joined_before_its_end_is_processed(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](), Work()
        work.released.set()
        first = flights.start(work)
        await asyncio.sleep(0)
        assert first.task.done()
        assert flights._flights
        assert flights.find() is None
        assert flights.start(work) is not first
        await settle()
        assert not flights._flights

    loop.run(test())


@pytest.mark.parametrize("cancels", [False, True])
def test_whoever_leaves_takes_nothing_from_the_others(loop, cancels):
    async def test() -> None:
        flights, work = SingleFlight[int](cancels_abandoned=cancels), Work()
        first, second, third = await start_waiters(flights, work, 3)
        await leave(first, second)
        joined = asyncio.create_task(flights.run(work))
        await settle()
        work.released.set()
        assert [await third, await joined] == [1, 1]
        assert work.cancelled == 0

    loop.run(test())


def test_the_last_who_leaves_cancels_it_and_the_next_starts_anew(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](cancels_abandoned=True), Work()
        waiters = await start_waiters(flights, work, 2)
        await leave(*waiters)
        assert work.cancelled == 1
        work.released.set()
        assert await flights.run(work) == 2

    loop.run(test())


def test_nobody_joins_what_is_being_cancelled(loop):
    async def test() -> None:
        flights = SingleFlight[str](cancels_abandoned=True)
        cleaned = asyncio.Event()

        async def slow_to_stop() -> str:
            try:
                return await asyncio.sleep(10, "first")
            finally:
                await cleaned.wait()

        async def other() -> str:
            return "second"

        first = asyncio.create_task(flights.run(slow_to_stop))
        await settle()
        first.cancel()
        await settle()
        assert await flights.run(other) == "second"
        cleaned.set()
        await settle()
        assert not flights._flights

    loop.run(test())


def test_it_goes_on_without_waiters_by_default(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](), Work()
        waiters = await start_waiters(flights, work, 2)
        await leave(*waiters)
        joined = asyncio.create_task(flights.run(work))
        await settle()
        work.released.set()
        assert await joined == 1
        assert work.cancelled == 0

    loop.run(test())


def test_what_was_started_for_nobody_is_joined_and_cancelled_by_none(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](cancels_abandoned=True), Work()
        flight = flights.start(work)
        flight.waiting += 1
        waiters = await start_waiters(flights, work, 2)
        await leave(*waiters)
        work.released.set()
        assert await flights.run(work) == 1
        assert work.cancelled == 0

    loop.run(test())


def test_an_error_reaches_all_and_the_next_tries_again(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](), Work(ValueError("broken"))
        waiters = await start_waiters(flights, work, 3)
        work.released.set()
        found = await asyncio.gather(*waiters, return_exceptions=True)
        assert [str(error) for error in found] == ["broken"] * 3
        work.error = None
        assert await flights.run(work) == 2

    loop.run(test())


@pytest.mark.parametrize("leaving", [0, 1, 2])
def test_asyncio_logs_no_error_of_work_that_was_left(loop, leaving):
    async def test() -> None:
        flights, work = SingleFlight[int](), Work(ValueError("broken"))
        waiters = await start_waiters(flights, work, 2)
        await leave(*waiters[:leaving])
        work.released.set()
        await asyncio.gather(*waiters, return_exceptions=True)
        await settle()
        assert work.started == 1

    loop.run(test())


def test_asyncio_logs_no_error_of_work_that_nobody_waits_for(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](), Work(ValueError("broken"))
        work.released.set()
        flights.start(work)
        await settle()
        assert work.started == 1

    loop.run(test())


def test_whoever_waits_for_cancelled_work_is_cancelled(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](), Work()
        waiters = await start_waiters(flights, work, 2)
        flight = flights.find()
        assert flight is not None
        flight.task.cancel()
        await asyncio.wait(waiters)
        assert all(waiter.cancelled() for waiter in waiters)

    loop.run(test())


def test_it_runs_in_the_context_of_whoever_started_it(loop):
    async def test() -> None:
        flights, work = SingleFlight[int](), Work()

        async def request(name: str) -> str:
            CALLER.set(name)
            await flights.run(work)
            return CALLER.get()

        requests = [asyncio.create_task(request(name)) for name in ("one", "other")]
        await settle()
        work.released.set()
        # each keeps its own
        assert await asyncio.gather(*requests) == ["one", "other"]
        assert work.callers == ["one"]

    loop.run(test())


def test_whoever_needs_a_newer_version_does_not_join_an_older_one(loop):
    async def test() -> None:
        flights, old, new = SingleFlight[int](), Work(), Work()
        first = flights.start(old, version=5)
        assert flights.start(new, version=6, min_version=5) is first
        second = flights.start(new, version=6, min_version=6)
        assert second is not first
        assert flights.start(new, version=7, min_version=6) is second
        old.released.set()
        assert await first.wait() == 1
        # its end does not remove the one that took its place
        await settle()
        assert flights.find() is second
        new.released.set()
        assert await second.wait() == 1
        assert (old.started, new.started) == (1, 1)

    loop.run(test())
