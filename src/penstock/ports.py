"""Everything the inside needs from the outside, in the order it is used."""

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from penstock.domain.axes import FileAxis
from penstock.domain.budget import Budget, BudgetState, Grant, Usage
from penstock.domain.dataset import Dataset, Reference
from penstock.domain.events import Event
from penstock.domain.job import (
    Fault,
    Import,
    ImportId,
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
    Memo,
    Moved,
    Page,
    Position,
    Reason,
    Record,
    Rejection,
    Row,
)
from penstock.domain.shard import Shard

Emit: TypeAlias = Callable[[Event], None]
# dataset -> digest of its declaration: what a worker knows how to work
Declarations: TypeAlias = Mapping[str, str]
# removes what must not be shown from a text
Redact: TypeAlias = Callable[[str], str]
# looks at the files of a dataset, and says where they can be cut
Survey: TypeAlias = Callable[[Dataset], FileAxis]
# a digest of an answer -> what is known of it
Recall: TypeAlias = Callable[[bytes], Memo | None]


class Schema(Protocol):
    """The tables of the ledger and of every dataset."""

    @property
    @abstractmethod
    def is_shared(self) -> bool:
        """Whether others depend on them, so that an operator says when they change."""
        ...

    @abstractmethod
    def is_there(self) -> bool:
        """Say whether the ledger has any tables yet."""
        ...

    @abstractmethod
    def migrate(self) -> Sequence[str]:
        """Create or update the ledger's tables; return what was applied."""
        ...

    @abstractmethod
    def pending(self) -> Sequence[str]:
        """Return what `migrate` would apply; raise `Misconfigured` if the tables are
        those of a newer version.
        """  # noqa: D205 (one sentence that needs two lines)
        ...

    @abstractmethod
    def prepare(self, dataset: Dataset) -> Sequence[str]:
        """Create a dataset's table, or add what its declaration gained; return what
        was done.

        Raises `Misconfigured`, and changes nothing, if a declared type or key differs
        from the stored one.
        """  # noqa: D205 (one sentence that needs two lines)
        ...

    @abstractmethod
    def unprepared(self, dataset: Dataset) -> Sequence[str]:
        """Return what `prepare` would do; raises as it does."""
        ...

    @abstractmethod
    def tend(self, dataset: Dataset) -> Sequence[str]:
        """Do what keeps a dataset's table fast, if it is due: asked often, by all.

        Returns what was done.
        """
        ...

    @abstractmethod
    def untended(self, dataset: Dataset) -> Sequence[str]:
        """Return what `tend` would do now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that an operator should know of a server, and whether it is well."""

    what: str
    is_well: bool
    # a sentence; where it is not well, with the place and the remedy
    told: str


class Facts(Protocol):
    """What an operator should know of a server before workers rely on it.

    Nothing is changed by asking. A server that cannot be asked raises
    `StoreUnavailable`, or `Misconfigured` if an operator has to act.
    """

    @property
    @abstractmethod
    def server(self) -> str:
        """What it is to the settings: `database`, `redis`."""
        ...

    @abstractmethod
    def about(self, datasets: Iterable[Dataset], *, threads: int) -> Iterator[Fact]:
        """Yield what matters to a worker of these datasets with so many threads."""
        ...

    @abstractmethod
    def now(self) -> datetime:
        """Return the server's own time."""
        ...


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
    ) -> tuple[Import, bool]:
        """Store a new import, or return the unfinished one of the same kind.

        The flag says whether it was resumed. `until` defaults to the database's own
        time. Two planners at once get the same import.
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
    def cancel(self, import_id: ImportId, *, reason: str) -> Import:
        """End an import and all of its open jobs; a worker's next write is refused."""
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
        self, *, dataset: str | None, limit: int
    ) -> Sequence[tuple[Import, Shards]]:
        """Return the newest imports first."""
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
    def recall(self, dataset: Dataset, imprint: bytes) -> Memo | None:
        """Return what a page brought that was committed under this imprint.

        None if there was none, if any row between its keys is not stored as it was
        brought, or if a row of the dataset waits in quarantine: then the page has to be
        read and compared.
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
        without open jobs, which somebody has to close.
        """  # noqa: D205 (one sentence that needs two lines)
        ...


