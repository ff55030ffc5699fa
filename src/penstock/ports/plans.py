"""The jobs that plan imports: they store the shards, and open the import to workers."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportId, JobError, Lease, WorkerId
from penstock.ports.ledger import Declarations


class Plans(Protocol):
    """Each import has one, stored with it.

    A lease of a plan is that of a job: `Ledger` renews, postpones and releases it too.
    Every method that takes a lease changes nothing and raises `LeaseLost` unless the
    job is still leased under exactly that fence.
    """

    @abstractmethod
    def due(self, *, declarations: Declarations) -> Sequence[ImportId]:
        """Return the imports that nobody plans now, under one of these declarations.

        Whoever begins an import has a while to claim its plan before others find it.
        """
        ...

    @abstractmethod
    def claim(self, import_id: ImportId, owner: WorkerId) -> Lease | None:
        """Take the plan of an import, with fence + 1; also before its time.

        None while another process plans it, and if the import is not in planning.
        """
        ...

    @abstractmethod
    def add_shards(
        self, lease: Lease, shard_keys: Sequence[str], *, cursor: str
    ) -> Lease:
        """Store shards and where the plan goes on, and renew the lease, all at once.

        Keys that are stored already are left as they are.
        """
        ...

    @abstractmethod
    def restart(self, lease: Lease, *, cursor: str) -> Lease:
        """Remove the shards that were stored, so that the plan begins anew."""
        ...

    @abstractmethod
    def finish(self, lease: Lease) -> None:
        """Open the import to workers."""
        ...

    @abstractmethod
    def repeat(self, dataset: Dataset, lease: Lease, *, of: ImportId) -> None:
        """End the import with the result of another one, all rows unchanged."""
        ...

    @abstractmethod
    def fail(self, lease: Lease, error: JobError) -> None:
        """Fail the plan and its import; a retry of the plan plans it again."""
        ...

    @abstractmethod
    def fail_lost(self) -> None:
        """Fail the imports whose plan was failed because it lost its leases."""
        ...
