"""Know how far each dataset has come, and never by more than a second too late."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import TypeAlias

from penstock.errors import StoreUnavailable
from penstock.ports import Reads
from penstock.ports.serving import State

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
        # nobody is to wait for a change any more
        self.is_closing = False

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._go_on())

    async def stop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    @property
    def is_fresh(self) -> bool:
        """Whether the last look was not long ago."""
        return time.monotonic() - self._looked_at < 2 * EVERY

    async def state(self, dataset: str, *, at_least: int = 0) -> State:
        """Return how far a dataset has come; ask if a client knows of more."""
        known = self._states.get(dataset, UNKNOWN)
        if self.is_fresh and known.generation >= at_least:
            return known
        try:
            async with asyncio.timeout(LONGEST_LOOK):
                await self.look()
                if self._states.get(dataset, UNKNOWN).generation < at_least:
                    # that look may have begun before the client's write
                    await self.look()
        except TimeoutError as error:
            raise StoreUnavailable("the database does not answer") from error
        return self._states.get(dataset, UNKNOWN)

    async def beyond(self, dataset: str, seq: int, *, seconds: float) -> None:
        """Wait until a dataset has changed after an entry, or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.is_closing:
            state = await self.state(dataset)
            if state.change_seq > seq:
                return
            await asyncio.sleep(min(0.25, deadline - time.monotonic()))

    def note(self, dataset: str, state: State) -> None:
        """Take over what a write of this process has brought."""
        known = self._states.get(dataset, UNKNOWN)
        if state.generation > known.generation:
            self._states = {**self._states, dataset: state}

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
            if state.generation > before.get(name, state).generation:
                self._tell(name, state)

    def _tell(self, name: str, state: State) -> None:
        task = asyncio.ensure_future(self._on_new(name, state))
        self._told.add(task)
        task.add_done_callback(self._told.discard)

    async def _go_on(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 (whoever asks next hears of it)
                self._look = None
            await asyncio.sleep(EVERY)


def by_generation(state: State) -> tuple[int, int]:
    return state.generation, state.change_seq
