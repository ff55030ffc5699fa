"""The maintenance tasks that all processes share: when each is due, and who runs it."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NewType, Protocol

from penstock.domain.jobs import WorkerId

# `leases`, or `indexes:poi`: a kind of task, and what it is about
TaskName = NewType("TaskName", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """How far a one-off task has come."""

    # where to continue, in the words of the task; none: at the beginning
    cursor: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClaim:
    """The right to run a task, until it expires or its fence has moved on."""

    name: TaskName
    fence: int
    # only of a one-off task
    kind: str | None = None
    payload: Mapping[str, Any] | None = None
    progress: TaskProgress = TaskProgress()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """What is known about a task, by the database's clock."""

    name: TaskName
    # of a one-off task; none: it runs periodically
    kind: str | None
    # none: a one-off task that has ended
    due_at: datetime | None
    # the process that runs it now
    owner: WorkerId | None
    last_run_at: datetime | None
    # how long the last run took; none before its end
    took: timedelta | None
    # of the last run that failed, which may be older than the last run
    error: str | None
    failed_at: datetime | None
    payload: Mapping[str, Any] | None = None
    progress: TaskProgress = TaskProgress()


class Maintenance(Protocol):
    """Tasks that are run by one process at a time, whichever gets the claim.

    A claim only saves work: a process that stalls for longer than its claim lasts may
    run a task at the same time as the next one, so every task can be run twice. All
    times are those of the database's clock.
    """

    @abstractmethod
    def waits(
        self, names: Sequence[TaskName], *, kinds: Sequence[str] = ()
    ) -> Mapping[TaskName, timedelta]:
        """Return how long each task is not due; zero or less if it is due.

        These are the periodic tasks `names`, which are due at once if they are new,
        and all one-off tasks of the `kinds` that have not ended. A task that a process
        runs is not due before its claim expires.
        """
        ...

    @abstractmethod
    def claim(
        self, name: TaskName, *, owner: WorkerId, lasting: timedelta
    ) -> TaskClaim | None:
        """Claim a task if it is due; None if it is not, or another process has it."""
        ...

    @abstractmethod
    def renew(
        self,
        claim: TaskClaim,
        *,
        lasting: timedelta,
        progress: TaskProgress | None = None,
    ) -> bool:
        """Extend a claim from now on, and store how far the task has come, if given.

        Returns False, and changes nothing, if another process has the task.
        """
        ...

    @abstractmethod
    def finish(
        self,
        claim: TaskClaim,
        *,
        due_in: timedelta | None,
        error: str | None = None,
        progress: TaskProgress | None = None,
    ) -> bool:
        """End a run; the task is due again after a while, or with None never.

        Returns False, and changes nothing, if another process has the task.
        """
        ...

    @abstractmethod
    def submit(self, kind: str, payload: Mapping[str, Any]) -> TaskName:
        """Add a one-off task, due at once, with a payload that JSON can express."""
        ...

    @abstractmethod
    def tasks(self) -> Sequence[TaskState]:
        """Return all tasks, by name."""
        ...

    @abstractmethod
    def forget(self, *, unused: timedelta) -> int:
        """Remove one-off tasks that ended, and tasks that were due, so long ago.

        Nobody runs the latter any more: the declaration or the host is gone. Returns
        how many were removed.
        """
        ...
