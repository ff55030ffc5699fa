"""The tables, and diagnostics of their servers."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from penstock.domain.dataset import Dataset
from penstock.ports.datasets import Datasets


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStatement:
    """A statement that is composed for a dataset, for people to read and to explain."""

    name: str
    # when it is used
    use: str
    sql: str
    # the names of its parameters by placeholder, if placeholders are numbers
    parameters: Mapping[str, str] = field(default_factory=dict)


class Schema(Protocol):
    """The tables of the ledger and of every dataset."""

    @property
    @abstractmethod
    def is_shared(self) -> bool:
        """Whether several hosts may use them, so that an operator runs migrations."""
        ...

    @property
    @abstractmethod
    def is_read_only(self) -> bool:
        """Whether this process may read them and not write them."""
        ...

    @property
    @abstractmethod
    def datasets(self) -> Datasets:
        """Operations on whole datasets."""
        ...

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the ledger has any tables yet."""
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
    def ensure_table(self, dataset: Dataset) -> Sequence[str]:
        """Create a dataset's table, or add what its declaration gained; return the
        changes made.

        Raises `Misconfigured`, and changes nothing, if a declared type or key differs
        from the stored one.
        """  # noqa: D205 (one sentence that needs two lines)
        ...

    @abstractmethod
    def pending_table_changes(self, dataset: Dataset) -> Sequence[str]:
        """Return what `prepare` would do; raises as it does."""
        ...

    @abstractmethod
    def maintain(self, dataset: Dataset) -> Sequence[str]:
        """Run due maintenance of a dataset's table, such as index builds.

        Cheap if nothing is due; called often, by all processes. Returns what was done.
        """
        ...

    @abstractmethod
    def lacks_indexes(self, dataset: Dataset) -> bool:
        """Return whether indexes of a dataset's table are still to be built."""
        ...

    @abstractmethod
    def pending_maintenance(self, dataset: Dataset) -> Sequence[str]:
        """Return what `maintain` would do now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding about a server."""

    what: str
    is_ok: bool
    # a sentence; if it is not ok, with the location and the remedy
    message: str


class ServerDiagnostics(Protocol):
    """Checks of a server before workers rely on it.

    Reads only. Raises `StoreUnavailable` if the server is unreachable, or
    `Misconfigured` if an operator has to act.
    """

    @property
    @abstractmethod
    def server(self) -> str:
        """Its key in the settings: `database`, `redis`."""
        ...

    @abstractmethod
    def about(
        self, datasets: Iterable[Dataset], *, threads: int
    ) -> Iterator[Diagnostic]:
        """Yield the findings for a worker with these datasets and threads."""
        ...

    @abstractmethod
    def now(self) -> datetime:
        """Return the server's own time."""
        ...
