"""The registry of live worker processes."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from penstock.domain.jobs import WorkerId
from penstock.domain.waiting import LiveWorker
from penstock.ports.ledger import Declarations


class Workers(Protocol):
    """The live workers, busy or idle; independent of leases."""

    @abstractmethod
    def announce(
        self,
        worker: WorkerId,
        *,
        region: str | None,
        declarations: Declarations,
        lasting: timedelta,
    ) -> None:
        """Register a worker as live for the time `lasting`."""
        ...

    @abstractmethod
    def remove(self, worker: WorkerId) -> None:
        """Remove a worker that exits; does nothing if it is not registered."""
        ...

    @abstractmethod
    def live(self) -> Sequence[LiveWorker]:
        """Return the live workers, by the database's clock."""
        ...
