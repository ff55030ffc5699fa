"""The settings of one run: everything that `penstock.toml` says, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from penstock.domain.access import Trust
from penstock.domain.budget import Budget
from penstock.domain.dataset import Dataset
from penstock.errors import NotFound
from penstock.settings import secrets
from penstock.settings.declared_api import ApiSettings, ApiTable, built_api
from penstock.settings.problems import did_you_mean
from penstock.settings.servers import SQLITE, is_postgres, shown_address


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """One frozen tree, read once; adapters are given values of it, never itself."""

    path: Path
    # where ledger and records live; it may hold a password: show `place` instead
    database: str = SQLITE
    # servers that the API reads from; they may hold passwords, too
    replicas: tuple[str, ...] = ()
    # where budgets are kept; none: in the database
    redis: str | None = None
    # the PostgreSQL schema of all our tables
    schema: str = "penstock"
    # where received files are kept
    spool: Path = Path("spool")
    # how long a job belongs to a worker that does not commit
    lease: timedelta = timedelta(seconds=60)
    # the longest a worker waits for a token while it holds a lease
    longest_wait: timedelta = timedelta(seconds=10)
    # the longest the database may take to commit a page
    commit_timeout: timedelta = timedelta(seconds=10)
    # errors in a row before a job is a dead letter
    attempts: int = 8
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    # whose tokens the API believes; none: it serves this machine only
    auth: Trust | None = None
    # what the API allows its clients
    api: ApiSettings = field(default_factory=lambda: built_api(ApiTable()))
    # secret value -> "${NAME}"
    secrets: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        # a secret may stand in any text of the tree, a url for one
        named = ", ".join(self.datasets)
        return f"Settings(path={str(self.path)!r}, datasets=[{named}])"

    @property
    def sqlite_path(self) -> Path | None:
        """The database file; a relative one lies beside the settings."""
        prefix = "sqlite:///"
        if not self.database.startswith(prefix):
            return None
        return self.path.parent / self.database.removeprefix(prefix)

    @property
    def postgres_url(self) -> str | None:
        """The database server, password and all; none where it is a file."""
        return self.database if is_postgres(self.database) else None

    @property
    def place(self) -> str:
        """The database as an operator may see it."""
        return self.redact(shown_address(self.database))

    def dataset(self, name: str) -> Dataset:
        """Return a declared dataset; raises `NotFound` with the nearest name."""
        if name not in self.datasets:
            told = f"dataset {name!r} is not declared in {self.path}"
            raise NotFound(f"{told}; {did_you_mean(name, self.datasets)}")
        return self.datasets[name]

    def redact(self, text: str) -> str:
        """Replace every secret in a text by its name."""
        return secrets.redact(text, self.secrets)
