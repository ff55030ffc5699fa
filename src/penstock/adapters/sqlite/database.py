"""One SQLite file with a connection per thread; each transaction has one time."""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from penstock.adapters.sqlite.import_table import SqliteImportTable
from penstock.adapters.sqlite.table_sql import (
    DECIMAL_COLLATION,
    SqliteTableCatalog,
    compare_decimals,
    existing_values,
    imports_of_rows,
)
from penstock.adapters.sqlstore import database as sql
from penstock.adapters.sqlstore.database import Outcome, instant
from penstock.adapters.sqlstore.key_encoding import plain_value
from penstock.adapters.sqlstore.slow_statements import (
    Observe,
    OnSlow,
    StatementWatch,
    ignore_slow,
)
from penstock.adapters.sqlstore.sql_loader import load_statements
from penstock.domain.dataset import Dataset, Reference
from penstock.domain.formats import EPOCH, MICROSECOND
from penstock.errors import (
    Misconfigured,
    Refused,
    StoreReadOnly,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
)
from penstock.ports.cancellation import CURRENT_TOKEN

if TYPE_CHECKING:
    from penstock.adapters.sqlite.record_table import SqliteRecordTable
    from penstock.adapters.sqlite.search_table import SqliteSearchTable

# the error message of a cancelled statement
INTERRUPTED = "interrupted"
# how long a process waits at least for another one that creates or migrates the file
MIN_WAIT = timedelta(seconds=10)
RETRY_INTERVAL = 0.05
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class SqliteTransaction(sql.Transaction):
    """A connection inside one transaction, and the database's time at its start."""

    connection: sqlite3.Connection
    statements: Mapping[str, str]
    tables: SqliteTableCatalog
    now: int

    @override
    def execute(self, name: str, /, **parameters: Any) -> int:
        return self._run(name, parameters).rowcount

    @override
    def execute_all(self, names: Sequence[str], /, **parameters: Any) -> None:
        for name in names:
            self._run(name, parameters)

    @override
    def execute_many(self, name: str, /, given: Sequence[dict[str, Any]]) -> None:
        rows = [{**parameters, "now": self.now} for parameters in given]
        self.connection.executemany(self.statements[name], rows)

    @override
    def one(self, name: str, /, **parameters: Any) -> sqlite3.Row | None:
        rows = self.all(name, **parameters)
        return rows[0] if rows else None

    @override
    def all(self, name: str, /, **parameters: Any) -> Sequence[sqlite3.Row]:
        return self._run(name, parameters).fetchall()

    @override
    def pipeline(self) -> AbstractContextManager[object]:
        # the database runs in this process: there is nothing to batch
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
    def existing_values(
        self, reference: Reference, values: Sequence[Any]
    ) -> Collection[Any]:
        plain = [*map(plain_value, values)]
        found = self.connection.execute(
            existing_values(reference), (json.dumps(plain, ensure_ascii=False),)
        )
        stored = {row["value"] for row in found}
        if any(isinstance(value, Decimal) for value in values):
            # equal numbers may be written with other digits
            numbers = {Decimal(text) for text in stored}
            return [value for value in values if value in numbers]
        pairs = zip(values, plain, strict=True)
        return [value for value, text in pairs if text in stored]

    @override
    def imports_of_rows(self, dataset: str) -> Collection[int]:
        is_table = self.connection.execute(
            "select 1 from sqlite_master where type = 'table' and name = ?", (dataset,)
        ).fetchone()
        if is_table is None:
            return ()
        found = self.connection.execute(imports_of_rows(dataset))
        return [row[0] for row in found]

    @override
    def table(self, dataset: Dataset) -> SqliteImportTable:
        table = self.tables.of(dataset)
        return SqliteImportTable(table, self.connection, self.statements, self.now)

    @override
    def record_table(self, dataset: Dataset) -> "SqliteRecordTable":
        # only an API needs it: imported on first use
        from penstock.adapters.sqlite.record_table import SqliteRecordTable

        return SqliteRecordTable(self.tables.of(dataset), self.connection, self.now)

    @override
    def search_table(self, dataset: Dataset) -> "SqliteSearchTable":
        from penstock.adapters.sqlite.search_table import SqliteSearchTable

        table = self.tables.of(dataset)
        return SqliteSearchTable(table, self.connection, self.statements)

    def _run(self, name: str, parameters: dict[str, Any]) -> sqlite3.Cursor:
        # `:now` is this transaction's time in every statement
        parameters["now"] = self.now
        return self.connection.execute(self.statements[name], parameters)


