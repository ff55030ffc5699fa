"""Databases that are put back to an older state while APIs and Redis go on."""

import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from typing_extensions import override

from tests.services.private import PrivatePostgres, PrivateStandby
from tests.support.proxy import Proxy
from tests.support.stores import PostgresStore, SqliteStore, Store
from tests.support.workshop import wait_until


class Restorable(ABC):
    """A database of which a state is saved, and comes back later."""

    store: Store

    @abstractmethod
    def save(self) -> None: ...

    @abstractmethod
    def put_back(self) -> None:
        """Lose all that was committed since."""

    @abstractmethod
    def restart(self) -> None:
        """Go away for a moment, and lose nothing."""


class RestoredFiles(Restorable):
    """A PostgreSQL whose data directory is put back."""

    def __init__(self, server: PrivatePostgres, redis: str) -> None:
        self._server = server
        self.store = PostgresStore(server.url, redis=redis)

    @override
    def save(self) -> None:
        self._server.stop()
        self._server.copy_data()
        self._server.start()

    @override
    def put_back(self) -> None:
        self._server.stop("immediate")
        self._server.put_data_back()
        self._server.start()

    @override
    def restart(self) -> None:
        self._server.restart()


class PromotedStandby(Restorable):
    """A PostgreSQL whose asynchronous standby takes over."""

    def __init__(
        self,
        primary: PrivatePostgres,
        standby: PrivateStandby,
        line: Proxy,
        redis: str,
    ) -> None:
        self._primary, self._standby, self._line = primary, standby, line
        url = line.via(primary.url)
        self.store = PostgresStore(url, redis=redis)

    @override
    def save(self) -> None:
        self._catch_up()
        # what is committed from here on never gets there
        self._standby.stop()

    @override
    def put_back(self) -> None:
        self._primary.stop("immediate")
        self._standby.start()
        self._take_over()

    @override
    def restart(self) -> None:
        """Fail over without a loss."""
        self._catch_up()
        self._primary.stop("immediate")
        self._take_over()

    def _catch_up(self) -> None:
        (written,) = ask(self._primary.url, "select pg_current_wal_lsn()::text")[0]
        replayed = f"select pg_last_wal_replay_lsn() >= '{written}'::pg_lsn"
        wait_until(lambda: ask(self._standby.url, replayed)[0][0])

    def _take_over(self) -> None:
        assert ask(self._standby.url, "select pg_promote()") == [(True,)]
        self._line.target = ("127.0.0.1", self._standby.port)
        self._line.cut()
        self._line.mend()


class RestoredFile(Restorable):
    """A SQLite file that is put back."""

    def __init__(self, folder: Path, redis: str) -> None:
        self._path, self._copy = folder / "penstock.db", folder / "copy.db"
        self.store = SqliteStore(folder, redis=redis)

    @override
    def save(self) -> None:
        self._copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(self._path, timeout=10)) as file:
            file.execute("vacuum into ?", (str(self._copy),))

    @override
    def put_back(self) -> None:
        fresh = self._copy.with_suffix(".fresh")
        fresh.write_bytes(self._copy.read_bytes())
        for suffix in ("-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        fresh.replace(self._path)

    @override
    def restart(self) -> None:
        """It is in the processes themselves: nothing of it can go away."""


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as server:
        return server.execute(statement.encode()).fetchall()
