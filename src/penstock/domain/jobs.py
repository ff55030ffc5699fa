"""Imports, jobs, leases, fences, and the backoff after an error."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, NewType

from penstock.domain.dataset import DatasetName
from penstock.domain.pages import Counts, Proof, fingerprint

ImportId = NewType("ImportId", int)
JobId = NewType("JobId", int)
Fence = NewType("Fence", int)
WorkerId = NewType("WorkerId", str)

MAX_RESCUES = 3
MAX_STORED_ERRORS = 20


class Mode(StrEnum):
    FULL = "full"
    DELTA = "delta"
    BACKFILL = "backfill"


class ImportStatus(StrEnum):
    PLANNING = "planning"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobKind(StrEnum):
    # imports a shard
    SHARD = "shard"
    # stores the jobs of an import
    PLAN = "plan"


class JobStatus(StrEnum):
    PENDING = "pending"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    SPLIT = "split"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to run one job, until another worker claims it."""

    job: JobId
    fence: Fence
    owner: WorkerId
    import_id: ImportId
    dataset: DatasetName
    mode: Mode
    # rows are marked as seen by this import; the end of the import needs it
    tracked: bool
    shard_key: str
    since: datetime | None
    # as stored; decoded by the import
    cursor: str | None
    page_seq: int
    attempts: int
    rescues: int
    snoozes: int
    # requests sent since the last write to the ledger
    sent: int = 0
    # of the trace that began the import
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """An error of a job; the ledger adds time, owner, fence and cursor."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobErrorEntry:
    """One entry of a job's error history."""

    at: datetime
    owner: str | None
    fence: int
    code: str
    message: str
    cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The ledger row of one shard in one import, or of its plan."""

    id: JobId
    import_id: ImportId
    dataset: DatasetName
    kind: JobKind
    # `plan` for a plan
    shard_key: str
    parent: JobId | None
    status: JobStatus
    run_at: datetime
    fence: Fence
    attempts: int
    rescues: int
    snoozes: int
    page_seq: int
    counts: Counts
    region: str | None
    lease_owner: str | None
    lease_until: datetime | None
    cursor: str | None
    proof: Proof | None
    errors: tuple[JobErrorEntry, ...]
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEntry:
    """One committed page in the ledger, with fingerprints of the cursors around it."""

    page_seq: int
    fence: Fence
    seen: int
    cursor_before: str | None
    cursor_after: str | None


class ClaimOutcome(StrEnum):
    """How a claim of a job ended."""

    DONE = "done"
    # the job is a dead letter
    FAILED = "failed"
    # replaced by jobs for smaller shards
    SPLIT = "split"
    # with its import
    CANCELLED = "cancelled"
    # given back by a worker that stops, or whose slice ended
    RELEASED = "released"
    # given back without blame, for a budget or until something is there
    WAITING = "waiting"
    # given back after an error that counts as an attempt
    ERROR = "error"
    # its lease expired
    LOST = "lost"


class ClaimPosition(NamedTuple):
    """Where a claim is in the order of an import's claims."""

    claimed_at: datetime
    job: JobId
    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The time in which one worker had a job."""

    job: JobId
    fence: Fence
    shard_key: str
    owner: WorkerId
    claimed_at: datetime
    # none of these three: it has not ended
    ended_at: datetime | None
    outcome: ClaimOutcome | None
    # the code of the error with which it ended
    code: str | None

    @property
    def position(self) -> ClaimPosition:
        return ClaimPosition(self.claimed_at, self.job, self.fence)


def cursor_fingerprint(cursor: str | None) -> str | None:
    """Return a short digest of a cursor, by which the order of pages is verified."""
    return None if cursor is None else fingerprint(cursor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One run over a dataset."""

    id: ImportId
    dataset: DatasetName
    mode: Mode
    status: ImportStatus
    # the digest of the declaration that planned it
    declaration: str
    # unchanged rows are marked as seen too, so that its end can find missing ones
    tracked: bool
    since: datetime | None
    until: datetime
    # the provider's clock at the first response
    scan_started_at: datetime | None
    counts: Counts
    # leases that expired and were taken over
    rescues: int
    proven: bool
    note: str | None
    created_at: datetime
    finished_at: datetime | None
    # at its end, rows of files that no longer exist may be marked as deleted
    accepts_lost_files: bool = False
    # more rows may lose to another row of their key than `max_duplicates`
    accepts_duplicates: bool = False
    # retention has removed the log of its pages; its jobs have the totals
    pages_removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """How many jobs of an import are in each state."""

    total: int = 0
    pending: int = 0
    leased: int = 0
    done: int = 0
    failed: int = 0
    split: int = 0
    cancelled: int = 0

    @property
    def open(self) -> int:
        return self.pending + self.leased


def backoff(attempt: int, *, jitter: float) -> timedelta:
    """Return a delay with full jitter under a ceiling that doubles up to 5 minutes."""
    ceiling = min(2.0 ** min(attempt, 16) / 2, 300.0)
    return timedelta(seconds=ceiling * jitter)
