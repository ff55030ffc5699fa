"""How many records a dataset has, as well as that is known in a moment."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.domain.dataset import Dataset
from penstock.domain.history import Position
from penstock.domain.queries.query import Query
from penstock.errors import StoreTooSlow
from penstock.ports.serving import (
    Count,
    CountKind,
    Reads,
    State,
    note_observed,
    observing,
)

# so many are counted one by one, which takes the database some milliseconds
MOST_COUNTED = 10_000
# seconds after which an estimate may have become a better one though nothing changed
LONGEST = 60.0


@dataclass(frozen=True, slots=True)
class Counted:
    count: Count
    position: Position
    at: float


class Sizes:
    """Counts a dataset anew only once it has changed; any thread may ask."""

    def __init__(
        self, reads: Reads, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reads = reads
        self._clock = clock
        self._known: dict[str, Counted] = {}

    def of(self, dataset: Dataset, state: State) -> Count | None:
        """Return how many records there are, for who knows how far it has come.

        None where that cannot be said in a moment: somebody may hold the whole table.
        """
        known, now = self._known.get(dataset.name), self._clock()
        if (
            known is None
            or known.position != state.position
            or now - known.at >= LONGEST
        ):
            try:
                with observing() as observed:
                    known = Counted(self._count(dataset), state.position, now)
            except StoreTooSlow:
                return None
            if {each.position for each in observed} <= {state.position}:
                self._known[dataset.name] = known
            for each in observed:
                note_observed(each)
        return known.count

    def _count(self, dataset: Dataset) -> Count:
        every = Query(dataset=dataset, fields=dataset.fields, limit=1)
        count = self._reads.count(every, CountKind.PLANNED)
        if count.kind is CountKind.PLANNED and count.value <= MOST_COUNTED:
            return self._reads.count(every, CountKind.EXACT)
        return count
