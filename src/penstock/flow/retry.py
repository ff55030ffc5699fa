"""Give failed jobs another chance: from their cursors, if anybody can work them."""

from collections.abc import Callable, Iterator

from penstock.domain.job import Import, ImportId, JobId, JobStatus
from penstock.errors import Misconfigured
from penstock.ports import Imports, JobFilter, Jobs

AT_ONCE = 1_000


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
        known = self._imports.peek(self._jobs.get(job).import_id)
        if not self._is_declared(known):
            raise Misconfigured(
                f"job {job} belongs to import {known.id}, which was planned under "
                f"another declaration of {known.dataset!r}; start anew with: "
                f"penstock run {known.dataset}"
            )
        return self._jobs.retry(job)

    def failed_of(self, import_id: ImportId) -> Iterator[JobId]:
        """Yield the failed jobs of an import."""
        wanted = JobFilter(status=JobStatus.FAILED, import_id=import_id)
        after: JobId | None = None
        while some := self._jobs.find(wanted, after=after, limit=AT_ONCE):
            for each in some:
                yield each.id
            after = some[-1].id
