"""The validated settings of `penstock.toml`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from penstock.domain.auth_claims import AuthConfig
from penstock.domain.budget import Budget
from penstock.domain.dataset import Dataset
from penstock.domain.hooks import Hook
from penstock.domain.redaction import Redactor
from penstock.domain.retention import RetentionPolicy
from penstock.domain.scheduling.schedule import ScheduleDeclaration
from penstock.errors import NotFound
from penstock.settings.models.api import ApiSettings, ApiTable, build_api_settings
from penstock.settings.models.base import CeleryTable, Engine
from penstock.settings.urls import SQLITE, is_postgres, redact_url
from penstock.settings.validation_errors import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """The settings; adapters get single values of it, never the whole."""

    path: Path
    # of ledger and records; may contain a password: show `place` instead
    database: str = SQLITE
    # servers that the API reads from; may contain passwords, too
    replicas: tuple[str, ...] = ()
    # the store of budgets; None: the database
    redis: str | None = None
    # the PostgreSQL schema of all our tables
    schema: str = "penstock"
    # the folder of received files
    spool: Path = Path("spool")
    # how long a worker owns a job without a commit
    lease: timedelta = timedelta(seconds=60)
    # the longest wait for a token under a lease
    longest_wait: timedelta = timedelta(seconds=10)
    # the time limit for committing a page
    commit_timeout: timedelta = timedelta(seconds=10)
    # consecutive errors before a job becomes a dead letter
    attempts: int = 8
    engine: Engine = Engine.LOCAL
    # of Celery; may contain a password
    broker: str | None = None
    celery: CeleryTable = field(default_factory=CeleryTable)
    # how long entries of the ledger are stored
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    schedules: Mapping[str, ScheduleDeclaration] = field(default_factory=dict)
    # who is told of what
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    # which tokens the API accepts; None: it serves this machine only
    auth: AuthConfig | None = None
    # what the API allows its clients
    api: ApiSettings = field(default_factory=lambda: build_api_settings(ApiTable()))
    # secret value -> "${NAME}"
    secrets: Mapping[str, str] = field(default_factory=dict)
    # replaces these, likely secrets and tokens of this process by their names
    redact: Redactor = field(default_factory=lambda: Redactor({}), compare=False)

    def __repr__(self) -> str:
        # any text may contain a secret, such as a URL
        named = ", ".join(self.datasets)
        return f"Settings(path={str(self.path)!r}, datasets=[{named}])"

    @property
    def sqlite_path(self) -> Path | None:
        """The database file; a relative path starts at the settings file."""
        prefix = "sqlite:///"
        if not self.database.startswith(prefix):
            return None
        return self.path.parent / self.database.removeprefix(prefix)

    @property
    def postgres_url(self) -> str | None:
        """The URL of the database server with its password; None for a file."""
        return self.database if is_postgres(self.database) else None

    @property
    def place(self) -> str:
        """The URL of the database without secrets."""
        return self.redact(redact_url(self.database))

    def dataset(self, name: str) -> Dataset:
        """Return a declared dataset; raises `NotFound` with the closest name."""
        if name not in self.datasets:
            message = f"dataset {name!r} is not declared in {self.path}"
            raise NotFound(f"{message}; {did_you_mean(name, self.datasets)}")
        return self.datasets[name]