class Budgets(Protocol):
    """One request allowance for all processes, by the store's own clock.

    If the store is down, every method raises `StoreUnavailable`: nobody sends.
    """

    @abstractmethod
    def take(self, budget: Budget, *, longest: timedelta) -> Grant:
        """Reserve one token; send only after `grant.wait`.

        Raises `BudgetClosed`, with nothing reserved, if the wait would be longer than
        `longest`, and `BudgetStopped` if an operator has to open it.
        """
        ...

    @abstractmethod
    def confirm(self, grant: Grant) -> bool:
        """Say whether the token's time is now, by the store's clock.

        False if it passed too long ago: sent now, the request would bunch with those
        behind it. Raises as `take` does if the budget was closed or stopped since.
        """
        ...

    @abstractmethod
    def give_back(self, budget: Budget, grant: Grant) -> None:
        """Return a token that was not used."""
        ...

    @abstractmethod
    def close(self, budget: str, *, wait: timedelta, reason: str) -> None:
        """Close a budget for everyone; a longer closure is not made shorter."""
        ...

    @abstractmethod
    def stop(self, budget: str, *, reason: str) -> None:
        """Close a budget until it is opened."""
        ...

    @abstractmethod
    def open(self, budget: str) -> None:
        """Open a closed or stopped budget."""
        ...

    @abstractmethod
    def state(self, budget: Budget) -> BudgetState: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is known of a budget whose fast store has lost its memory."""

    usage: Usage
    # the clock by which the usage was counted
    now: int
    closed_for: timedelta | None = None
    closed_reason: str | None = None
    stopped: str | None = None


class LastingBudgets(Budgets, Protocol):
    """Budgets in a store that forgets nothing, and can keep notes for one that may."""

    @abstractmethod
    def recall(self, budget: Budget) -> Remembered | None:
        """Return what is known of a budget, or None if nothing is."""
        ...

    @abstractmethod
    def remember(self, budget: Budget, usage: Usage, *, ahead: int) -> None:
        """Note what another store has counted, by a clock so many microseconds ahead.

        A count never falls by it: of two notes the higher one holds, bucket by bucket.
        """
        ...


class Source(Protocol):
    """Where the pages of one dataset come from."""

    @abstractmethod
    def get_ready(self) -> None:
        """Do what a request needs that takes time, before a token is taken for it.

        Raises as `fetch` does.
        """
        ...

    @abstractmethod
    def fetch(
        self,
        shard: Shard,
        position: Position | None,
        *,
        since: datetime | None,
        moved: Moved | None = None,
        recall: Recall | None = None,
    ) -> Page | Moved:
        """Send exactly one request, for the page after `position`.

        `recall` is asked whether the answer is known, by a digest of it; if it is, the
        page has its memo instead of rows.

        Raises `Throttled`, `AccessStopped`, `SourceUnavailable` (the same request may
        succeed later) or `Rejected` (it never will). What is not complete, well-formed
        data is never a page.
        """
        ...

    @abstractmethod
    def preview(self, shard: Shard, *, since: datetime | None) -> str:
        """Return the first request of a shard as an operator may see it."""
        ...

    @abstractmethod
    def read(self, raw: bytes) -> Row:
        """Read one raw record again, as `fetch` does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """One stored bad row."""

    id: int
    import_id: ImportId
    job: JobId
    shard_key: str
    page_seq: int
    rejection: Rejection
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What became of quarantined rows that were tried again."""

    accepted: int = 0
    superseded: int = 0
    still_bad: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """How many rows of an import were bad in the same way."""

    reason: Reason
    field: str | None
    rows: int


class Records(Protocol):
    """The stored records of the datasets."""

    @abstractmethod
    def rows(self, dataset: Dataset) -> Iterator[tuple[object, ...]]:
        """Yield live rows, all fields in declared order, ordered by key, streamed."""
        ...

    @abstractmethod
    def count(self, dataset: Dataset) -> int:
        """Count the live rows."""
        ...

    @abstractmethod
    def distinct(self, dataset: Dataset, field: str) -> Iterator[str]:
        """Yield the values of a field of the live rows, each once, in order."""
        ...

    @abstractmethod
    def unknown(
        self, reference: Reference, values: Collection[object]
    ) -> Collection[object]:
        """Return which of these values no live row of the other dataset has."""
        ...

    @abstractmethod
    def watermark(self, dataset: Dataset) -> datetime | None:
        """Return the provider's time at the start of the last proven scan."""
        ...

    @abstractmethod
    def quarantine(
        self, dataset: Dataset, *, after: int, limit: int
    ) -> Sequence[Quarantined]:
        """Return open bad rows in the order of their ids, beginning after one."""
        ...

    @abstractmethod
    def latest_quarantine(
        self, dataset: Dataset, *, before: int | None, limit: int
    ) -> Sequence[Quarantined]:
        """Return open bad rows, the latest first, beginning before one."""
        ...

    @abstractmethod
    def rejected(
        self, import_id: ImportId, *, after: int, limit: int
    ) -> Sequence[Quarantined]:
        """Return the bad rows of an import, also those that are settled since.

        They come in the order of their ids, beginning after one. Those of an import
        that repeats another are the other's.
        """
        ...

    @abstractmethod
    def rejections_by_reason(self, import_id: ImportId) -> Sequence[ReasonCount]:
        """Count the bad rows of an import by reason and field, the most first.

        They are those that `rejected` returns.
        """
        ...

    @abstractmethod
    def replay(
        self,
        dataset: Dataset,
        tried: Sequence[tuple[Quarantined, Record | Rejection]],
    ) -> Replay:
        """Store the rows that are good now, in one transaction with their events.

        They are tried in the order given, so the latest of a key must come first. A row
        whose key was written since it was quarantined is superseded: what came later is
        not overwritten. A row that is still bad keeps its new reason.
        """
        ...


class Bell(Protocol):
    """Tells the idle that there may be new work."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Everything that is kept, behind its ports."""

    schema: Schema
    imports: Imports
    ledger: Ledger
    jobs: Jobs
    budgets: Budgets
    records: Records
    bell: Bell


class Halt(Protocol):
    """A wish to stop; `threading.Event` is one."""

    @abstractmethod
    def is_set(self) -> bool: ...

    @abstractmethod
    def wait(self, timeout: float) -> bool:
        """Sleep so many seconds, or less if the wish comes; say whether it came."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the process itself brings: its clock, its dice, the wish to stop."""

    halt: Halt
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


__all__ = [
    "Bell",
    "Budgets",
    "Declarations",
    "Emit",
    "Fact",
    "Facts",
    "Halt",
    "Host",
    "Imports",
    "JobFilter",
    "Jobs",
    "LastingBudgets",
    "Ledger",
    "Quarantined",
    "ReasonCount",
    "Recall",
    "Records",
    "Redact",
    "Remembered",
    "Replay",
    "Schema",
    "Source",
    "Stores",
    "Survey",
]
