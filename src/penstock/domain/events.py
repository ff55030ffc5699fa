"""Facts worth telling; logs and metrics listen to them."""

from dataclasses import dataclass
from datetime import timedelta

from penstock.domain.job import ImportId, JobId, Mode
from penstock.domain.page import Counts, Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that became true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlanned(Event):
    import_id: ImportId
    dataset: str
    mode: Mode
    shards: int
    resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSurveyed(Event):
    dataset: str
    file: str
    size: int
    shards: int
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaimed(Event):
    job: JobId
    dataset: str
    shard: str
    fence: int
    rescued: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCommitted(Event):
    job: JobId
    dataset: str
    page: int
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone(Event):
    job: JobId
    dataset: str
    shard: str
    proof: Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPostponed(Event):
    job: JobId
    dataset: str
    shard: str
    code: str
    message: str
    delay: timedelta
    attempts: int
    # how often in a row, since its last page, it waited without being to blame
    snoozes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(Event):
    job: JobId
    dataset: str
    shard: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSplit(Event):
    job: JobId
    dataset: str
    shard: str
    children: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(Event):
    job: JobId
    dataset: str
    shard: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseWasLost(Event):
    job: JobId
    dataset: str
    shard: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWasClosed(Event):
    budget: str
    wait: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWasStopped(Event):
    budget: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFinished(Event):
    import_id: ImportId
    dataset: str
    status: str
    proven: bool
    counts: Counts
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailed(Event):
    worker: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWasAway(Event):
    """A store does not take what it has to; the worker waits as long as it may."""

    worker: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed(Event):
    """The API could not answer, for a reason that is ours."""

    trace_id: str
    error: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStoodOut(Event):
    """An answer that took long, or was an error of ours; never with its parameters."""

    trace_id: str
    method: str
    # the address as it is declared: {key} stands for every key
    route: str
    status: int
    took: timedelta
    # what went wrong, if something did
    cause: str | None
    # so many others stood out since the last one that was told
    untold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsLimited(Event):
    """A process that serves the API may open few files, and so few connections."""

    files: int
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReplaced(Event):
    """A process that served the API came to an end, and another took its place."""

    process: int
    status: int
