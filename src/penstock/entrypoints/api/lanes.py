"""Threads that ask the database: so many at a time, in lanes, for a limited time.

Whoever finds no thread waits a moment, and is then refused: a queue that grows helps
nobody. Each dataset has a share of the threads of a lane, and of its queue. A question
for whose answer nobody waits any more is called off in the database.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from penstock.domain.lanes import DEADLINES, Lane, fair_share, room_of
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


class Group(NamedTuple):
    """Requests of a lane that wait for each other: those of one dataset."""

    lane: Lane
    # None where no dataset's table is read
    dataset: str | None


class Lanes:
    def __init__(
        self, threads: int, *, datasets: int = 1, most_feeds: int = MOST_FEEDS
    ) -> None:
        self.threads = threads
        # one that is alone takes nothing from another
        self._is_shared = datasets > 1
        self._room = room_of(threads)
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="ask")
        self._callers_off = ThreadPoolExecutor(CALLERS_OFF, thread_name_prefix="off")
        self._most_waiting = WAITING_A_THREAD * threads
        self._most_feeds = most_feeds
        # those who wait for a thread, and since when; first come, first served
        self._waiting: dict[Group, dict[asyncio.Future[None], float]] = {}
        self.busy = dict.fromkeys(DEADLINES, 0)
        self._busy_of: Counter[Group] = Counter()
        self.feeds = 0
        self.refused = dict.fromkeys(Lane, 0)
        self.called_off = dict.fromkeys(DEADLINES, 0)

    @property
    def waiting(self) -> dict[Lane, int]:
        counted = dict.fromkeys(DEADLINES, 0)
        for group, turns in self._waiting.items():
            counted[group.lane] += len(turns)
        return counted

    async def run(
        self, lane: Lane, work: Callable[[], Outcome], *, dataset: str | None = None
    ) -> Outcome:
        """Do what asks a store in a thread; a lane that has none borrows from reads.

        Raises `Overloaded` if no thread becomes free, and `StoreTooSlow` if the answer
        takes too long. After that, or if the caller is cancelled, it is called off.
        """
        lane = lane if lane in DEADLINES else Lane.READS
        group = Group(lane, dataset)
        loop = asyncio.get_running_loop()
        longest = DEADLINES[lane].total_seconds()
        deadline = loop.time() + longest
        await self._enter(group)
        errand = Errand(work, loop, on_end=lambda: self._leave(group))
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

    async def _enter(self, group: Group) -> None:
        """Take a thread, or the next that becomes free."""
        turns = self._waiting.get(group, {})
        if not turns and self._admits(group):
            self._take(group)
            return
        all_waiting = self.waiting[group.lane]
        if not self._is_within(
            group, self._most_waiting, mine=len(turns), all_of_lane=all_waiting
        ):
            self._refuse(group.lane)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        turns = self._waiting.setdefault(group, {})
        turns[turn] = loop.time()
        timer = loop.call_later(LONGEST_WAIT, let_go, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if is_granted(turn):
                # it came just as its owner left
                self._leave(group)
            raise
        except TimeoutError:
            self._refuse(group.lane)
        finally:
            timer.cancel()
            self._forget(group, turn)

    def _admits(self, group: Group) -> bool:
        lane = group.lane
        return self._room.admits(lane, self.busy) and self._is_within(
            group,
            self._room.most_of(lane),
            mine=self._busy_of[group],
            all_of_lane=self.busy[lane],
        )

    def _is_within(
        self, group: Group, places: int, *, mine: int, all_of_lane: int
    ) -> bool:
        """Say whether one more of a group has a place among those of its lane."""
        if group.dataset is None or not self._is_shared:
            return all_of_lane < places
        return mine < fair_share(places, others=all_of_lane - mine)

    def _take(self, group: Group) -> None:
        self.busy[group.lane] += 1
        self._busy_of[group] += 1

    def _leave(self, group: Group) -> None:
        """Give a thread back, and let in who has waited longest of those who may."""
        self.busy[group.lane] -= 1
        self._busy_of[group] -= 1
        if not self._busy_of[group]:
            del self._busy_of[group]
        while first := self._first_in_turn():
            waiting, turn = first
            self._forget(waiting, turn)
            if not turn.done():
                self._take(waiting)
                turn.set_result(None)

    def _first_in_turn(self) -> tuple[Group, asyncio.Future[None]] | None:
        found = [
            (since, group, turn)
            for group, turns in self._waiting.items()
            for turn, since in [*turns.items()][:1]
            if self._admits(group)
        ]
        first = min(found, key=lambda each: each[0], default=None)
        return None if first is None else first[1:]

    def _forget(self, group: Group, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(group, {})
        turns.pop(turn, None)
        if not turns:
            self._waiting.pop(group, None)

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
