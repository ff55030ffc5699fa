"""Give failed jobs another chance: from their cursors, if anybody can work them."""

from collections.abc import Callable, Iterator, Sequence
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
        retried: list[JobId] = []
        for at, job in enumerate(self._failed_of(import_id)):
            if len(retried) == most:
                return Retried(jobs=retried, has_more=True)
            if at == 0:
                self._hold(job, of=import_id)
            if self._jobs.retry(job):
                retried.append(job)
        return Retried(jobs=retried, has_more=False)

    def _hold(self, job: JobId, *, of: ImportId) -> None:
        known = self._imports.peek(of)
        if not self._is_declared(known):
            raise Misconfigured(
                f"job {job} belongs to import {known.id}, which was planned under "
                f"another declaration of {known.dataset!r}; start anew with: "
                f"penstock run {known.dataset}"
            )

    def _failed_of(self, import_id: ImportId) -> Iterator[JobId]:
        wanted = JobFilter(status=JobStatus.FAILED, import_id=import_id)
        after: JobId | None = None
        while some := self._jobs.find(wanted, after=after, limit=AT_ONCE):
            for each in some:
                yield each.id
            after = some[-1].id
