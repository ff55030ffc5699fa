"""How far the files of an import are read, in bytes."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.domain.job import ImportId, Job, JobId, JobStatus
from penstock.domain.page import Cursor
from penstock.domain.parts import Slice
from penstock.ports import JobFilter, Jobs

AT_ONCE = 1_000
OPEN = (JobStatus.PENDING, JobStatus.LEASED)


class Read(NamedTuple):
    """So many bytes of so many."""

    done: int
    total: int


class Extent:
    """What the jobs of an import have read of its files.

    Jobs are begun in the order of their ids. So a look asks only for those from the
    first open one on, and for no more of them than can be at work.
    """

    def __init__(
        self, jobs: Jobs, import_id: ImportId, *, at_once: int = AT_ONCE
    ) -> None:
        self._jobs = jobs
        self._at_once = at_once
        self._wanted = JobFilter(import_id=import_id)
        self._total: int | None = None
        # up to this one all have ended, and have read so much
        self._ended: JobId | None = None
        self._behind = 0

    def look(self) -> Read:
        if self._total is None:
            self._total = sum(
                size_of(Slice.of_key(job.shard_key)) for job in self._all()
            )
        return Read(self._behind_and_ahead(), self._total)

    def _behind_and_ahead(self) -> int:
        while some := self._after(self._ended):
            for place, job in enumerate(some):
                if job.status in OPEN:
                    return self._behind + sum(map(read_of, some[place:]))
                self._behind += read_of(job)
                self._ended = job.id
        return self._behind

    def _all(self) -> Iterator[Job]:
        after: JobId | None = None
        while some := self._after(after):
            yield from some
            after = some[-1].id

    def _after(self, job: JobId | None) -> list[Job]:
        return [*self._jobs.find(self._wanted, after=job, limit=self._at_once)]


def size_of(part: Slice) -> int:
    return part.size if part.end is None else part.end - part.start


def read_of(job: Job) -> int:
    """Count the bytes that a job has read, of a packed file as it is packed."""
    part = Slice.of_key(job.shard_key)
    if job.status is JobStatus.DONE:
        return size_of(part)
    position = {} if job.cursor is None else Cursor.decode(job.cursor).position
    at = position.get("at") if part.end is not None else position.get("packed")
    if not isinstance(at, int):
        return 0
    return at - part.start if part.end is not None else min(at, part.size)
