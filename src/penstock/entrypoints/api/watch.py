"""Know how far each dataset has come, and whether its history is still the same.

A look at the database is made once a second. So what others write is known here within
about a second; a look that began more than two seconds ago counts for nothing, and who
asks then waits for another.

A database may be put back to an older state, and go on from there with the same
numbers. So a look asks whether the database still has the last changes that were known
here. If not, the dataset has another history from then on, and whatever was read before
counts for nothing.
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
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.domain.history import Position
from penstock.errors import PositionGone, StoreUnavailable
from penstock.ports.serving import Reads, State

# seconds between two looks
EVERY = 1.0
# seconds that a request waits for a look; a database that is away is told soon
LONGEST_LOOK = 1.0
NEVER = -1e9
# of a dataset whose tables were made after the last look
UNKNOWN = State(generation=-1, change_seq=-1)
# changes that are remembered as known, and those of a dataset that one look asks for
MAX_KNOWN, MAX_TRACKED = 10_000, 100


OnNew: TypeAlias = Callable[[str, State], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Look:
    """What a look has found."""

    states: Mapping[str, State]
    # before it began
    before: Mapping[str, State]
    # the changes it has asked for, by dataset, and the datasets that lack one of them
    asked: Mapping[str, Collection[Position]]
    lost: Collection[str]


class Watch:
    def __init__(self, reads: Reads, executor: Executor, *, on_new: OnNew) -> None:
        self._reads = reads
        self._executor = executor
        # is told of each dataset whose generation has risen
        self._on_new = on_new
        self._told: set[asyncio.Task[None]] = set()
        self._states: dict[str, State] = {}
        # how often each dataset was seen to have another history
        self._histories: dict[str, int] = {}
        # changes that answers may hold which were read here, beyond the known state
        self._tracked: dict[str, set[Position]] = {}
        # changes that the database had, and in which history that was
        self._known_changes: OrderedDict[tuple[str, Position], int] = OrderedDict()
        self._looked_at = self._doubted_at = NEVER
        self._look: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        # those who wait for a change, by the name of the dataset
        self._followers: dict[str, set[asyncio.Future[None]]] = {}
        # nobody is to wait for a change any more
        self._is_closing = False

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._go_on())

    async def stop(self) -> None:
        ended = [*self._told, *([] if self._loop is None else [self._loop])]
        for each in ended:
            each.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    def close(self) -> None:
        """Let nobody wait for a change any more; any thread may say so."""
        self._is_closing = True
        if self._loop is not None and not self._loop.done():
            self._loop.get_loop().call_soon_threadsafe(self._wake_all)

    @property
    def is_fresh(self) -> bool:
        """Whether the last look was not long ago, and nothing is in doubt since."""
        is_recent = time.monotonic() - self._looked_at < 2 * EVERY
        return is_recent and self._looked_at >= self._doubted_at

    def known(self, dataset: str) -> State:
        """Return how far a dataset had come when somebody here last heard of it."""
        return self._states.get(dataset, UNKNOWN)

    async def state(self, dataset: str, *, at_least: int = -1) -> State:
        """Return how far a dataset has come; look if a client knows of more changes."""
        known = self._states.get(dataset, UNKNOWN)
        if self.is_fresh and known.change_seq >= at_least:
            return known
        async with soon():
            await self.look()
            if not self.is_fresh or self.known(dataset).change_seq < at_least:
                # that look may have begun before the change
                await self.look()
        return self.known(dataset)

    async def state_after(self, dataset: str, position: Position) -> State:
        """Return how far a dataset has come that has a change, as a client knows it.

        Raises `PositionGone` if the database has no such change. That is said only by a
        look that began after the call: this process may be behind.
        """
        state = await self.state(dataset, at_least=position.seq)
        if position.tag is None or self._has(dataset, position, state):
            return state
        state = await self.now(dataset)
        if not self._has(dataset, position, state):
            loop = asyncio.get_running_loop()
            async with soon():
                is_known = await loop.run_in_executor(
                    self._executor, self._reads.knows, dataset, [position]
                )
            if not is_known:
                raise PositionGone(dataset, str(position))
            if position.seq > state.change_seq:
                # it came between both questions
                state = await self.now(dataset)
        self._remember(dataset, position, state)
        return state

    def _has(self, dataset: str, position: Position, state: State) -> bool:
        if position == state.position:
            return True
        return self._known_changes.get((dataset, position)) == state.history

    def _remember(self, dataset: str, position: Position, state: State) -> None:
        self._known_changes[dataset, position] = state.history
        self._known_changes.move_to_end((dataset, position))
        if len(self._known_changes) > MAX_KNOWN:
            self._known_changes.popitem(last=False)

    async def now(self, dataset: str) -> State:
        """Return how far a dataset has come, by a look that begins after the call."""
        async with soon():
            if self._look is not None and not self._look.done():
                await asyncio.wait({self._look})
            await self.look()
        return self.known(dataset)

    async def beyond(self, dataset: str, seq: int, *, seconds: float) -> None:
        """Wait until a dataset has changed after an entry, or the time is over."""
        deadline = time.monotonic() + seconds
        history = self.known(dataset).history
        while not self._is_closing and (left := deadline - time.monotonic()) > 0:
            state = await self.state(dataset)
            is_new = state.change_seq > seq or state.history != history
            if is_new or self._is_closing:
                return
            await self._wait_for_news(dataset, seconds=left)

    def note(self, dataset: str, state: State) -> None:
        """Take over what a write of this process has brought."""
        known = self.known(dataset)
        if state.generation > known.generation:
            # nothing that was read before a write is good after it, so nothing is
            # lost by not asking whether the history is the same
            self._take(dataset, state, is_same=False)
            self._wake(dataset)
        elif state.published != known.published:
            # written before another one that is known, or the database went back
            self._doubted_at = time.monotonic()

    def track_positions(self, dataset: str, positions: Collection[Position]) -> None:
        """Have looks ask for changes that an answer holds which was read here."""
        tracked = self._tracked.setdefault(dataset, set())
        tracked.update(positions)
        tracked.discard(self.known(dataset).position)
        if len(tracked) > MAX_TRACKED:
            self._take(dataset, self.known(dataset), is_same=False)

    async def look(self) -> None:
        """Ask the database; all who want to know wait for one question."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._ask())
        await asyncio.shield(self._look)

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        asked_at = time.monotonic()
        before = dict(self._states)
        tracked = {name: set(each) for name, each in self._tracked.items()}
        found = await loop.run_in_executor(self._executor, self._find, before, tracked)
        for name in before.keys() - found.states.keys():
            if before[name].published == UNKNOWN.published:
                # an earlier look has found that it was dropped
                continue
            # dropped: what comes under its name has another history
            self._take(name, UNKNOWN, is_same=False)
            self._wake(name)
        for name, state in found.states.items():
            self._compare(name, state, found)
        self._looked_at = asked_at

    def _find(
        self, before: Mapping[str, State], tracked: Mapping[str, Collection[Position]]
    ) -> Look:
        """Ask how far the datasets are, and for changes of which that says nothing."""
        states = self._reads.states()
        asked = {
            name: {before[name].position, *tracked.get(name, ())} - {state.position}
            for name, state in states.items()
            if name in before
        }
        lost = {
            name
            for name, positions in asked.items()
            if (positions and not self._reads.knows(name, positions))
            or has_gone_back(before[name], states[name])
        }
        return Look(states, before, asked, lost)

    def _compare(self, name: str, state: State, found: Look) -> None:
        """Take over what a look has found of a dataset."""
        known, is_same = self.known(name), name not in found.lost
        if known is not found.before.get(name, UNKNOWN):
            # a write of this process came meanwhile, and may be newer
            if is_same and state.generation <= known.generation:
                return
            if state.generation <= known.generation:
                state = known
            is_same = False
        self._tracked.get(name, set()).difference_update(found.asked.get(name, ()))
        self._take(name, state, is_same=is_same)
        if state.change_seq > known.change_seq or not is_same:
            self._wake(name)
        if known is not UNKNOWN and state.published != known.published:
            self._tell(name, self.known(name))

    def _take(self, name: str, state: State, *, is_same: bool) -> None:
        if not is_same:
            self._histories[name] = self._histories.get(name, 0) + 1
            self._tracked.pop(name, None)
        history = self._histories.get(name, 0)
        self._states = {**self._states, name: replace(state, history=history)}

    def _tell(self, name: str, state: State) -> None:
        task = asyncio.ensure_future(self._on_new(name, state))
        self._told.add(task)
        task.add_done_callback(self._told.discard)

    async def _wait_for_news(self, dataset: str, *, seconds: float) -> None:
        news = asyncio.get_running_loop().create_future()
        followers = self._followers.setdefault(dataset, set())
        followers.add(news)
        try:
            await asyncio.wait({news}, timeout=seconds)
        finally:
            followers.discard(news)

    def _wake(self, *datasets: str) -> None:
        for each in datasets:
            for news in self._followers.pop(each, ()):
                news.set_result(None)

    def _wake_all(self) -> None:
        self._wake(*self._followers)

    async def _go_on(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 (whoever asks next hears of it)
                self._look = None
                # nobody should wait for news of a database that is away
                self._wake_all()
            await asyncio.sleep(EVERY)


def has_gone_back(before: State, after: State) -> bool:
    """Say whether numbers have fallen, or are the same of something else.

    Both were asked for one after the other, so they can only rise.
    """
    if after.generation == before.generation:
        is_other = after.generation_tag != before.generation_tag
    else:
        is_other = after.generation < before.generation
    if after.change_seq == before.change_seq:
        return is_other or after.change_tag != before.change_tag
    return is_other or after.change_seq < before.change_seq


@asynccontextmanager
async def soon() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(LONGEST_LOOK):
            yield
    except TimeoutError as error:
        raise StoreUnavailable("the database does not answer") from error
