"""One look at an import for all who follow it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from penstock.domain.job import ImportId, ImportStatus

# looks at an import, and returns it as it is told
Look: TypeAlias = Callable[[ImportId], Awaitable[Mapping[str, Any]]]

encode = msgspec.json.Encoder().encode

# seconds between two looks, however many follow
EVERY = 1.0
# how many times as long as a look took until the next
LOOK_SHARE = 20
# imports whose last look is remembered
MOST_LOOKS = 500
OPEN = frozenset({ImportStatus.PLANNING.value, ImportStatus.RUNNING.value})


@dataclass(frozen=True, slots=True)
class Seen:
    """An import at one moment, and a name for all that is news of it."""

    document: Mapping[str, Any]
    mark: str

    @property
    def is_open(self) -> bool:
        return self.document["status"] in OPEN

    def event(self) -> bytes:
        """Write it as one of the events of a stream."""
        kind = "progress" if self.is_open else "end"
        data = encode(self.document).decode()
        return f"id: {self.mark}\nevent: {kind}\ndata: {data}\n\n".encode()


@dataclass(slots=True)
class Looks:
    every: float = EVERY
    _tasks: dict[ImportId, asyncio.Task[Seen]] = field(default_factory=dict)
    # when each may be looked at again
    _due: dict[ImportId, float] = field(default_factory=dict)

    async def at(self, import_id: ImportId, look: Look) -> Seen:
        """Return what was seen a moment ago, or look again."""
        task = self._tasks.get(import_id)
        is_due = task is not None and task.done() and self._is_due(import_id)
        if task is None or is_due:
            task = asyncio.ensure_future(self._look(import_id, look))
            self._remember(import_id, task)
        return await asyncio.shield(task)

    def _is_due(self, import_id: ImportId) -> bool:
        return time.monotonic() >= self._due.get(import_id, 0.0)

    async def _look(self, import_id: ImportId, look: Look) -> Seen:
        began = time.monotonic()
        document = await look(import_id)
        # counting many jobs takes the database a while: it has better to do
        took = time.monotonic() - began
        self._due[import_id] = began + max(self.every, LOOK_SHARE * took)
        return Seen(document, mark_of(document))

    def _remember(self, import_id: ImportId, task: asyncio.Task[Seen]) -> None:
        task.add_done_callback(heard)
        self._tasks.pop(import_id, None)
        self._due.pop(import_id, None)
        self._tasks[import_id] = task
        while len(self._tasks) > MOST_LOOKS:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            self._due.pop(oldest, None)


def heard(task: asyncio.Task[Any]) -> None:
    """Take note of an error, which perhaps nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def mark_of(document: Mapping[str, Any]) -> str:
    """Name what of an import is news: not how fast it goes."""
    progress, waiting = document["progress"], document["waiting"]
    news = {
        **document,
        "progress": [progress["done"], progress["total"]],
        # nor when it will go on, which each look tells a little differently
        "waiting": waiting and [waiting["reason"], waiting["detail"]],
    }
    return blake2b(encode(news), digest_size=8).hexdigest()
