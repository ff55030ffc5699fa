"""One SQLite file, a connection a thread, and transactions that keep time."""

import json
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from penstock.adapters.sql import database as sql
from penstock.adapters.sql.database import Outcome, instant
from penstock.adapters.sql.keys import plain_value
from penstock.adapters.sql.statements import load
from penstock.adapters.sqlite.stored import StoredTable
from penstock.adapters.sqlite.tables import Tables, known_values
from penstock.domain.dataset import Dataset, Reference
from penstock.domain.times import EPOCH, MICROSECOND
from penstock.errors import (
    Misconfigured,
    Refused,
    StoreRefused,
    StoreTooSlow,
    StoreUnavailable,
)
from penstock.ports.tickets import CURRENT

if TYPE_CHECKING:
    from penstock.adapters.sqlite.searching import SearchedTable
    from penstock.adapters.sqlite.served import ServedTable

# what a statement says that was called off
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Transaction(sql.Transaction):
    """A connection inside one transaction, and the database's time at its start."""

    connection: sqlite3.Connection
    statements: Mapping[str, str]
    tables: Tables
    now: int

    @override
    def execute(self, name: str, /, **parameters: Any) -> int:
        return self._run(name, parameters).rowcount

    @override
    def execute_all(self, names: Sequence[str], /, **parameters: Any) -> None:
        for name in names:
            self._run(name, parameters)

    @override
    def each(self, name: str, /, given: Sequence[dict[str, Any]]) -> None:
        told = [{**one, "now": self.now} for one in given]
        self.connection.executemany(self.statements[name], told)

    @override
    def one(self, name: str, /, **parameters: Any) -> sqlite3.Row | None:
        rows = self.all(name, **parameters)
        return rows[0] if rows else None

    @override
    def all(self, name: str, /, **parameters: Any) -> Sequence[sqlite3.Row]:
        return self._run(name, parameters).fetchall()

    @override
    def together(self) -> AbstractContextManager[object]:
        # the database is in this very process
        return nullcontext()

    @override
    def attempt(self, work: Callable[[], object], dataset: Dataset) -> Refused | None:
        del dataset  # its errors name the field themselves
        self.connection.execute("savepoint attempt")
        try:
            work()
        except (sqlite3.IntegrityError, sqlite3.DataError) as error:
            self.connection.execute("rollback to attempt")
            return Refused("the database refuses it", cause=str(error))
        self.connection.execute("release attempt")
        return None

    @override
    def known_values(
        self, reference: Reference, values: Sequence[Any]
    ) -> Collection[Any]:
        plain = {plain_value(value): value for value in values}
        found = self.connection.execute(
            known_values(reference), (json.dumps([*plain], ensure_ascii=False),)
        )
        return [plain[row["value"]] for row in found]

    @override
    def table(self, dataset: Dataset) -> StoredTable:
        table = self.tables.of(dataset)
        return StoredTable(table, self.connection, self.statements, self.now)

    @override
    def served(self, dataset: Dataset) -> "ServedTable":
        # what only an API needs is loaded with its first question
        from penstock.adapters.sqlite.served import ServedTable

        return ServedTable(self.tables.of(dataset), self.connection, self.now)

    @override
    def searched(self, dataset: Dataset) -> "SearchedTable":
        from penstock.adapters.sqlite.searching import SearchedTable

        table = self.tables.of(dataset)
        return SearchedTable(table, self.connection, self.statements)

    def _run(self, name: str, parameters: dict[str, Any]) -> sqlite3.Cursor:
        # `:now` is this transaction's time in every statement
        parameters["now"] = self.now
        return self.connection.execute(self.statements[name], parameters)


class Database(sql.Database):
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
        # which file it is, once it was opened; another may be put in its place
        self._file: tuple[int, int] | None = None
        self._opened: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._statements = load("penstock.adapters.sqlite")
        self._tables = Tables()

    @override
    def write(
        self, work: Callable[[Transaction], Outcome], *, slow: bool = False
    ) -> Outcome:
        del slow  # nothing here ends a transaction that takes long
        with translated(self.path):
            connection = self._connection()
            connection.execute("begin immediate")
            try:
                outcome = work(self._transaction(connection))
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise
            return outcome

    @override
    def read(self, work: Callable[[Transaction], Outcome]) -> Outcome:
        with translated(self.path):
            connection = self._connection()
            with interruptible(connection):
                return work(self._transaction(connection))

    @override
    @contextmanager
    def stream(self) -> Iterator[Transaction]:
        with translated(self.path):
            yield self._transaction(self._connection())

    @override
    def moment(self, of: datetime | None) -> int | None:
        return None if of is None else (of - EPOCH) // MICROSECOND

    @override
    def instant(self, stored: int) -> datetime:
        return instant(stored)

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            while self._opened:
                self._opened.pop().close()
            self._local = threading.local()
            self._file = None

    def _transaction(self, connection: sqlite3.Connection) -> Transaction:
        given = None if self._clock is None else self.moment(self._clock())
        row = connection.execute(self._statements["now"], {"now": given}).fetchone()
        return Transaction(connection, self._statements, self._tables, row["now"])

    def _connection(self) -> sqlite3.Connection:
        known: sqlite3.Connection | None = getattr(self._local, "connection", None)
        file = self._identify_file()
        if known is not None:
            if file == self._local.file:
                return known
            # another file stands in its place: what this one reads is not served any
            # more, and what it writes would be lost
            self._drop(known)
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
        self._local.file = self._file = self._identify_file()
        with self._lock:
            self._opened.append(connection)
        return connection

    def _identify_file(self) -> tuple[int, int] | None:
        """Return by what a file is told from another that has its name later."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            if self._file is not None:
                # to open it now would make an empty one
                raise StoreUnavailable(f"{self.path}: the file is gone") from None
            return None
        return found.st_dev, found.st_ino

    def _drop(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if connection in self._opened:
                self._opened.remove(connection)
        connection.close()
        # unless all were closed by another thread
        if getattr(self._local, "connection", None) is connection:
            del self._local.connection


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all statements see the same rows, whoever writes meanwhile."""
    if connection.in_transaction:
        yield
        return
    connection.execute("begin deferred")
    try:
        yield
    finally:
        # nothing was written
        connection.execute("rollback")


@contextmanager
def interruptible(connection: sqlite3.Connection) -> Iterator[None]:
    """Let whoever asks call off what a connection is asked meanwhile."""
    ticket = CURRENT.get()
    if ticket is None:
        yield
        return
    with ticket.covering(connection.interrupt):
        yield


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
        kind = StoreTooSlow if told == INTERRUPTED else StoreUnavailable
        raise kind(f"{path}: {told}") from error
    except (sqlite3.IntegrityError, sqlite3.DataError) as error:
        raise StoreRefused(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error) or "malformed" in str(error):
            raise Misconfigured(
                f"{path}: {error}; point penstock.database at another file"
            ) from error
        raise StoreUnavailable(f"{path}: {error}") from error
