"""One SQLite file, a connection a thread, and transactions that keep time."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.adapters.statements import load
from penstock.errors import Misconfigured, StoreUnavailable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def instant_or_none(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else instant(microseconds)


def microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - EPOCH) // MICROSECOND


@dataclass(frozen=True, slots=True)
class Transaction:
    """A connection inside one transaction, and the database's time at its start."""

    connection: sqlite3.Connection
    statements: Mapping[str, str]
    now: int

    def execute(self, name: str, /, **parameters: Any) -> sqlite3.Cursor:
        """Run a named statement; `:now` is this transaction's time."""
        parameters["now"] = self.now
        return self.connection.execute(self.statements[name], parameters)

    def one(self, name: str, /, **parameters: Any) -> sqlite3.Row | None:
        """Run a named statement that returns a row or none, to its end."""
        rows = self.execute(name, **parameters).fetchall()
        return rows[0] if rows else None


class Database:
    """The file that holds the ledger and the records.

    Writers wait for each other at `begin immediate`, never in mid-transaction, so a
    transaction that has begun cannot meet a conflict.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy: timedelta = timedelta(seconds=10),
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.path = path
        self._busy = busy
        # the database's own clock, unless a test brings one
        self._clock = clock
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._statements = load("penstock.adapters.sqlite")

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Open the only write transaction there is; all or nothing."""
        with translated(self.path):
            connection = self._connection()
            connection.execute("begin immediate")
            try:
                yield self._transaction(connection)
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Read without a lock; each statement sees one committed state."""
        with translated(self.path):
            yield self._transaction(self._connection())

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            while self._opened:
                self._opened.pop().close()
            self._local = threading.local()

    def _transaction(self, connection: sqlite3.Connection) -> Transaction:
        given = None if self._clock is None else microseconds(self._clock())
        row = connection.execute(self._statements["now"], {"now": given}).fetchone()
        return Transaction(connection, self._statements, row["now"])

    def _connection(self) -> sqlite3.Connection:
        known: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if known is not None:
            return known
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy.total_seconds(),
            isolation_level=None,
            # `close` may be called by another thread than the one that opened it
            check_same_thread=False,
        )
        connection.row_factory = sqlite3.Row
        connection.execute("pragma journal_mode = wal")
        # a crash of the process loses nothing; only a power cut may lose the last
        # commits, and then cursor and records go back together
        connection.execute("pragma synchronous = normal")
        connection.execute("pragma foreign_keys = on")
        self._local.connection = connection
        with self._lock:
            self._opened.append(connection)
        return connection


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        told = str(error)
        if "no such table" in told:
            raise Misconfigured(
                f"{path}: {told}; run penstock migrate first"
            ) from error
        if "unable to open" in told or "readonly" in told:
            raise Misconfigured(
                f"{path}: {told}; check that the folder exists and can be written"
            ) from error
        raise StoreUnavailable(f"{path}: {told}") from error
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error) or "malformed" in str(error):
            raise Misconfigured(
                f"{path}: {error}; point penstock.database at another file"
            ) from error
        raise StoreUnavailable(f"{path}: {error}") from error
