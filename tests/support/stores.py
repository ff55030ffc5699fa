"""Where an import is kept, seen past Penstock: read, spoiled, searched for secrets."""

import contextlib
import json
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typing_extensions import override

from penstock.domain.formats import EPOCH, parse_instant

# stands in the address of every server here, so that every test also looks for it
PASSWORD = "practice-password-5e0d88b1"
# by which the configuration names the passwords of both servers
POSTGRES_PASSWORD = "PRACTICE_POSTGRES_PASSWORD"
REDIS_PASSWORD = "PRACTICE_REDIS_PASSWORD"
# how long a server that is being restarted is waited for, in seconds
LONGEST_ABSENCE = 30

Row = dict[str, Any]


class Store(ABC):
    """One database, and perhaps a Redis beside it."""

    # whether an operator has to create the tables
    is_shared: bool
    # what nobody may ever see of it
    secrets: tuple[str, ...] = ()
    # the view or table that has the totals of an import
    totals = "penstock_import"

    @abstractmethod
    def declaration(self) -> str:
        """Write what penstock.toml says of it."""

    @abstractmethod
    def ask(self, statement: str, *values: object) -> list[Row]:
        """Read the database as it is; values stand for question marks."""

    @abstractmethod
    def tamper(self, statement: str, *values: object) -> None:
        """Change the database, whatever refers to what."""

    @abstractmethod
    def has(self, table: str) -> bool: ...

    @abstractmethod
    def instant(self, stored: Any) -> datetime | None:
        """Read a time of the ledger, or of a record."""

    @abstractmethod
    def contents(self) -> Iterator[str]:
        """Yield what is stored in no file of the folder, piece by piece."""

    @property
    def environ(self) -> dict[str, str]:
        return {}

    @staticmethod
    def document(stored: Any) -> Any:
        """Read a column of JSON."""
        return json.loads(stored) if isinstance(stored, str) else stored


class SqliteStore(Store):
    is_shared = False

    def __init__(self, folder: Path, redis: str | None = None) -> None:
        self._path = folder / "penstock.db"
        self._redis = redis

    @override
    def declaration(self) -> str:
        redis = "" if self._redis is None else f'\nredis = "{self._redis}"'
        return f'database = "sqlite:///{self._path.name}"{redis}'

    @override
    def ask(self, statement: str, *values: object) -> list[Row]:
        with contextlib.closing(self._connect()) as connection:
            return [dict(row) for row in connection.execute(statement, values)]

    @override
    def tamper(self, statement: str, *values: object) -> None:
        with contextlib.closing(self._connect()) as connection, connection:
            connection.execute("pragma foreign_keys = off")
            connection.execute(statement, values)

    @override
    def has(self, table: str) -> bool:
        # asking would create the file
        known = "select 1 from sqlite_master where name = ?"
        return self._path.exists() and bool(self.ask(known, table))

    @override
    def instant(self, stored: Any) -> datetime | None:
        if isinstance(stored, int):
            return EPOCH + timedelta(microseconds=stored)
        return parse_instant(stored)

    @override
    def contents(self) -> Iterator[str]:
        return iter(())

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=10)
        connection.row_factory = sqlite3.Row
        return connection


class PostgresStore(Store):
    """A schema on a server; tests go there straight, workers perhaps by a detour."""

    is_shared = True
    totals = "penstock_import_told"

    def __init__(
        self,
        url: str,
        *,
        redis: str | None = None,
        detour: str | None = None,
        schema: str = "penstock",
    ) -> None:
        self._url = url
        self._detour = detour or url
        self._redis = redis
        self._schema = schema
        # a server that trusts everybody takes any password
        self._passwords = {POSTGRES_PASSWORD: urlsplit(url).password or PASSWORD}
        if redis is not None and (password := urlsplit(redis).password):
            self._passwords[REDIS_PASSWORD] = password
        self.secrets = tuple(self._passwords.values())

    @property
    @override
    def environ(self) -> dict[str, str]:
        return self._passwords

    @override
    def declaration(self) -> str:
        database = with_password(self._detour, f"${{{POSTGRES_PASSWORD}}}")
        lines = [f'database = "{database}"', f'schema = "{self._schema}"']
        if REDIS_PASSWORD in self._passwords:
            redis = with_password(self._redis or "", f"${{{REDIS_PASSWORD}}}")
            lines.append(f'redis = "{redis}"')
        elif self._redis is not None:
            lines.append(f'redis = "{self._redis}"')
        return "\n".join(lines)

    @override
    def ask(self, statement: str, *values: object) -> list[Row]:
        return self._insist(statement, values)

    @override
    def tamper(self, statement: str, *values: object) -> None:
        # foreign keys are triggers, which a replica does not fire
        self._insist(
            statement, values, "set session_replication_role = replica", reads=False
        )

    @override
    def has(self, table: str) -> bool:
        known = "select to_regclass(?) is not null as is_there"
        return bool(self.ask(known, f"{self._schema}.{table}")[0]["is_there"])

    @override
    def instant(self, stored: Any) -> datetime | None:
        assert stored is None or isinstance(stored, datetime)
        return stored

    @override
    def contents(self) -> Iterator[str]:
        tables = self.ask(
            "select table_schema || '.' || quote_ident(table_name) as name "
            "from information_schema.tables where table_type = 'BASE TABLE' "
            "and table_schema not in ('pg_catalog', 'information_schema')"
        )
        for table in tables:
            for row in self.ask(f"select * from {table['name']}"):
                yield repr(row)

    def _insist(
        self,
        statement: str,
        values: tuple[object, ...],
        *before: str,
        reads: bool = True,
    ) -> list[Row]:
        """Ask again while the server is away."""
        import psycopg
        from psycopg.rows import dict_row

        deadline = time.monotonic() + LONGEST_ABSENCE
        while True:
            try:
                with psycopg.connect(
                    self._url,
                    options=f"-c search_path={self._schema} -c timezone=UTC",
                    connect_timeout=5,
                    row_factory=dict_row,
                ) as connection:
                    for each in before:
                        connection.execute(each)
                    text = statement.replace("%", "%%").replace("?", "%s")
                    found = connection.execute(text.encode(), values)
                    return found.fetchall() if reads else []
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    user = parts.username or ""
    return parts._replace(netloc=f"{user}:{password}@{where}").geturl()


class Kind(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"
    POSTGRES_AND_REDIS = "postgres+redis"


def on(*kinds: Kind) -> pytest.MarkDecorator:
    """Run a test, or all of a module, once for each of these kinds of store."""
    return pytest.mark.parametrize("store", kinds, indirect=True, ids=str)


everywhere = on(Kind.SQLITE, Kind.POSTGRES_AND_REDIS)
# for what does not depend on the store: `make soak` runs it on servers as well
on_a_file_first = pytest.mark.parametrize(
    "store",
    [Kind.SQLITE, pytest.param(Kind.POSTGRES_AND_REDIS, marks=pytest.mark.slow)],
    indirect=True,
    ids=str,
)
