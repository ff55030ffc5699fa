"""Retry failed jobs from their cursors, if a worker would take them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.domain.jobs import Import, ImportId, JobId, JobStatus
from penstock.errors import Misconfigured
from penstock.ports import Imports, JobFilter, Jobs

BATCH_SIZE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryResult:
    """Jobs that are pending again, and whether the import has more failed jobs."""

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
        self._require_declared(job, of=self._jobs.get(job).import_id)
        return self._jobs.retry(job)

    def all_of(self, import_id: ImportId, *, most: int | None = None) -> RetryResult:
        """Make the failed jobs of an import pending again, at most `most` of them.

        Raises `Misconfigured` if it has failed jobs that no worker would take.
        """
        first = self._first_failed(import_id)
        if first is None:
            return RetryResult(jobs=[], has_more=False)
        self._require_declared(first, of=import_id)
        retried: list[JobId] = []
        after: JobId | None = None
        while most is None or len(retried) < most:
            limit = BATCH_SIZE if most is None else min(most - len(retried), BATCH_SIZE)
            # each job once: a fast worker may have failed the first ones again
            batch = self._jobs.retry_failed(import_id, after=after, most=limit)
            retried += batch
            if len(batch) < limit:
                return RetryResult(jobs=retried, has_more=False)
            after = batch[-1]
        has_more = self._first_failed(import_id, after=after) is not None
        return RetryResult(jobs=retried, has_more=has_more)

    def _require_declared(self, job: JobId, *, of: ImportId) -> None:
        import_ = self._imports.peek(of)
        if not self._is_declared(import_):
            raise Misconfigured(
                f"job {job} belongs to import {import_.id}, which was planned under "
                f"another declaration of {import_.dataset!r}; start a new one: "
                f"penstock run {import_.dataset}"
            )

    def _first_failed(
        self, import_id: ImportId, *, after: JobId | None = None
    ) -> JobId | None:
        failed = JobFilter(status=JobStatus.FAILED, import_id=import_id)
        jobs = self._jobs.find(failed, after=after, limit=1)
        return jobs[0].id if jobs else None
