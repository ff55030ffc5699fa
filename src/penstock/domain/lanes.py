"""Who may use a thread that asks the database: lanes that cannot block each other.

Some threads are kept for each lane. The others are lent to whoever comes first, but
never so many that one lane has nearly all of them. Within a lane one dataset never has
all of it, so that a table that is locked blocks no other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Lane(StrEnum):
    """Requests that wait for each other, and for no others."""

    # touches no store: never waits, is never refused
    HEALTH = "health"
    READS = "reads"
    SEARCH = "search"
    WRITES = "writes"
    # clients that wait for news, and need a thread only for a moment
    FEEDS = "feeds"


# how long an answer may take, the wait for a thread included
DEADLINES: Mapping[Lane, timedelta] = {
    Lane.READS: timedelta(seconds=5),
    Lane.SEARCH: timedelta(seconds=3),
    Lane.WRITES: timedelta(seconds=10),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one lane may have of the threads."""

    # kept for it alone
    own: int
    # with what it borrows
    most: int


@dataclass(frozen=True, slots=True)
class Room:
    """The threads of a process, and what each lane may have of them."""

    threads: int
    shares: Mapping[Lane, Share]

    def admits(self, lane: Lane, busy: Mapping[Lane, int]) -> bool:
        """Say whether one more of a lane may start, where so many are busy."""
        share = self.shares[lane]
        if busy[lane] < share.own:
            return True
        return busy[lane] < share.most and self._lent(busy) < self._to_lend

    def most_of(self, lane: Lane) -> int:
        return self.shares[lane].most

    @property
    def _to_lend(self) -> int:
        return self.threads - sum(share.own for share in self.shares.values())

    def _lent(self, busy: Mapping[Lane, int]) -> int:
        return sum(
            max(0, busy[lane] - share.own) for lane, share in self.shares.items()
        )


def fair_share(places: int, *, others: int) -> int:
    """Return how many places one dataset may have: half of what the others leave.

    There is always one for a dataset that has none, until several have taken all.
    """
    return (places - others + 1) // 2


def room_of(threads: int) -> Room:
    """Divide threads: a quarter is kept for reads, an eighth each for the others."""
    if threads < len(DEADLINES):
        # too few to keep any: whoever comes first
        free = Share(own=0, most=threads)
        return Room(threads, dict.fromkeys(DEADLINES, free))
    eighth, half = max(1, threads // 8), max(1, threads // 2)
    shares = {
        Lane.READS: Share(own=max(1, threads // 4), most=threads - 2 * eighth),
        Lane.SEARCH: Share(own=eighth, most=half),
        Lane.WRITES: Share(own=eighth, most=half),
    }
    return Room(threads, shares)
