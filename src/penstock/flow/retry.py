"""Give failed jobs another chance: from their cursors, if anybody can work them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.domain.job import Import, ImportId, JobId, JobStatus
from penstock.errors import Misconfigured
from penstock.ports import Imports, JobFilter, Jobs

AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """Jobs that are pending again, and whether others of their import are not yet."""

    jobs: Sequence[JobId]
    has_more: bool


class RetryJobs:
    """Retries jobs; `is_declared` says whether a worker would take an import's."""

    def __init__(
        self, *, imports: Imports, jobs: Jobs, is_declared: Callable[[Import], bool]
    ) -> None:
        self._imports = imports
        self._jobs = jobs
        self._is_declared = is_declared

    def __call__(self, job: JobId) -> bool:
        """Make a failed job pending again; False if it is not failed.

        Raises `Misconfigured` for one that no worker with these settings would take.
        """
        self._hold(job, of=self._jobs.get(job).import_id)
        return self._jobs.retry(job)

    def all_of(self, import_id: ImportId, *, most: int | None = None) -> Retried:
        """Make the failed jobs of an import pending again, and so many at most.

        Raises `Misconfigured` if it has some, and no worker would take them.
        """
        first = self._first_failed(import_id)
        if first is None:
            return Retried(jobs=[], has_more=False)
        self._hold(first, of=import_id)
        retried: list[JobId] = []
        after: JobId | None = None
        while most is None or len(retried) < most:
            left = AT_ONCE if most is None else min(most - len(retried), AT_ONCE)
            # each once: a fast worker may have failed the first ones again by now
            some = self._jobs.retry_failed(import_id, after=after, most=left)
            retried += some
            if len(some) < left:
                return Retried(jobs=retried, has_more=False)
            after = some[-1]
        has_more = self._first_failed(import_id, after=after) is not None
        return Retried(jobs=retried, has_more=has_more)

    def _hold(self, job: JobId, *, of: ImportId) -> None:
        known = self._imports.peek(of)
        if not self._is_declared(known):
            raise Misconfigured(
                f"job {job} belongs to import {known.id}, which was planned under "
                f"another declaration of {known.dataset!r}; start anew with: "
                f"penstock run {known.dataset}"
            )

    def _first_failed(
        self, import_id: ImportId, *, after: JobId | None = None
    ) -> JobId | None:
        wanted = JobFilter(status=JobStatus.FAILED, import_id=import_id)
        found = self._jobs.find(wanted, after=after, limit=1)
        return found[0].id if found else None
