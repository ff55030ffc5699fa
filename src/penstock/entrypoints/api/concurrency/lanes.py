"""Threads that query the database: limited by lane, with deadlines.

A request that finds no thread waits a moment, and is then refused: a growing queue
helps nobody. Each dataset has a share of the threads of a lane, and of its queue. A
query whose result nobody awaits any more is cancelled in the database.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from penstock.entrypoints.api.concurrency.thread_shares import (
    DEADLINES,
    Lane,
    divide_threads,
    fair_share,
)
from penstock.errors import Overloaded, StoreTimeout
from penstock.ports.cancellation import CURRENT_TOKEN, CancelToken
from penstock.ports.tracing import NO_TRACER, Tracer

Outcome = TypeVar("Outcome")

# seconds that a request waits for a thread
QUEUE_TIMEOUT = 0.25
# length of a lane's queue
MAX_WAITING_PER_THREAD = 16
# threads that cancel queries in the database
CANCEL_THREADS = 2
# clients of a process that wait for changes at the same time
MAX_FEEDS = 1_000


class DatasetGroup(NamedTuple):
    """The requests of a lane for one dataset, which share a queue."""

    lane: Lane
    # None if no dataset's table is read
    dataset: str | None


class Lanes:
    def __init__(
        self,
        threads: int,
        *,
        datasets: int = 1,
        max_feeds: int = MAX_FEEDS,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._tracer = tracer
        self.threads = threads
        # a single dataset need not leave threads to others
        self._is_shared = datasets > 1
        self._shares = divide_threads(threads)
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="query")
        self._cancellers = ThreadPoolExecutor(
            CANCEL_THREADS, thread_name_prefix="cancel"
        )
        self._max_waiting = MAX_WAITING_PER_THREAD * threads
        self._max_feeds = max_feeds
        # requests that wait for a thread, and since when; first come, first served
        self._waiting: dict[DatasetGroup, dict[asyncio.Future[None], float]] = {}
        self.busy = dict.fromkeys(DEADLINES, 0)
        self._busy_by_group: Counter[DatasetGroup] = Counter()
        self.feeds = 0
        self.refused = dict.fromkeys(Lane, 0)
        self.cancelled = dict.fromkeys(DEADLINES, 0)

    @property
    def waiting(self) -> dict[Lane, int]:
        counts = dict.fromkeys(DEADLINES, 0)
        for group, turns in self._waiting.items():
            counts[group.lane] += len(turns)
        return counts

    async def run(
        self, lane: Lane, work: Callable[[], Outcome], *, dataset: str | None = None
    ) -> Outcome:
        """Run a query in a thread; a lane without threads uses those of reads.

        Raises `Overloaded` if no thread becomes free, and `StoreTimeout` if the query
        takes too long. Then, or if the caller is cancelled, the query is cancelled.
        """
        with self._tracer.child("query") as span:
            if span.is_recording:
                span.set("penstock.lane", lane.value)
                if dataset is not None:
                    span.set("penstock.dataset", dataset)
            return await self._run(lane, self._tracer.carry(work), dataset)

    async def _run(
        self, lane: Lane, work: Callable[[], Outcome], dataset: str | None
    ) -> Outcome:
        lane = lane if lane in DEADLINES else Lane.READS
        group = DatasetGroup(lane, dataset)
        loop = asyncio.get_running_loop()
        timeout = DEADLINES[lane].total_seconds()
        deadline = loop.time() + timeout
        await self._acquire(group)
        query = QueryTask(work, loop, on_end=lambda: self._release(group))
        self._workers.submit(query.run)
        timer = loop.call_at(deadline, query.finish, None, timeout_error(timeout))
        try:
            return await query.result
        finally:
            timer.cancel()
            if not query.is_over:
                self.cancelled[lane] += 1
                self._cancellers.submit(query.cancel_token.cancel)

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Count a client that waits for changes; raises `Overloaded` at the limit."""
        if self.feeds >= self._max_feeds:
            self._refuse(Lane.FEEDS)
        self.feeds += 1
        try:
            yield
        finally:
            self.feeds -= 1

    def close(self) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._cancellers.shutdown(wait=False)

    async def _acquire(self, group: DatasetGroup) -> None:
        """Acquire a thread, or the next that becomes free."""
        turns = self._waiting.get(group, {})
        if not turns and self._admits(group):
            self._take(group)
            return
        all_waiting = self.waiting[group.lane]
        if not self._is_within(
            group, self._max_waiting, mine=len(turns), all_of_lane=all_waiting
        ):
            self._refuse(group.lane)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        turns = self._waiting.setdefault(group, {})
        turns[turn] = loop.time()
        timer = loop.call_later(QUEUE_TIMEOUT, time_out, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if is_granted(turn):
                # granted and cancelled at the same time
                self._release(group)
            raise
        except TimeoutError:
            self._refuse(group.lane)
        finally:
            timer.cancel()
            self._remove(group, turn)

    def _admits(self, group: DatasetGroup) -> bool:
        lane = group.lane
        return self._shares.admits(lane, self.busy) and self._is_within(
            group,
            self._shares.limit_of(lane),
            mine=self._busy_by_group[group],
            all_of_lane=self.busy[lane],
        )

    def _is_within(
        self, group: DatasetGroup, slots: int, *, mine: int, all_of_lane: int
    ) -> bool:
        """Return whether a group may use one more of its lane's slots."""
        if group.dataset is None or not self._is_shared:
            return all_of_lane < slots
        return mine < fair_share(slots, others=all_of_lane - mine)

    def _take(self, group: DatasetGroup) -> None:
        self.busy[group.lane] += 1
        self._busy_by_group[group] += 1

    def _release(self, group: DatasetGroup) -> None:
        """Release a thread to the request that has waited longest of those admitted."""
        self.busy[group.lane] -= 1
        self._busy_by_group[group] -= 1
        if not self._busy_by_group[group]:
            del self._busy_by_group[group]
        while first := self._next_turn():
            waiting, turn = first
            self._remove(waiting, turn)
            if not turn.done():
                self._take(waiting)
                turn.set_result(None)

    def _next_turn(self) -> tuple[DatasetGroup, asyncio.Future[None]] | None:
        candidates = [
            (since, group, turn)
            for group, turns in self._waiting.items()
            for turn, since in [*turns.items()][:1]
            if self._admits(group)
        ]
        first = min(candidates, key=lambda candidate: candidate[0], default=None)
        return None if first is None else first[1:]

    def _remove(self, group: DatasetGroup, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(group, {})
        turns.pop(turn, None)
        if not turns:
            self._waiting.pop(group, None)

    def _refuse(self, lane: Lane) -> NoReturn:
        self.refused[lane] += 1
        raise Overloaded(lane.value)


class QueryTask(Generic[Outcome]):
    """A query that runs in a thread and is awaited on the event loop."""

    def __init__(
        self,
        work: Callable[[], Outcome],
        loop: asyncio.AbstractEventLoop,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self.result: asyncio.Future[Outcome] = loop.create_future()
        self.cancel_token = CancelToken()
        # whether the thread is free again; the result may have timed out before
        self.is_over = False
        self._work = work
        self._loop = loop
        self._on_end = on_end

    def run(self) -> None:
        """Run the query, in a thread."""
        CURRENT_TOKEN.set(self.cancel_token)
        outcome, error = None, None
        try:
            outcome = self._work()
        except BaseException as raised:  # noqa: BLE001 (passed to the awaiting task)
            error = raised
        finally:
            CURRENT_TOKEN.set(None)
        self._loop.call_soon_threadsafe(self._end, outcome, error)

    def finish(self, outcome: Any, error: BaseException | None) -> None:
        if self.result.done():
            return
        if error is None:
            self.result.set_result(outcome)
        else:
            self.result.set_exception(error)

    def _end(self, outcome: Any, error: BaseException | None) -> None:
        self.is_over = True
        self._on_end()
        self.finish(outcome, error)


def timeout_error(seconds: float) -> StoreTimeout:
    return StoreTimeout(f"the query takes longer than {seconds:g} s")


def is_granted(turn: asyncio.Future[None]) -> bool:
    """Return whether a thread was granted; the wait may also have timed out."""
    return turn.done() and not turn.cancelled() and turn.exception() is None


def time_out(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_exception(TimeoutError())
