"""The claim log: who worked on which job, from when until when."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from penstock.domain.jobs import Claim, ClaimPosition, ImportId, JobId


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
    def forget(self, *, ended: timedelta, most: int) -> int:
        """Delete claims that ended so long ago, the oldest first; return how many."""
        ...
