"""Events that the log and the metrics subscribe to."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.domain.jobs import ImportId, JobId, Mode
from penstock.domain.pages import Counts, Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened."""


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
    warnings: tuple[str, ...]


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
    # consecutive postponements since its last page that do not count as attempts
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
class ScheduleFired(Event):
    schedule: str
    dataset: str
    import_id: ImportId
    fire_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FiresSkipped(Event):
    """Fires in a row that began no import."""

    schedule: str
    dataset: str
    reason: str
    first: datetime
    last: datetime
    count: int
    detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStopped(Event):
    """A schedule was paused after failures, or does not fit its dataset any more."""

    schedule: str
    dataset: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConflict(Event):
    """This process declares a schedule otherwise than one that started later."""

    schedule: str


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
class MaintenanceFailed(Event):
    task: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWasAway(Event):
    """A store is unavailable; the worker waits as long as its lease allows."""

    worker: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed(Event):
    """A request failed with an internal error."""

    trace_id: str
    error: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStoodOut(Event):
    """A response that was slow or a server error; never with its parameters."""

    trace_id: str
    method: str
    # the route template: {key} stands for every key
    route: str
    status: int
    took: timedelta
    # what went wrong, if something did
    cause: str | None
    # similar requests since the last logged one
    untold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsLimited(Event):
    """An API process may open only few files, and so few connections."""

    files: int
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRestarted(Event):
    """A worker or scheduler beside the API exited, and is started again."""

    command: str
    pid: int
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReplaced(Event):
    """An API process exited and was replaced by another."""

    process: int
    status: int
