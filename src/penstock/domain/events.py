"""Events that the log and the metrics subscribe to."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, NamedTuple, NewType, TypedDict

from penstock.domain.actions import ActionVia
from penstock.domain.jobs import (
    ImportId,
    ImportStatus,
    JobId,
    Lease,
    Mode,
    WorkerId,
)
from penstock.domain.pages import Counts, Proof
from penstock.domain.scheduling.fires import SkipReason

# of the .sql files, or such as `records:select`: there are few of them
StatementName = NewType("StatementName", str)


class Level(StrEnum):
    """How much an operator should care about an event."""

    # too frequent to be logged by default
    DEBUG = "debug"
    INFO = "info"
    # something is worse than it should be, and goes on
    WARNING = "warning"
    # something has ended that should not, or waits for an operator
    ERROR = "error"


class LevelRule(NamedTuple):
    """A value of a field with which an event has another level."""

    field: str
    value: str
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened."""

    level: ClassVar[Level] = Level.INFO
    level_rules: ClassVar[tuple[LevelRule, ...]] = ()


def level_of(event: Event) -> Level:
    """Return the level of an event."""
    for rule in event.level_rules:
        if getattr(event, rule.field) == rule.value:
            return rule.level
    return event.level


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent(Event):
    """Something that happened to a job while a worker had its lease."""

    job: JobId
    import_id: ImportId
    dataset: str
    worker: WorkerId


class JobFields(TypedDict):
    """The fields that all events of a job have."""

    job: JobId
    import_id: ImportId
    dataset: str
    worker: WorkerId


def job_fields(lease: Lease) -> JobFields:
    return JobFields(
        job=lease.job,
        import_id=lease.import_id,
        dataset=lease.dataset,
        worker=lease.owner,
    )


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
class JobClaimed(JobEvent):
    shard: str
    fence: int
    rescued: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCommitted(JobEvent):
    level: ClassVar[Level] = Level.DEBUG

    page: int
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTaken(JobEvent):
    """A budget allowed a request, after a wait."""

    level: ClassVar[Level] = Level.DEBUG

    budget: str
    waited: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamResponded(Event):
    """A provider was sent a request; also one for an access token."""

    level: ClassVar[Level] = Level.DEBUG

    dataset: str
    # none: there was no complete response
    status: int | None
    took: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone(JobEvent):
    shard: str
    proof: Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPostponed(JobEvent):
    level: ClassVar[Level] = Level.WARNING
    level_rules: ClassVar[tuple[LevelRule, ...]] = (
        LevelRule("code", "budget", Level.INFO),
    )

    shard: str
    code: str
    message: str
    delay: timedelta
    attempts: int
    # consecutive postponements since its last page that do not count as attempts
    snoozes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(JobEvent):
    level: ClassVar[Level] = Level.WARNING

    shard: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSplit(JobEvent):
    shard: str
    children: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(JobEvent):
    shard: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseWasLost(JobEvent):
    level: ClassVar[Level] = Level.WARNING

    shard: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWasClosed(JobEvent):
    level: ClassVar[Level] = Level.WARNING

    budget: str
    wait: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWasStopped(JobEvent):
    level: ClassVar[Level] = Level.ERROR

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

    level: ClassVar[Level] = Level.WARNING
    level_rules: ClassVar[tuple[LevelRule, ...]] = (
        LevelRule("reason", SkipReason.PAUSED, Level.INFO),
    )

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

    level: ClassVar[Level] = Level.ERROR

    schedule: str
    dataset: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConflict(Event):
    """This process declares a schedule otherwise than one that started later."""

    level: ClassVar[Level] = Level.WARNING

    schedule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFinished(Event):
    level_rules: ClassVar[tuple[LevelRule, ...]] = (
        LevelRule("status", ImportStatus.FAILED, Level.ERROR),
    )

    import_id: ImportId
    dataset: str
    status: str
    proven: bool
    counts: Counts
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A process works on jobs from now on."""

    worker: WorkerId
    region: str | None
    datasets: tuple[str, ...]
    threads: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(Event):
    """A process has released its jobs, and ends."""

    worker: WorkerId
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIsDeaf(Event):
    """A worker of Celery is connected, and receives no messages; it ends."""

    level: ClassVar[Level] = Level.ERROR

    # Celery's name of it
    worker: str
    queues: tuple[str, ...]
    # since its last delivery, or since it had a connection and an idle slot
    silence: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStarted(Event):
    """A process begins scheduled imports from now on."""

    schedules: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStopped(Event):
    """A process begins no more imports, and ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStarted(Event):
    """The API listens."""

    url: str
    processes: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStopping(Event):
    """The API finishes open requests, and ends."""

    grace: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsServed(Event):
    """A worker or scheduler can be scraped at this address."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTaken(Event):
    # the subject of a token, an address, or user@host of a command
    actor: str
    # such as cancelImport
    action: str
    subject: str
    via: ActionVia


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailed(Event):
    level: ClassVar[Level] = Level.ERROR

    worker: str
    error: str
    # of its job, if it had one
    job: JobId | None = None
    import_id: ImportId | None = None
    dataset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDone(Event):
    level: ClassVar[Level] = Level.DEBUG

    task: str
    worker: WorkerId
    took: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceFailed(Event):
    level: ClassVar[Level] = Level.ERROR

    task: str
    worker: WorkerId
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWasAway(JobEvent):
    """A store is unavailable; the worker waits as long as its lease allows."""

    level: ClassVar[Level] = Level.WARNING

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed(Event):
    """A request failed with an internal error."""

    level: ClassVar[Level] = Level.ERROR

    trace_id: str
    error: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStoodOut(Event):
    """A response that was slow or a server error; never with its parameters."""

    level: ClassVar[Level] = Level.WARNING

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
class TraceExportFailed(Event):
    """Spans could not be sent to the collector of traces."""

    level: ClassVar[Level] = Level.WARNING

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementWasSlow(Event):
    """A statement of the database took long; never with its values."""

    level: ClassVar[Level] = Level.WARNING

    statement: StatementName
    took: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsLimited(Event):
    """An API process may open only few files, and so few connections."""

    level: ClassVar[Level] = Level.WARNING

    files: int
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseReadOnly(Event):
    """The API serves records, but takes no writes, no imports and no uploads."""

    level: ClassVar[Level] = Level.WARNING

    database: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRestarted(Event):
    """A worker or scheduler beside the API exited, and is started again."""

    level: ClassVar[Level] = Level.WARNING

    command: str
    pid: int
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReplaced(Event):
    """An API process exited and was replaced by another."""

    level: ClassVar[Level] = Level.WARNING

    process: int
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDelivered(Event):
    """A hook has confirmed a message."""

    hook: str
    fact: str
    # all deliveries of a message have the same id
    message: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDeliveryFailed(Event):
    """A hook has not confirmed a message, which is delivered again later."""

    level: ClassVar[Level] = Level.WARNING

    hook: str
    fact: str
    message: str
    attempts: int
    error: str
    delay: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMessageGivenUp(Event):
    """A message is not delivered any more; whoever it was for has not heard of it."""

    level: ClassVar[Level] = Level.ERROR

    hook: str
    fact: str
    message: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMessagesDropped(Event):
    """Messages of a hook that is no longer declared were removed."""

    level: ClassVar[Level] = Level.WARNING

    hook: str
    count: int
