"""The worker processes that are there."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from penstock.domain.job import WorkerId
from penstock.domain.waiting import LiveWorker
from penstock.ports.ledger import Declarations


class Workers(Protocol):
    """Who works, or waits for work; it says nothing about leases."""

    @abstractmethod
    def announce(
        self,
        worker: WorkerId,
        *,
        region: str | None,
        declarations: Declarations,
        lasting: timedelta,
    ) -> None:
        """Say that a worker is there, and believed to be for so long."""
        ...

    @abstractmethod
    def remove(self, worker: WorkerId) -> None:
        """Say that a worker has ended; nothing happens if that is known."""
        ...

    @abstractmethod
    def live(self) -> Sequence[LiveWorker]:
        """Return those that are there, by the database's clock."""
        ...
