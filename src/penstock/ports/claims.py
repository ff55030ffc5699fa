"""The claim log: who worked on which job, from when until when."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from penstock.domain.jobs import (
    Claim,
    ClaimOutcome,
    ClaimPosition,
    ImportId,
    JobId,
    WorkerId,
)


class ClaimWindow(NamedTuple):
    """The time of an import's last claims."""

    began_at: datetime
    # of the last claim that has ended
    ended_at: datetime | None
    # those that have ended, and those that have not
    ended: int
    running: int
    workers: int


class ClaimBundle(NamedTuple):
    """Claims of one worker that began in one bucket of the time and ended alike."""

    owner: WorkerId
    bucket: int
    # None: they have not ended
    outcome: ClaimOutcome | None
    claims: int
    first_claimed_at: datetime
    # of those that have ended
    last_ended_at: datetime | None
    # the sum of their durations, of those that have ended
    busy: timedelta


class ClaimLog(Protocol):
    """The claims of jobs; a claim that ends is added in the same transaction."""

    @abstractmethod
    def find(
        self, import_id: ImportId, *, after: ClaimPosition | None, limit: int
    ) -> Sequence[Claim]:
        """Return claims of an import in the order of their beginnings, after one.

        Also those that have not ended.
        """
        ...

    @abstractmethod
    def of_job(self, job: JobId, *, limit: int) -> Sequence[Claim]:
        """Return the last claims of a job in the order of their beginnings.

        Also one that has not ended.
        """
        ...

    @abstractmethod
    def window(
        self, import_id: ImportId, *, before: datetime | None, most: int
    ) -> ClaimWindow | None:
        """Return the time of the last claims of an import that began before a time.

        It begins with the first of the last `most` that have ended, and counts all that
        have not. None: there are none.
        """
        ...

    @abstractmethod
    def within(
        self, import_id: ImportId, *, began_at: datetime, before: datetime, limit: int
    ) -> Sequence[Claim]:
        """Return claims of a time in the order of their beginnings.

        Also those that began earlier and have not ended.
        """
        ...

    @abstractmethod
    def bundles(
        self, import_id: ImportId, *, began_at: datetime, before: datetime, buckets: int
    ) -> Sequence[ClaimBundle]:
        """Return the same claims by worker, bucket of the time and outcome."""
        ...

    @abstractmethod
    def forget(self, *, ended: timedelta, most: int) -> int:
        """Delete claims that ended so long ago, the oldest first; return how many."""
        ...
