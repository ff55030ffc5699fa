"""Single flight: work that several requests need at the same time is done once."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

Outcome = TypeVar("Outcome")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, Outcome]]


@dataclass(slots=True, eq=False)
class Flight(Generic[Outcome]):
    """Work in flight, and how many wait for it."""

    task: asyncio.Task[Outcome]
    version: int
    # whether the last who leaves cancels it
    is_cancellable: bool
    waiting: int = 0

    async def wait(self) -> Outcome:
        """Return the outcome, or raise the error; both are the same for all."""
        self.waiting += 1
        try:
            # unlike `await`, this does not cancel the task with its waiter; nor does
            # `asyncio.shield`, but later Pythons then log any error of the task
            await asyncio.wait({self.task})
            return self.task.result()
        finally:
            self.waiting -= 1
            if self.is_cancellable and not self.waiting:
                self.task.cancel()


@dataclass(slots=True)
class SingleFlight(Generic[Outcome]):
    """Runs work once for all who request it under the same key while it runs.

    Who is cancelled does not cancel it for the others. It runs in the context of the
    first one. Nothing is cached: what is requested after the end runs again.
    """

    cancels_abandoned: bool = False
    _flights: dict[Hashable, Flight[Outcome]] = field(default_factory=dict)

    async def run(self, work: Work[Outcome], *, key: Hashable = None) -> Outcome:
        return await self.start(work, key=key).wait()

    def start(
        self,
        work: Work[Outcome],
        *,
        key: Hashable = None,
        version: int = 0,
        min_version: int = 0,
    ) -> Flight[Outcome]:
        """Start the work, or join it if that in flight has at least `min_version`."""
        existing = self.find(key)
        if existing is not None and existing.version >= min_version:
            return existing
        task = asyncio.ensure_future(work())
        flight = Flight(task, version, self.cancels_abandoned)
        self._flights[key] = flight
        task.add_done_callback(lambda _: self._end(key, flight))
        return flight

    def find(self, key: Hashable = None) -> Flight[Outcome] | None:
        """Return the work in flight, unless it has ended or is being cancelled."""
        flight = self._flights.get(key)
        if flight is None or flight.task.done() or flight.task.cancelling():
            return None
        return flight

    def _end(self, key: Hashable, flight: Flight[Outcome]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.task.cancelled():
            # perhaps nobody waits any more: asyncio would log the error as unretrieved
            flight.task.exception()
