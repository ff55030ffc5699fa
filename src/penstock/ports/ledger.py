"""The ledger of imports, jobs and pages: for planners, workers and operators."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeAlias

from penstock.domain.dataset import Dataset
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import (
    Import,
    ImportId,
    ImportStatus,
    Job,
    JobError,
    JobId,
    JobKind,
    JobStatus,
    Lease,
    Mode,
    PageEntry,
    Shards,
    WorkerId,
)
from penstock.domain.pages import Batch, Counts, Proof
from penstock.domain.waiting import WaitingFacts
from penstock.ports.outbox import NewMessage

# dataset -> digest of its declaration: the imports that a worker can work on
Declarations: TypeAlias = Mapping[str, str]


class RepeatResult(NamedTuple):
    """The result of committing a reused page."""

    # the renewed one
    lease: Lease
    counts: Counts
    # set if the page proves the end of the shard
    proof: Proof | None


class Imports(Protocol):
    """The ledger's imports: planning and completion."""

    @abstractmethod
    def begin(
        self,
        dataset: Dataset,
        scope: ImportScope,
        *,
        declaration: str,
        traceparent: str | None = None,
    ) -> tuple[Import, bool]:
        """Store a new import and its plan, or return the unfinished one of that kind.

        The flag says whether it was resumed. `scope.until` defaults to the database's
        own time. Two concurrent planners get the same import. What a scope accepts is
        stored with the import, its files with the plan.
        """
        ...

    @abstractmethod
    def last_reusable(self, dataset: Dataset, mode: Mode) -> Import | None:
        """Return the last done import of this kind, if the stored rows still match it.

        They do if it was fully proven under the same settings, and no row of the
        dataset was changed or removed since.
        """
        ...

    @abstractmethod
    def shard_keys(self, import_id: ImportId) -> Iterator[str]:
        """Yield the keys of the shards that an import was planned with."""
        ...

    @abstractmethod
    def close(
        self, dataset: Dataset, import_id: ImportId, *, failed: str | None
    ) -> Import | None:
        """End a running import without open jobs; None if this call did not end it.

        In one transaction: `done` if every job is done or split and the bad rows are
        within tolerance, else `failed`; and when done, the watermark, the rows missing
        from a full import (unless the drop is too large, or a bad row without a key
        makes it uncertain), and the generation. `failed` gives a reason to fail it and
        to cancel its jobs, in whatever state they are.
        """
        ...

    @abstractmethod
    def cancel(
        self, import_id: ImportId, *, reason: str, only: ImportStatus | None = None
    ) -> Import:
        """End an import and all of its open jobs; a worker's next write is refused.

        A failed import becomes one that nobody retries. With `only`, does nothing if it
        is in another state.
        """
        ...

    @abstractmethod
    def get(self, import_id: ImportId) -> tuple[Import, Shards]:
        """Return an import and the states of its jobs; raise `NotFound`."""
        ...

    @abstractmethod
    def peek(self, import_id: ImportId) -> Import:
        """Return an import without counting its jobs; raise `NotFound`."""
        ...

    @abstractmethod
    def recent(
        self,
        *,
        dataset: str | None = None,
        status: ImportStatus | None = None,
        before: ImportId | None = None,
        limit: int,
    ) -> Sequence[tuple[Import, Shards]]:
        """Return the newest imports first, starting before one."""
        ...

    @abstractmethod
    def newest(self, dataset: str, *, planned: bool = False) -> Import | None:
        """Return the newest import that was not cancelled, its jobs uncounted.

        With `planned`, one that has all of its shards.
        """
        ...


class Ledger(Protocol):
    """The ledger's leases: what a worker may do with a job.

    Every method that takes a lease changes nothing and raises `LeaseLost` unless the
    job is still leased under exactly that fence. Time is the database's.
    """

    @abstractmethod
    def claim(
        self,
        owner: WorkerId,
        *,
        declarations: Declarations,
        region: str | None,
        most: int = 1,
        job: JobId | None = None,
    ) -> Sequence[Lease]:
        """Take the next jobs of one import, each with fence + 1; none if none is due.

        With `job`, take that one alone, if it is due and this worker may have it.

        Due is a pending job whose time has come, or a leased one whose lease has ended
        (a rescue). Higher priority first, then the import that was served longest ago,
        then the oldest job. Only jobs of imports that were planned under one of these
        declarations of their dataset, and of this region or of none; a worker without
        a region takes any. A job whose third lease in a row ends is failed instead.
        """
        ...

    @abstractmethod
    def next_due(
        self, *, declarations: Declarations, region: str | None
    ) -> timedelta | None:
        """Return the time until `claim` has a job; None if there is none at all."""
        ...

    @abstractmethod
    def renew(self, lease: Lease) -> None:
        """Restart the time of the lease without other changes."""
        ...

    @abstractmethod
    def commit_page(
        self, dataset: Dataset, lease: Lease, batch: Batch
    ) -> tuple[Lease, Counts]:
        """Write records, rejections, counters, cursor, change events and the renewed
        lease in one transaction; with a proof, the job is done in the same one.

        The page number must follow the last one, so a page replayed changes nothing.
        Unchanged records are not written. An older version never replaces a newer.
        """  # noqa: D205 (one sentence that needs two lines)
        ...

    @abstractmethod
    def repeat_page(
        self,
        dataset: Dataset,
        lease: Lease,
        fingerprint: bytes,
        *,
        provider_time: datetime | None,
    ) -> RepeatResult | None:
        """Commit a page that was committed under this fingerprint before, without rows.

        None, and nothing is written, if there was none, if any row in its key range
        has changed since, or if the dataset has open rows in quarantine: then the page
        has to be parsed and compared. Raises `LeaseLost`, and writes nothing, if the
        page exists but the fence has moved on.
        """
        ...

    @abstractmethod
    def postpone(
        self, lease: Lease, error: JobError | None, *, delay: timedelta, blame: bool
    ) -> None:
        """Put the job back for `delay`; with `blame` it costs an attempt."""
        ...

    @abstractmethod
    def release(self, lease: Lease, *, messages: Sequence[NewMessage] = ()) -> None:
        """Put the job back at once; costs no attempt.

        The messages are added to the outbox in the same transaction.
        """
        ...

    @abstractmethod
    def fail(self, lease: Lease, error: JobError) -> None:
        """Make the job a dead letter; its cursor is retained."""
        ...

    @abstractmethod
    def note_first_keys(self, lease: Lease, digest: bytes) -> str | None:
        """Store a digest of the first records of a shard.

        Returns another shard of the import with the same digest, if there is one; one
        that was split does not count, since its parts begin as it did. Raises
        `LeaseLost`.
        """
        ...

    @abstractmethod
    def split(self, lease: Lease, children: Sequence[str]) -> None:
        """Replace the job by jobs for smaller shards, in one transaction."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Selects jobs: those of shards, unless another kind or all are selected."""

    status: JobStatus | None = None
    import_id: ImportId | None = None
    dataset: str | None = None
    kind: JobKind | None = JobKind.SHARD


