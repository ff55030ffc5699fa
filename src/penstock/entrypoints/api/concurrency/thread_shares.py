"""How lanes share the threads that query the database, so that none blocks another.

Some threads are reserved for each lane. The others are used by any lane, but never so
many that one lane has nearly all of them. Within a lane no dataset gets all threads, so
that a locked table blocks no other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Lane(StrEnum):
    """A class of requests with its own threads and queue."""

    # uses no store: never waits, is never refused
    HEALTH = "health"
    READS = "reads"
    SEARCH = "search"
    WRITES = "writes"
    # streams of whole datasets, batch by batch
    EXPORT = "export"
    # long polls and streams, which need a thread only briefly
    FEEDS = "feeds"


# how long a request may take, the wait for a thread included
DEADLINES: Mapping[Lane, timedelta] = {
    Lane.READS: timedelta(seconds=5),
    Lane.SEARCH: timedelta(seconds=3),
    Lane.WRITES: timedelta(seconds=10),
    Lane.EXPORT: timedelta(seconds=10),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneShare:
    """How many threads one lane may use."""

    reserved: int
    # with those that it borrows
    limit: int


@dataclass(frozen=True, slots=True)
class ThreadShares:
    """The threads of a process, divided among the lanes."""

    threads: int
    shares: Mapping[Lane, LaneShare]

    def admits(self, lane: Lane, busy: Mapping[Lane, int]) -> bool:
        """Return whether a lane may start one more, given the busy threads."""
        share = self.shares[lane]
        if busy[lane] < share.reserved:
            return True
        return busy[lane] < share.limit and self._borrowed(busy) < self._unreserved

    def limit_of(self, lane: Lane) -> int:
        return self.shares[lane].limit

    @property
    def _unreserved(self) -> int:
        return self.threads - sum(share.reserved for share in self.shares.values())

    def _borrowed(self, busy: Mapping[Lane, int]) -> int:
        return sum(
            max(0, busy[lane] - share.reserved) for lane, share in self.shares.items()
        )


def fair_share(slots: int, *, others: int) -> int:
    """Return how many slots one dataset may use: half of what the others leave.

    There is always one for a dataset that has none, until several have taken all.
    """
    return (slots - others + 1) // 2


def divide_threads(threads: int) -> ThreadShares:
    """Reserve a quarter of the threads for reads, an eighth for search and writes.

    Exports have time: they only borrow.
    """
    if threads < len(DEADLINES):
        # too few to reserve any
        share = LaneShare(reserved=0, limit=threads)
        return ThreadShares(threads, dict.fromkeys(DEADLINES, share))
    eighth, half = max(1, threads // 8), max(1, threads // 2)
    shares = {
        Lane.READS: LaneShare(
            reserved=max(1, threads // 4), limit=threads - 2 * eighth
        ),
        Lane.SEARCH: LaneShare(reserved=eighth, limit=half),
        Lane.WRITES: LaneShare(reserved=eighth, limit=half),
        Lane.EXPORT: LaneShare(reserved=0, limit=max(1, threads // 4)),
    }
    return ThreadShares(threads, shares)
