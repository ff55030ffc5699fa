"""Stored schedules, and what happened to each of their fires."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType, Protocol

from penstock.domain.dataset import Dataset, DatasetName
from penstock.domain.jobs import Import, ImportId, ImportStatus, Mode
from penstock.domain.scheduling.fires import FireOutcome, SkippedFires
from penstock.domain.scheduling.schedule import (
    Schedule,
    ScheduleDeclaration,
    ScheduleName,
)
from penstock.ports.idempotency import ImportSpec

FireId = NewType("FireId", int)


class ScheduleOrigin(StrEnum):
    # in penstock.toml
    DECLARED = "declared"
    # over the API
    CREATED = "created"


class ScheduleStatus(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    # its fields do not fit the datasets any more
    BROKEN = "broken"
    # no fire is left
    ENDED = "ended"
    # no longer declared
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    declaration: ScheduleDeclaration
    origin: ScheduleOrigin
    status: ScheduleStatus
    # why it is paused or broken
    note: str | None
    considered_until: datetime
    # a fire that waits for the end of another import
    waiting: datetime | None
    next_run_at: datetime | None
    last_run_at: datetime | None
    # failures of earlier imports do not count
    counted_since: datetime
    # when the process that declared it had started
    declared_at: datetime | None
    # what a process that started earlier declares otherwise
    conflict: str | None
    revision: int
    created_at: datetime

    @property
    def name(self) -> ScheduleName:
        return self.declaration.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """A fire, or several in a row that were skipped for one reason."""

    id: FireId
    schedule: ScheduleName
    # of a fire that a person asked for
    request: str
    fire_at: datetime
    last_fire_at: datetime
    count: int
    outcome: FireOutcome
    reason: str | None
    detail: str | None
    import_id: ImportId | None
    import_status: ImportStatus | None
    decided_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFilter:
    status: ScheduleStatus | None = None
    dataset: str | None = None


class ScheduleOrder(StrEnum):
    """The orders of a list; by a time are only those that have it."""

    NAME = "name"
    NEXT_RUN = "next_run_at"
    # the newest first
    LAST_RUN = "-last_run_at"
    CREATION = "-created_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePosition:
    """Where a page of a list ends."""

    name: str
    # the time by which the list is ordered
    at: datetime | None = None


class Schedules(Protocol):
    """Schedules, declared in the file or created over the API."""

    @abstractmethod
    def declare(
        self, schedules: Sequence[tuple[Schedule, ScheduleDeclaration]], *, at: datetime
    ) -> Sequence[ScheduleName]:
        """Store what a process that started `at` declares; return conflicting names.

        What a process that started later has declared stays, and the conflict is noted
        there. Declared schedules that are missing are retired, with their history; a
        schedule of the same name that was created over the API stays, too.
        """
        ...

    @abstractmethod
    def create(
        self, schedule: Schedule, declaration: ScheduleDeclaration
    ) -> StoredSchedule:
        """Create a schedule; raises `Conflict` if there is one of this name."""
        ...

    @abstractmethod
    def change(
        self, schedule: Schedule, declaration: ScheduleDeclaration, *, revision: int
    ) -> StoredSchedule:
        """Replace the fields of a created schedule; earlier fires are not made up for.

        Raises `Conflict` if it is declared in the file, or has changed meanwhile.
        """
        ...

    @abstractmethod
    def set_status(
        self, name: str, status: ScheduleStatus, *, note: str | None
    ) -> StoredSchedule:
        """Pause or resume a schedule; raises `Conflict` if it has retired or ended."""
        ...

    @abstractmethod
    def delete(self, name: str, *, revision: int | None = None) -> None:
        """Delete a created or retired schedule with its history; else `Conflict`.

        Also if it does not have the given revision any more.
        """
        ...

    @abstractmethod
    def get(self, name: str) -> StoredSchedule: ...

    @abstractmethod
    def find(
        self,
        chosen: ScheduleFilter,
        *,
        order: ScheduleOrder = ScheduleOrder.NAME,
        after: SchedulePosition | None = None,
        limit: int,
    ) -> Sequence[StoredSchedule]: ...

    @abstractmethod
    def fires(
        self, name: str, *, before: FireId | None = None, limit: int
    ) -> Sequence[Fire]:
        """Return the newest fires first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChange:
    """What a decision changes in a schedule."""

    considered_until: datetime
    next_run_at: datetime | None
    waiting: datetime | None = None
    status: ScheduleStatus = ScheduleStatus.ACTIVE
    note: str | None = None
    skipped: Sequence[SkippedFires] = ()
    # why a fire was refused, for people
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FireRequest:
    """A fire that begins an import."""

    fire_at: datetime
    # of a person; empty: the schedule's own
    request: str = ""
    spec: ImportSpec = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """When schedules have to be decided again."""

    # until the next one is due; none: no fire is left
    wait: timedelta | None
    # some depend on the end of an import
    has_pending: bool


class FireLog(Protocol):
    """The decisions about fires, each in one transaction."""

    @abstractmethod
    def due(self, *, limit: int) -> Sequence[StoredSchedule]:
        """Return the schedules to decide: due, waiting, or to fire after imports."""
        ...

    @abstractmethod
    def upcoming(self) -> Upcoming: ...

    @abstractmethod
    def unfinished(self, dataset: DatasetName, mode: Mode) -> ImportId | None:
        """Return the unfinished import of this kind, if there is one."""
        ...

    @abstractmethod
    def newest_proven(
        self, datasets: Sequence[DatasetName]
    ) -> Mapping[DatasetName, datetime]:
        """Return when the newest proven import of each dataset ended."""
        ...

    @abstractmethod
    def results(self, schedule: StoredSchedule, *, limit: int) -> Sequence[bool]:
        """Return whether the newest imports of a schedule succeeded, newest first."""
        ...

    @abstractmethod
    def record(self, schedule: StoredSchedule, change: ScheduleChange) -> bool:
        """Store a decision that begins no import.

        Returns False, and changes nothing, if the schedule has changed meanwhile.
        """
        ...

    @abstractmethod
    def begin(
        self,
        schedule: StoredSchedule,
        change: ScheduleChange | None,
        dataset: Dataset,
        fire: FireRequest,
    ) -> Import | None:
        """Store a decision, its fire and its import; it has to be planned afterwards.

        Without a change it is a fire that a person asked for, whatever the schedule has
        decided meanwhile. Returns None, and changes nothing, if the schedule was
        deleted or has changed meanwhile, or the fire has begun an import before.
        Whatever `approve` raises for an unfinished import ends it as well.
        """
        ...
