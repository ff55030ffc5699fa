"""Threads that ask the database: so many at a time, in lanes, for a limited time.

Whoever finds no thread waits a moment, and is then refused: a queue that grows helps
nobody. A question for whose answer nobody waits any more is called off in the database.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, NoReturn, TypeVar

from penstock.domain.lanes import DEADLINES, Lane, room_of
from penstock.errors import Overloaded, StoreTooSlow
from penstock.ports.tickets import CURRENT, Ticket

Outcome = TypeVar("Outcome")

# seconds that a request waits for a thread
LONGEST_WAIT = 0.25
# so many requests of a lane may wait for each thread that there is
WAITING_A_THREAD = 16
# threads that tell the database what nobody waits for
CALLERS_OFF = 2
# clients of a process that wait for news at a time
MOST_FEEDS = 1_000


class Lanes:
    def __init__(self, threads: int, *, most_feeds: int = MOST_FEEDS) -> None:
        self.threads = threads
        self._room = room_of(threads)
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="ask")
        self._callers_off = ThreadPoolExecutor(CALLERS_OFF, thread_name_prefix="off")
        self._most_waiting = WAITING_A_THREAD * threads
        self._most_feeds = most_feeds
        # those who wait for a thread, and since when; first come, first served
        self._waiting: dict[Lane, dict[asyncio.Future[None], float]] = {
            lane: {} for lane in DEADLINES
        }
        self.busy = dict.fromkeys(DEADLINES, 0)
        self.feeds = 0
        self.refused = dict.fromkeys(Lane, 0)
        self.called_off = dict.fromkeys(DEADLINES, 0)

    @property
    def waiting(self) -> dict[Lane, int]:
        return {lane: len(turns) for lane, turns in self._waiting.items()}

    async def run(self, lane: Lane, work: Callable[[], Outcome]) -> Outcome:
        """Do what asks a store in a thread; a lane that has none borrows from reads.

        Raises `Overloaded` if no thread becomes free, and `StoreTooSlow` if the answer
        takes too long. After that, or if the caller is cancelled, it is called off.
        """
        lane = lane if lane in DEADLINES else Lane.READS
        loop = asyncio.get_running_loop()
        longest = DEADLINES[lane].total_seconds()
        deadline = loop.time() + longest
        await self._enter(lane)
        errand = Errand(work, loop, on_end=lambda: self._leave(lane))
        self._workers.submit(errand.do)
        timer = loop.call_at(deadline, errand.end, None, too_slow(longest))
        try:
            return await errand.answer
        finally:
            timer.cancel()
            if not errand.is_over:
                self.called_off[lane] += 1
                self._callers_off.submit(errand.ticket.call_off)

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Count among those who wait for news; raises `Overloaded` if they are many."""
        if self.feeds >= self._most_feeds:
            self._refuse(Lane.FEEDS)
        self.feeds += 1
        try:
            yield
        finally:
            self.feeds -= 1

    def close(self) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._callers_off.shutdown(wait=False)

    async def _enter(self, lane: Lane) -> None:
        """Take a thread, or the next that becomes free."""
        turns = self._waiting[lane]
        if not turns and self._room.admits(lane, self.busy):
            self.busy[lane] += 1
            return
        if len(turns) >= self._most_waiting:
            self._refuse(lane)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        turns[turn] = loop.time()
        timer = loop.call_later(LONGEST_WAIT, let_go, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if is_granted(turn):
                # it came just as its owner left
                self._leave(lane)
            raise
        except TimeoutError:
            self._refuse(lane)
        finally:
            timer.cancel()
            turns.pop(turn, None)

    def _leave(self, lane: Lane) -> None:
        """Give a thread back, and let in who has waited longest of those who may."""
        self.busy[lane] -= 1
        while first := self._first_in_turn():
            lane, turn = first
            del self._waiting[lane][turn]
            if not turn.done():
                self.busy[lane] += 1
                turn.set_result(None)

    def _first_in_turn(self) -> tuple[Lane, asyncio.Future[None]] | None:
        found = [
            (since, lane, turn)
            for lane, turns in self._waiting.items()
            for turn, since in [*turns.items()][:1]
            if self._room.admits(lane, self.busy)
        ]
        _, lane, turn = min(found, default=(0, None, None))
        return None if lane is None or turn is None else (lane, turn)

    def _refuse(self, lane: Lane) -> NoReturn:
        self.refused[lane] += 1
        raise Overloaded(lane.value)


class Errand(Generic[Outcome]):
    """One question: a thread works on it, and somebody waits on the event loop."""

    def __init__(
        self,
        work: Callable[[], Outcome],
        loop: asyncio.AbstractEventLoop,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self.answer: asyncio.Future[Outcome] = loop.create_future()
        self.ticket = Ticket()
        # whether the thread is free again; the answer may have been given up before
        self.is_over = False
        self._work = work
        self._loop = loop
        self._on_end = on_end

    def do(self) -> None:
        """Work, in a thread."""
        CURRENT.set(self.ticket)
        outcome, error = None, None
        try:
            outcome = self._work()
        except BaseException as raised:  # noqa: BLE001 (for whoever waits)
            error = raised
        finally:
            CURRENT.set(None)
        self._loop.call_soon_threadsafe(self._over, outcome, error)

    def end(self, outcome: Any, error: BaseException | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(outcome)
        else:
            self.answer.set_exception(error)

    def _over(self, outcome: Any, error: BaseException | None) -> None:
        self.is_over = True
        self._on_end()
        self.end(outcome, error)


def too_slow(longest: float) -> StoreTooSlow:
    return StoreTooSlow(f"the answer would take longer than {longest:g} s")


def is_granted(turn: asyncio.Future[None]) -> bool:
    """Say whether a thread was given; it may also have been waited for in vain."""
    return turn.done() and not turn.cancelled() and turn.exception() is None


def let_go(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_exception(TimeoutError())
