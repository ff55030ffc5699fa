"""The ledger as its planners, workers and operators see it."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeAlias

from penstock.domain.dataset import Dataset
from penstock.domain.job import (
    Fault,
    Import,
    ImportId,
    ImportStatus,
    Job,
    JobId,
    JobStatus,
    Lease,
    Mode,
    PageEntry,
    Shards,
    WorkerId,
)
from penstock.domain.page import (
    Batch,
    Counts,
    Proof,
)
from penstock.domain.waiting import Outlook

# dataset -> digest of its declaration: what a worker knows how to work
Declarations: TypeAlias = Mapping[str, str]


class Repeated(NamedTuple):
    """What committing a known page gives."""

    # the one that goes on
    lease: Lease
    counts: Counts
    # what the page shows of the end
    proof: Proof | None


class Imports(Protocol):
    """The ledger as planners and finishers see it."""

    @abstractmethod
    def begin(
        self,
        dataset: Dataset,
        mode: Mode,
        *,
        declaration: str,
        since: datetime | None,
        until: datetime | None,
        accept_lost_files: bool = False,
    ) -> tuple[Import, bool]:
        """Store a new import, or return the unfinished one of the same kind.

        The flag says whether it was resumed. `until` defaults to the database's own
        time. Two planners at once get the same import. Lost files that are accepted
        once stay so, whoever ends the import.
        """
        ...

    @abstractmethod
    def add_jobs(self, import_id: ImportId, shard_keys: Iterable[str]) -> int:
        """Store the jobs of an import being planned, in order; return how many are new.

        A key that is already stored is left as it is, so an interrupted plan goes on.
        """
        ...

    @abstractmethod
    def start(self, import_id: ImportId) -> None:
        """Open a planned import to workers; nothing happens if it already is."""
        ...

    @abstractmethod
    def still_true(self, dataset: Dataset, mode: Mode) -> Import | None:
        """Return the last done import of this kind, if it still tells what is stored.

        So it does if it was proven without reserve and under the same terms, and no row
        of the dataset has changed or gone since.
        """
        ...

    @abstractmethod
    def shard_keys(self, import_id: ImportId) -> Iterator[str]:
        """Yield the keys of the shards that an import was planned with."""
        ...

    @abstractmethod
    def repeat(self, dataset: Dataset, import_id: ImportId, *, of: ImportId) -> bool:
        """End an import being planned as another one did, all of its rows unchanged.

        False if it has jobs already, or is not being planned any more.
        """
        ...

    @abstractmethod
    def close(
        self, dataset: Dataset, import_id: ImportId, *, failed: str | None
    ) -> Import | None:
        """End a running import none of whose jobs is open; None if we did not end it.

        In one transaction: `done` if every job is done or split and the bad rows are
        within tolerance, else `failed`; and when done, the watermark, the rows missing
        from a full import (unless the drop is too large, or a bad row without a key
        makes it a guess), and the generation. `failed` gives a reason to fail it, and
        to cancel its jobs, whatever they say.
        """
        ...

    @abstractmethod
    def cancel(
        self, import_id: ImportId, *, reason: str, only: ImportStatus | None = None
    ) -> Import:
        """End an import and all of its open jobs; a worker's next write is refused.

        With `only`, nothing happens to one in another state.
        """
        ...

    @abstractmethod
    def get(self, import_id: ImportId) -> tuple[Import, Shards]:
        """Return an import and the states of its jobs; raise `NotFound`."""
        ...

    @abstractmethod
    def peek(self, import_id: ImportId) -> Import:
        """Return an import alone, without counting its jobs; raise `NotFound`."""
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
        """Return the newest imports first, beginning before one."""
        ...

    @abstractmethod
    def newest(self, dataset: str) -> Import | None:
        """Return the newest import that was not cancelled, its jobs uncounted."""
        ...


class Ledger(Protocol):
    """The ledger as a worker sees it.

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
    ) -> Sequence[Lease]:
        """Take the next jobs of one import, each with fence + 1; none if none is due.

        Due is a pending job whose time has come, or a leased one whose lease has ended
        (a rescue). Higher priority first, then the import that was served longest ago,
        then the oldest job. Only jobs of imports that were planned under one of these
        declarations of their dataset, and of this region or of none;
        no region takes any. A job whose third lease in a row ends is failed instead.
        """
        ...

    @abstractmethod
    def next_due(
        self, *, declarations: Declarations, region: str | None
    ) -> timedelta | None:
        """Say how long until the first of the jobs that `claim` looks at is due.

        None if there is none, now or later.
        """
        ...

    @abstractmethod
    def renew(self, lease: Lease) -> None:
        """Begin the lease anew without other change."""
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
        imprint: bytes,
        *,
        provider_time: datetime | None,
    ) -> Repeated | None:
        """Commit a page that was committed under this imprint before, without its rows.

        None, and nothing is written, if there was none, if any row between its keys is
        not stored as it was brought, or if a row of the dataset waits in quarantine:
        then the page has to be read and compared. Raises `LeaseLost`, and writes
        nothing, if the page is known but the fence has moved on.
        """
        ...

    @abstractmethod
    def postpone(
        self, lease: Lease, fault: Fault | None, *, delay: timedelta, blame: bool
    ) -> None:
        """Put the job back until `delay` has passed; with blame it costs an attempt."""
        ...

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """Put the job back at once, without blame."""
        ...

    @abstractmethod
    def fail(self, lease: Lease, fault: Fault) -> None:
        """Move the job to the dead letters, with its cursor kept."""
        ...

    @abstractmethod
    def split(self, lease: Lease, children: Sequence[str]) -> None:
        """Replace the job by jobs for smaller shards, in one transaction."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are meant; an empty filter means all."""

    status: JobStatus | None = None
    import_id: ImportId | None = None
    dataset: str | None = None