class WatchedConnection(sqlite3.Connection):
    """A connection that times its statements; queries until their first row."""

    watch: StatementWatch | None = None

    @override
    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        begun = time.perf_counter()
        try:
            return super().execute(statement, *arguments)
        finally:
            if self.watch is not None:
                self.watch.note(statement, time.perf_counter() - begun)

    @override
    def executemany(self, statement: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        begun = time.perf_counter()
        try:
            return super().executemany(statement, rows)
        finally:
            if self.watch is not None:
                self.watch.note(statement, time.perf_counter() - begun)


class SqliteDatabase(sql.Database):
    """The file with the ledger and the records.

    Writers wait for each other at `begin immediate`, never in mid-transaction, so a
    transaction that has begun cannot fail with a conflict.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy: timedelta = timedelta(seconds=10),
        clock: Callable[[], datetime] | None = None,
        on_slow: OnSlow = ignore_slow,
        observe: Observe | None = None,
    ) -> None:
        self.path = path
        # whether this process may read the opened file, and not write it or beside it
        self.is_read_only = False
        self._busy = busy
        # the database's own clock, unless a test sets one
        self._clock = clock
        self._local = threading.local()
        # the identity of the opened file, which may be replaced by another
        self._file: tuple[int, int, bool] | None = None
        self._opened: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._statements = load_statements("penstock.adapters.sqlite")
        self._watch = StatementWatch(self._statements, on_slow, observe)
        self._tables = SqliteTableCatalog()

    @override
    def write(
        self, work: Callable[[SqliteTransaction], Outcome], *, slow: bool = False
    ) -> Outcome:
        with translate_errors(self.path):
            connection = self._connection()
            if self.is_read_only:
                raise StoreReadOnly(
                    f"{self.path}: may only be read by this user; this needs a file "
                    "and a folder that can be written"
                )
            self._begin(connection, slow=slow)
            try:
                with interruptible(connection):
                    outcome = work(self._transaction(connection))
                    connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise
            return outcome

    @override
    def read(self, work: Callable[[SqliteTransaction], Outcome]) -> Outcome:
        with translate_errors(self.path):
            connection = self._connection()
            with interruptible(connection):
                return work(self._transaction(connection))

    @override
    @contextmanager
    def stream(self) -> Iterator[SqliteTransaction]:
        with translate_errors(self.path):
            yield self._transaction(self._connection())

    @override
    def to_stored_time(self, of: datetime | None) -> int | None:
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

    def _begin(self, connection: sqlite3.Connection, *, slow: bool) -> None:
        """Wait for other writers; a transaction that has begun has no time limit."""
        limit = max(self._busy, MIN_WAIT) if slow else self._busy
        connection.execute(f"pragma busy_timeout = {limit // MILLISECOND:d}")
        connection.execute("begin immediate")

    def _transaction(self, connection: sqlite3.Connection) -> SqliteTransaction:
        now = None if self._clock is None else self.to_stored_time(self._clock())
        row = connection.execute(self._statements["now"], {"now": now}).fetchone()
        return SqliteTransaction(connection, self._statements, self._tables, row["now"])

    def _connection(self) -> sqlite3.Connection:
        current: sqlite3.Connection | None = getattr(self._local, "connection", None)
        file = self._identify_file()
        if current is not None:
            if file == self._local.file:
                return current
            # the file was replaced: this connection would read stale rows, and its
            # writes would be lost
            self._drop(current)
        connection = self._connect()
        self._local.connection = connection
        self._local.file = self._file = self._identify_file()
        with self._lock:
            self._opened.append(connection)
        return connection

    def _connect(self) -> sqlite3.Connection:
        self.is_read_only = self.path.exists() and not (
            os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        )
        connection = sqlite3.connect(
            self._uri(),
            timeout=self._busy.total_seconds(),
            isolation_level=None,
            # `close` may be called by another thread than the one that opened it
            check_same_thread=False,
            uri=True,
            factory=WatchedConnection,
        )
        connection.watch = self._watch
        connection.row_factory = sqlite3.Row
        connection.create_collation(DECIMAL_COLLATION, compare_decimals)
        if not self.is_read_only:
            self._use_write_ahead_log(connection)
        # a crash of the process loses nothing; only a power cut may lose the last
        # commits, and then cursor and records are lost together
        connection.execute("pragma synchronous = normal")
        connection.execute("pragma foreign_keys = on")
        return connection

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        """Switch the file to its log, even while another process writes to a new one.

        SQLite refuses that switch at once, whatever its timeout is.
        """
        deadline = time.monotonic() + max(self._busy, MIN_WAIT).total_seconds()
        while True:
            try:
                connection.execute("pragma journal_mode = wal")
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_INTERVAL)
            else:
                return

    def _uri(self) -> str:
        uri = self.path.absolute().as_uri()
        if not self.is_read_only:
            return uri
        # without its log, SQLite would have to create that even to read, unless it may
        # take for granted that nobody writes
        return f"{uri}?{'mode=ro' if self._write_ahead_log.exists() else 'immutable=1'}"

    @property
    def _write_ahead_log(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _identify_file(self) -> tuple[int, int, bool] | None:
        """Return the identity of the file, which differs if another replaces it.

        It also differs when somebody who may begins to write to a file that this
        process may only read.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            if self._file is not None:
                # opening it now would create an empty one
                raise StoreUnavailable(f"{self.path}: the file is gone") from None
            return None
        is_written = self.is_read_only and self._write_ahead_log.exists()
        return found.st_dev, found.st_ino, is_written

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
    """Let all statements see the same rows, despite concurrent writes."""
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
    """Let the current request cancel the statements of a connection."""
    ticket = CURRENT_TOKEN.get()
    if ticket is None:
        yield
        return
    with ticket.on_cancel(connection.interrupt):
        yield


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate the driver's errors into ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        message = str(error)
        if "no such table" in message:
            raise Misconfigured(
                f"{path}: {message}; run penstock migrate first"
            ) from error
        if "unable to open" in message or "readonly" in message:
            raise Misconfigured(
                f"{path}: {message}; check that the folder exists and can be written"
            ) from error
        kind = StoreTimeout if message == INTERRUPTED else StoreUnavailable
        raise kind(f"{path}: {message}") from error
    except (sqlite3.IntegrityError, sqlite3.DataError) as error:
        raise StoreRefused(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error) or "malformed" in str(error):
            raise Misconfigured(
                f"{path}: {error}; point penstock.database at another file"
            ) from error
        raise StoreUnavailable(f"{path}: {error}") from error
