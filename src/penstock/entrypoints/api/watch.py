"""Know how far each dataset has come.

A look at the database is made once a second. So what others write is known here within
about a second; a look that began more than two seconds ago counts for nothing, and who
asks then waits for another.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import TypeAlias

from penstock.errors import StoreUnavailable
from penstock.ports.serving import Reads, State

# seconds between two looks
EVERY = 1.0
# seconds that a request waits for a look; a database that is away is told soon
LONGEST_LOOK = 1.0
# of a dataset whose tables were made after the last look
UNKNOWN = State(generation=-1, change_seq=-1)


OnNew: TypeAlias = Callable[[str, State], Coroutine[None, None, None]]


class Watch:
    def __init__(self, reads: Reads, executor: Executor, *, on_new: OnNew) -> None:
        self._reads = reads
        self._executor = executor
        # is told of each dataset whose generation has risen
        self._on_new = on_new
        self._told: set[asyncio.Task[None]] = set()
        self._states: dict[str, State] = {}
        self._looked_at = -1e9
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
        """Whether the last look was not long ago."""
        return time.monotonic() - self._looked_at < 2 * EVERY

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
            if self.known(dataset).change_seq < at_least:
                # that look may have begun before the change
                await self.look()
        return self.known(dataset)

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
        while not self._is_closing and (left := deadline - time.monotonic()) > 0:
            state = await self.state(dataset)
            if state.change_seq > seq or self._is_closing:
                return
            await self._wait_for_news(dataset, seconds=left)

    def note(self, dataset: str, state: State) -> None:
        """Take over what a write of this process has brought."""
        if state.generation > self.known(dataset).generation:
            self._states = {**self._states, dataset: state}
            self._wake(dataset)

    async def look(self) -> None:
        """Ask the database; all who want to know wait for one question."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._ask())
        await asyncio.shield(self._look)

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        asked_at = time.monotonic()
        found = await loop.run_in_executor(self._executor, self._reads.states)
        before = self._states
        self._states = {
            name: max(state, before.get(name, UNKNOWN), key=by_generation)
            for name, state in found.items()
        }
        self._looked_at = asked_at
        for name, state in self._states.items():
            if state.change_seq > before.get(name, UNKNOWN).change_seq:
                self._wake(name)
            if state.generation > before.get(name, state).generation:
                self._tell(name, state)

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


@asynccontextmanager
async def soon() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(LONGEST_LOOK):
            yield
    except TimeoutError as error:
        raise StoreUnavailable("the database does not answer") from error


def by_generation(state: State) -> tuple[int, int]:
    return state.generation, state.change_seq
