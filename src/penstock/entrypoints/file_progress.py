"""How many bytes of the files of an import have been read."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.domain.jobs import ImportId, Job, JobId, JobStatus
from penstock.domain.pages import Cursor
from penstock.domain.sharding.parts import Slice
from penstock.ports import JobFilter, Jobs

BATCH_SIZE = 1_000
OPEN = (JobStatus.PENDING, JobStatus.LEASED)


class BytesRead(NamedTuple):
    """Bytes read so far, and bytes in all."""

    done: int
    total: int


class FileProgress:
    """Counts the bytes that the jobs of an import have read of its files.

    Jobs start in the order of their ids, so each call reads only the jobs from the
    first open one on.
    """

    def __init__(
        self, jobs: Jobs, import_id: ImportId, *, at_once: int = BATCH_SIZE
    ) -> None:
        self._jobs = jobs
        self._batch_size = at_once
        self._filter = JobFilter(import_id=import_id)
        self._total: int | None = None
        # all jobs up to this one have ended, and have read this many bytes
        self._last_ended: JobId | None = None
        self._ended_bytes = 0

    def read(self) -> BytesRead:
        if self._total is None:
            self._total = sum(
                slice_size(Slice.of_key(job.shard_key)) for job in self._all()
            )
        return BytesRead(self._count_read(), self._total)

    def _count_read(self) -> int:
        while jobs := self._after(self._last_ended):
            for position, job in enumerate(jobs):
                if job.status in OPEN:
                    return self._ended_bytes + sum(map(bytes_read, jobs[position:]))
                self._ended_bytes += bytes_read(job)
                self._last_ended = job.id
        return self._ended_bytes

    def _all(self) -> Iterator[Job]:
        after: JobId | None = None
        while jobs := self._after(after):
            yield from jobs
            after = jobs[-1].id

    def _after(self, job: JobId | None) -> list[Job]:
        return [*self._jobs.find(self._filter, after=job, limit=self._batch_size)]


def slice_size(part: Slice) -> int:
    return part.size if part.end is None else part.end - part.start


def bytes_read(job: Job) -> int:
    """Count the bytes that a job has read; of a compressed file, compressed bytes."""
    part = Slice.of_key(job.shard_key)
    if job.status is JobStatus.DONE:
        return slice_size(part)
    position = {} if job.cursor is None else Cursor.decode(job.cursor).position
    at = position.get("at") if part.end is not None else position.get("packed")
    if not isinstance(at, int):
        return 0
    return at - part.start if part.end is not None else min(at, part.size)
