"""The current version of each dataset, polled, and whether its history is the same.

The database is polled once a second, so what other processes write is known here within
about a second. A poll that started more than two seconds ago is stale, and requests
then wait for another.

A database may be restored from a backup, and then assign the same sequence numbers
again. So a poll checks whether the database still has the last changes that were known
here. If not, the dataset has another history from then on, and everything that was read
before is invalid.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Mapping,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.domain.history import HistoryPosition
from penstock.entrypoints.api.concurrency.single_flight import SingleFlight
from penstock.errors import PositionGone, StoreUnavailable
from penstock.ports.record_access import DatasetVersion, RecordReader

# seconds
POLL_INTERVAL = 1.0
# seconds that a request waits for a poll, so that an outage is reported soon
POLL_TIMEOUT = 1.0
POLL_THREADS = 2
NEVER = -1e9
# of a dataset whose tables were created after the last poll
UNKNOWN = DatasetVersion(generation=-1, change_seq=-1)
# changes that are cached as verified, and those of a dataset that one poll verifies
MAX_VERIFIED, MAX_TRACKED = 10_000, 100

OnNew: TypeAlias = Callable[[str, DatasetVersion], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class VersionPoll:
    """The result of a poll."""

    states: Mapping[str, DatasetVersion]
    # as known when the poll started
    before: Mapping[str, DatasetVersion]
    # the changes that were verified, by dataset, and the datasets that lack one of them
    verified: Mapping[str, Collection[HistoryPosition]]
    lost: Collection[str]


class DatasetVersionPoller:
    def __init__(self, reads: RecordReader, *, on_new: OnNew) -> None:
        self._reads = reads
        # polls must not wait for the threads of requests
        self._threads = ThreadPoolExecutor(POLL_THREADS, thread_name_prefix="poll")
        # called for each dataset with newly published data
        self._on_new = on_new
        self._callbacks: set[asyncio.Task[None]] = set()
        self._states: dict[str, DatasetVersion] = {}
        # how often each dataset was found to have another history
        self._histories: dict[str, int] = {}
        # changes that cached responses may include, beyond the known version
        self._tracked: dict[str, set[HistoryPosition]] = {}
        # changes that the database had, and in which history that was
        self._verified: OrderedDict[tuple[str, HistoryPosition], int] = OrderedDict()
        self._polled_at = self._doubted_at = NEVER
        self._polls: SingleFlight[None] = SingleFlight()
        self._loop: asyncio.Task[None] | None = None
        # clients that wait for a change, by dataset
        self._followers: dict[str, set[asyncio.Future[None]]] = {}
        # nobody waits for a change any more
        self._is_closing = False

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._poll_forever())

    async def stop(self) -> None:
        tasks = [*self._callbacks, *([] if self._loop is None else [self._loop])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Wake all who wait for a change, for good; may be called from any thread."""
        self._is_closing = True
        if self._loop is not None and not self._loop.done():
            self._loop.get_loop().call_soon_threadsafe(self._wake_all)

    @property
    def is_fresh(self) -> bool:
        """Whether the last poll is recent, and no write has cast doubt on it since."""
        is_recent = time.monotonic() - self._polled_at < 2 * POLL_INTERVAL
        return is_recent and self._polled_at >= self._doubted_at

    def cached(self, dataset: str) -> DatasetVersion:
        """Return the last version of a dataset that this process knows of."""
        return self._states.get(dataset, UNKNOWN)

    async def state(self, dataset: str, *, at_least: int = -1) -> DatasetVersion:
        """Return the version of a dataset; polls if a client knows a later change."""
        cached = self._states.get(dataset, UNKNOWN)
        if self.is_fresh and cached.change_seq >= at_least:
            return cached
        async with poll_timeout():
            await self.poll()
            if not self.is_fresh or self.cached(dataset).change_seq < at_least:
                # that poll may have started before the change
                await self.poll()
        return self.cached(dataset)

    async def state_after(
        self, dataset: str, position: HistoryPosition
    ) -> DatasetVersion:
        """Return the version of a dataset, which includes a change that a client names.

        Raises `PositionGone` if the database has no such change. Only a poll that
        started after the call decides that: this process may be behind.
        """
        state = await self.state(dataset, at_least=position.seq)
        if position.tag is None or self._has(dataset, position, state):
            return state
        state = await self.latest(dataset)
        if not self._has(dataset, position, state):
            loop = asyncio.get_running_loop()
            async with poll_timeout():
                exists = await loop.run_in_executor(
                    self._threads, self._reads.knows, dataset, [position]
                )
            if not exists:
                raise PositionGone(dataset, str(position))
            if position.seq > state.change_seq:
                # it was committed between both queries
                state = await self.latest(dataset)
        self._remember(dataset, position, state)
        return state

    def _has(
        self, dataset: str, position: HistoryPosition, state: DatasetVersion
    ) -> bool:
        if position == state.position:
            return True
        return self._verified.get((dataset, position)) == state.history

    def _remember(
        self, dataset: str, position: HistoryPosition, state: DatasetVersion
    ) -> None:
        self._verified[dataset, position] = state.history
        self._verified.move_to_end((dataset, position))
        if len(self._verified) > MAX_VERIFIED:
            self._verified.popitem(last=False)

    async def latest(self, dataset: str) -> DatasetVersion:
        """Return the version of a dataset by a poll that starts after the call."""
        async with poll_timeout():
            if (earlier := self._polls.find()) is not None:
                await asyncio.wait({earlier.task})
            await self.poll()
        return self.cached(dataset)

    async def wait_for_change(self, dataset: str, seq: int, *, seconds: float) -> None:
        """Wait until a dataset has changed after an entry, or the time has passed."""
        deadline = time.monotonic() + seconds
        history = self.cached(dataset).history
        while not self._is_closing and (left := deadline - time.monotonic()) > 0:
            state = await self.state(dataset)
            is_new = state.change_seq > seq or state.history != history
            if is_new or self._is_closing:
                return
            await self._wait_for_change(dataset, seconds=left)

    def note(self, dataset: str, state: DatasetVersion) -> None:
        """Record the version that a write of this process has created."""
        cached = self.cached(dataset)
        if state.generation > cached.generation:
            # nothing that was read before a write is valid after it, so there is no
            # need to verify that the history is the same
            self._update(dataset, state, is_same=False)
            self._wake(dataset)
        elif state.published != cached.published:
            # committed before another one that is known, or the database was restored
            self._doubted_at = time.monotonic()

    def track_positions(
        self, dataset: str, positions: Collection[HistoryPosition]
    ) -> None:
        """Let polls verify changes that a cached response includes."""
        tracked = self._tracked.setdefault(dataset, set())
        tracked.update(positions)
        tracked.discard(self.cached(dataset).position)
        if len(tracked) > MAX_TRACKED:
            self._update(dataset, self.cached(dataset), is_same=False)

    async def poll(self) -> None:
        """Poll the database; all callers share one poll in flight."""
        await self._polls.run(self._poll)

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        started_at = time.monotonic()
        before = dict(self._states)
        tracked = {name: set(positions) for name, positions in self._tracked.items()}
        poll = await loop.run_in_executor(self._threads, self._query, before, tracked)
        for name in before.keys() - poll.states.keys():
            if before[name].published == UNKNOWN.published:
                # an earlier poll has found that it was dropped
                continue
            # dropped: a new dataset of that name has another history
            self._update(name, UNKNOWN, is_same=False)
            self._wake(name)
        for name, state in poll.states.items():
            self._apply(name, state, poll)
        self._polled_at = started_at

    def _query(
        self,
        before: Mapping[str, DatasetVersion],
        tracked: Mapping[str, Collection[HistoryPosition]],
    ) -> VersionPoll:
        """Read all versions, and verify changes that these do not prove."""
        states = self._reads.dataset_versions()
        to_verify = {
            name: {before[name].position, *tracked.get(name, ())} - {state.position}
            for name, state in states.items()
            if name in before
        }
        lost = {
            name
            for name, positions in to_verify.items()
            if (positions and not self._reads.knows(name, positions))
            or was_restored(before[name], states[name])
        }
        return VersionPoll(states, before, to_verify, lost)

    def _apply(self, name: str, state: DatasetVersion, poll: VersionPoll) -> None:
        """Record the version of a dataset that a poll has found."""
        cached, is_same = self.cached(name), name not in poll.lost
        if cached is not poll.before.get(name, UNKNOWN):
            # this process has written during the poll, and its version may be newer
            if is_same and state.generation <= cached.generation:
                return
            if state.generation <= cached.generation:
                state = cached
            is_same = False
        self._tracked.get(name, set()).difference_update(poll.verified.get(name, ()))
        self._update(name, state, is_same=is_same)
        if state.change_seq > cached.change_seq or not is_same:
            self._wake(name)
        if cached is not UNKNOWN and state.published != cached.published:
            self._notify(name, self.cached(name))

    def _update(self, name: str, state: DatasetVersion, *, is_same: bool) -> None:
        if not is_same:
            self._histories[name] = self._histories.get(name, 0) + 1
            self._tracked.pop(name, None)
        history = self._histories.get(name, 0)
        self._states = {**self._states, name: replace(state, history=history)}

    def _notify(self, name: str, state: DatasetVersion) -> None:
        task = asyncio.ensure_future(self._on_new(name, state))
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)

    async def _wait_for_change(self, dataset: str, *, seconds: float) -> None:
        changed = asyncio.get_running_loop().create_future()
        followers = self._followers.setdefault(dataset, set())
        followers.add(changed)
        try:
            await asyncio.wait({changed}, timeout=seconds)
        finally:
            followers.discard(changed)

    def _wake(self, *datasets: str) -> None:
        for dataset in datasets:
            for changed in self._followers.pop(dataset, ()):
                changed.set_result(None)

    def _wake_all(self) -> None:
        self._wake(*self._followers)

    async def _poll_forever(self) -> None:
        while True:
            try:
                await self.poll()
            except Exception:  # noqa: BLE001 (the next request gets the error)
                # nobody should wait for changes of an unreachable database
                self._wake_all()
            await asyncio.sleep(POLL_INTERVAL)


def was_restored(before: DatasetVersion, after: DatasetVersion) -> bool:
    """Return whether numbers have decreased, or are equal with other tags.

    Within one history they only increase, as `after` was read later.
    """
    if after.generation == before.generation:
        is_other = after.generation_tag != before.generation_tag
    else:
        is_other = after.generation < before.generation
    if after.change_seq == before.change_seq:
        return is_other or after.change_tag != before.change_tag
    return is_other or after.change_seq < before.change_seq


@asynccontextmanager
async def poll_timeout() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(POLL_TIMEOUT):
            yield
    except TimeoutError as error:
        raise StoreUnavailable("the database does not answer") from error