class DueJob(NamedTuple):
    """A job that `Ledger.claim` could take now."""

    id: JobId
    region: str | None
    # of the trace that began its import
    traceparent: str | None = None


class ProblemCounts(NamedTuple):
    """What an operator has to look at in a dataset."""

    dataset: str
    # of imports that were not cancelled
    failed_jobs: int
    bad_rows: int


class Jobs(Protocol):
    """The ledger's jobs, for operators."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the database's time, by which leases expire."""
        ...

    @abstractmethod
    def find(
        self, job_filter: JobFilter, *, after: JobId | None, limit: int
    ) -> Sequence[Job]:
        """Return jobs in the order of their ids, starting after one."""
        ...

    @abstractmethod
    def of_import(self, import_id: ImportId) -> Iterator[Sequence[Job]]:
        """Yield all jobs of an import, in batches, in the order of their ids."""
        ...

    @abstractmethod
    def waiting_facts(self, import_id: ImportId) -> WaitingFacts:
        """Return what the open jobs of an import wait for."""
        ...

    @abstractmethod
    def get(self, job: JobId) -> Job:
        """Return one job; raise `NotFound`."""
        ...

    @abstractmethod
    def retry(self, job: JobId) -> bool:
        """Make a failed job pending again, from its cursor; False if it is not failed.

        A failed import runs again.
        """
        ...

    @abstractmethod
    def retry_failed(
        self, import_id: ImportId, *, after: JobId | None, most: int
    ) -> Sequence[JobId]:
        """Make failed jobs of an import pending again in one call, as `retry` does.

        In the order of their ids, starting after one; none if the import was cancelled
        or is done.
        """
        ...

    @abstractmethod
    def pages(self, jobs: Sequence[JobId]) -> Iterator[tuple[JobId, PageEntry]]:
        """Yield the committed pages of jobs in the order of their ids and numbers."""
        ...

    @abstractmethod
    def outstanding(self, *, declarations: Declarations, region: str | None) -> int:
        """Count the unfinished jobs that a worker could take: pending or leased."""
        ...

    @abstractmethod
    def due(self, *, declarations: Declarations, most: int) -> Sequence[DueJob]:
        """Return the first due jobs of each import, in the order of their claims."""
        ...

    @abstractmethod
    def problems(self) -> Sequence[ProblemCounts]:
        """Count failed jobs and unresolved bad rows; datasets without are absent."""
        ...

    @abstractmethod
    def count_failed(self, import_id: ImportId) -> int:
        """Count the failed jobs of an import."""
        ...

    @abstractmethod
    def sweep(self) -> Sequence[ImportId]:
        """Fail jobs whose third lease in a row has ended; return running imports
        without open jobs, which have to be closed, the oldest first.
        """  # noqa: D205 (one sentence that needs two lines)
        ...

    @abstractmethod
    def lease_owners(self) -> Sequence[WorkerId]:
        """Return the workers that hold leases, of running imports, not yet expired."""
        ...

    @abstractmethod
    def expire_leases(self, owners: Sequence[WorkerId]) -> None:
        """Let all leases of workers that have ended expire now.

        If one of them still runs after all, a renewal restores its lease, or the fence
        refuses its next page.
        """
        ...


class WorkNotifier(Protocol):
    """Notifies when there may be new work, and when an import has ended."""

    @property
    @abstractmethod
    def poll_interval(self) -> timedelta:
        """The interval at which an idle worker polls nevertheless."""
        ...

    @property
    @abstractmethod
    def notification_count(self) -> int:
        """The number of notifications so far; a change means a new one."""
        ...