class Jobs(Protocol):
    """The ledger as an operator sees it."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the database's time, which judges leases."""
        ...

    @abstractmethod
    def find(
        self, wanted: JobFilter, *, after: JobId | None, limit: int
    ) -> Sequence[Job]:
        """Return jobs in the order of their ids, beginning after one."""
        ...

    @abstractmethod
    def of_import(self, import_id: ImportId) -> Iterator[Sequence[Job]]:
        """Yield all jobs of an import, some at a time, in the order of their ids.

        Each is read once, however many jobs other imports have.
        """
        ...

    @abstractmethod
    def outlook(self, import_id: ImportId) -> Outlook:
        """Return what becomes of the open jobs of an import next."""
        ...

    @abstractmethod
    def get(self, job: JobId) -> Job:
        """Return one job; raise `NotFound`."""
        ...

    @abstractmethod
    def retry(self, job: JobId) -> bool:
        """Make a failed job pending again, from its cursor; False if it is not failed.

        Its import runs again if it had failed.
        """
        ...

    @abstractmethod
    def retry_failed(
        self, import_id: ImportId, *, after: JobId | None, most: int
    ) -> Sequence[JobId]:
        """Make failed jobs of an import pending again at once, as `retry` does.

        In the order of their ids, beginning after one; none if it has ended otherwise.
        """
        ...

    @abstractmethod
    def pages(self, jobs: Sequence[JobId]) -> Iterator[tuple[JobId, PageEntry]]:
        """Yield the committed pages of jobs in the order of their ids and numbers."""
        ...

    @abstractmethod
    def outstanding(self, *, declarations: Declarations, region: str | None) -> int:
        """Count the jobs that a worker would have to wait for: pending or leased."""
        ...

    @abstractmethod
    def sweep(self) -> Sequence[ImportId]:
        """Fail jobs whose third lease in a row has ended; return running imports
        without open jobs, which somebody has to close, the oldest first.
        """  # noqa: D205 (one sentence that needs two lines)
        ...


class Bell(Protocol):
    """Rings when there may be new work, and when an import has ended."""

    @property
    @abstractmethod
    def patience(self) -> timedelta:
        """How long an idle worker may go without asking."""
        ...

    @property
    @abstractmethod
    def rings(self) -> int:
        """How often it has rung; who remembers the number hears the next ring."""
        ...
