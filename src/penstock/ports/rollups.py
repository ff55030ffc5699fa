"""What happened per minute: the samples of processes, and their sums."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from penstock.domain.rollups import RollupWindow, Sample, Subject


class Rollups(Protocol):
    """Samples of processes, folded to sums per minute, and later per hour.

    The minute of a sample is that of the database's clock when it is flushed, also if
    what it counts happened earlier. A sample counts from then on: it is read until it
    is folded, and its sum afterwards.
    """

    @abstractmethod
    def flush(self, process: str, number: int, samples: Sequence[Sample]) -> None:
        """Store the samples of a process since its last flush.

        Flushes of a process are numbered. Without effect if that flush is stored, so
        it may be repeated when it is unknown whether it was; but not after its minute
        may have been folded.
        """
        ...

    @abstractmethod
    def fold(self, *, finished: timedelta, most: int) -> int:
        """Add samples of minutes that ended so long ago to the sums; return how many.

        Each is added once, however many processes fold, and wherever they are killed.
        """
        ...

    @abstractmethod
    def merge_hours(self, *, age: timedelta, most: int) -> int:
        """Add sums of minutes that are so old to their hours; return how many."""
        ...

    @abstractmethod
    def read(
        self, subject: Subject, window: RollupWindow
    ) -> Mapping[str, Sequence[int]]:
        """Return each series of a subject with a value for each bucket, 0 for none.

        A minute is in the bucket in which it begins, and so is a merged hour.
        """
        ...

    @abstractmethod
    def count_expired(self, *, age: timedelta) -> int:
        """Return how many sums `forget` deletes in all."""
        ...

    @abstractmethod
    def forget(self, *, age: timedelta, most: int) -> int:
        """Delete sums that are so old, the oldest first; return how many."""
        ...
