"""The registry of live worker processes."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from penstock.domain.jobs import WorkerId
from penstock.domain.scaling import OpenWork
from penstock.domain.waiting import DepartedWorker, LiveWorker
from penstock.ports.ledger import Declarations


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAnnouncement:
    """What a worker process says of itself."""

    id: WorkerId
    region: str | None
    declarations: Declarations
    host: str
    pid: int
    version: str
    threads: int
    # since it last claimed a job; none: it has not claimed one
    idle: timedelta | None = None


class Workers(Protocol):
    """The live workers, busy or idle; independent of leases."""

    @abstractmethod
    def announce(self, worker: WorkerAnnouncement, *, lasting: timedelta) -> None:
        """Register a worker as live for the time `lasting`."""
        ...

    @abstractmethod
    def remove(self, worker: WorkerId) -> None:
        """Remove a worker that exits; does nothing if it is not registered."""
        ...

    @abstractmethod
    def open_work(self, *, most: int) -> Sequence[OpenWork]:
        """Return the open jobs of the running imports; due ones counted up to `most`.

        The cost does not grow with the number of jobs.
        """
        ...

    @abstractmethod
    def live(self) -> Sequence[LiveWorker]:
        """Return the live workers, by the database's clock."""
        ...

    @abstractmethod
    def departed(self) -> Sequence[DepartedWorker]:
        """Return the workers of the last day that are no longer live."""
        ...
