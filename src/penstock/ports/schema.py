"""The tables, and the servers that hold them."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock.domain.dataset import Dataset
from penstock.ports.datasets import Datasets


class Schema(Protocol):
    """The tables of the ledger and of every dataset."""

    @property
    @abstractmethod
    def is_shared(self) -> bool:
        """Whether others depend on them, so that an operator says when they change."""
        ...

    @property
    @abstractmethod
    def datasets(self) -> Datasets:
        """What is stored of datasets as a whole."""
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
    def lacks_indexes(self, dataset: Dataset) -> bool:
        """Say whether the indexes of a dataset's rows are still to be built."""
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
