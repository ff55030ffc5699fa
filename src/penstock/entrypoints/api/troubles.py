"""What makes answers slower, though not wrong: looked at once a second at most."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.errors import PenstockError
from penstock.ports.serving import Trouble

# seconds for which a look is good, and how many somebody waits for one
EVERY, PATIENCE = 1.0, 0.3


class Troubles:
    def __init__(self, told_by: Mapping[str, Sequence[Trouble]]) -> None:
        self._told_by = told_by
        # one that does not answer must keep nobody else waiting
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trouble")
        self._known: Sequence[str] = ()
        self._looked_at = -1e9
        self._look: asyncio.Task[None] | None = None

    async def names(self) -> Sequence[str]:
        """Name what is degraded, as of a moment ago."""
        if time.monotonic() - self._looked_at >= EVERY and self._is_idle:
            self._look = asyncio.create_task(self._ask())
        if self._look is not None:
            await asyncio.wait({self._look}, timeout=PATIENCE)
        return self._known

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def _is_idle(self) -> bool:
        return self._look is None or self._look.done()

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        self._known = await loop.run_in_executor(self._thread, self._find)
        self._looked_at = time.monotonic()

    def _find(self) -> Sequence[str]:
        return [
            name for name, some in self._told_by.items() if any(map(is_troubled, some))
        ]


def is_troubled(trouble: Trouble) -> bool:
    try:
        return trouble() is not None
    except PenstockError:
        return True
