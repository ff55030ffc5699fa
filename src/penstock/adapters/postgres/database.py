"""A PostgreSQL database: transactions with retries and lost responses to commits."""

import itertools
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic

import psycopg
from psycopg import errors as postgres
from psycopg.rows import DictRow
from typing_extensions import override

from penstock.adapters.postgres.connection_pool import (
    IMPORT_SESSION,
    Connection,
    ConnectionPool,
    SessionProfile,
    cancellable,
    connection_parameters,
)
from penstock.adapters.postgres.error_messages import (
    describe,
    misconfiguration,
    refused_row,
    unavailable,
)
from penstock.adapters.postgres.gin_cleanup import GinCleanup
from penstock.adapters.postgres.import_table import PostgresImportTable
from penstock.adapters.postgres.page_writes import TableState
from penstock.adapters.postgres.sql_templates import CLOCK, NOW, statements
from penstock.adapters.postgres.table_sql import (
    PostgresTableCatalog,
    PostgresTableSql,
    existing_values,
    imports_of_rows,
)
from penstock.adapters.sqlstore import database as sql
from penstock.adapters.sqlstore.database import Outcome
from penstock.adapters.sqlstore.slow_statements import (
    Observe,
    OnSlow,
    StatementWatch,
    ignore_slow,
    name_combined,
)
from penstock.domain.dataset import Dataset, Reference
from penstock.errors import Refused, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from penstock.adapters.postgres.record_table import PostgresRecordTable
    from penstock.adapters.postgres.search.table import PostgresSearchTable

# every transaction that writes finds its rows by index, also that of a client
BEGIN = "begin; select pg_current_xact_id()::text as xid, " + ", ".join(
    f"set_config('{name}', '{value}', true)"
    for name, value in IMPORT_SESSION.planner.items()
)
# the position in the server's write-ahead log, which replicas replay
WAL_POSITION = """
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as position"""
COMMIT_RETURNING_POSITION = f"commit; {WAL_POSITION}"
# the transaction has to be retried
CONFLICTS = (
    postgres.SerializationFailure,
    postgres.DeadlockDetected,
    # a prepared statement whose table has changed
    postgres.FeatureNotSupported,
)
MAX_CONFLICTS = 10
# the connection broke, or the server is starting, stopping or full, or has ended an
# idle transaction of a worker that was paused
DISCONNECTED = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    postgres.IdleInTransactionSessionTimeout,
)
# beyond a limit of the server; the driver calls this operational, too
LIMIT_EXCEEDED = (postgres.ProgramLimitExceeded, postgres.StatementTooComplex)
# errors of the rows themselves, which a retry does not help
ROW_ERRORS = (*LIMIT_EXCEEDED, psycopg.DataError, psycopg.IntegrityError)
# seconds that one query for the outcome of a commit may take
COMMIT_STATUS_TIMEOUT = 2.0
MIN_RETRY_DELAY, MAX_RETRY_DELAY = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class PostgresTransaction(sql.Transaction):
    """Named statements on one connection."""

    connection: Connection
    statements: Mapping[str, str]
    tables: PostgresTableCatalog
    # rows that it has changed, by table
    changes: dict[PostgresTableSql, int]
    # it was tried before: it met a conflict, or its response was lost
    is_retry: bool = False

    @override
    def execute(self, name: str, /, **parameters: Any) -> int:
        return self._run(name, parameters).rowcount

    @override
    def execute_all(self, names: Sequence[str], /, **parameters: Any) -> None:
        texts = tuple([self.statements[name] for name in names])
        combined = combine(tuple(names), texts)
        self.connection.execute(combined, storable_all(parameters))

    @override
    def execute_many(self, name: str, /, given: Sequence[dict[str, Any]]) -> None:
        if given:
            with self.connection.cursor() as cursor:
                cursor.executemany(
                    self.statements[name].encode(), [*map(storable_all, given)]
                )

    @override
    def one(self, name: str, /, **parameters: Any) -> DictRow | None:
        return self._run(name, parameters).fetchone()

    @override
    def all(self, name: str, /, **parameters: Any) -> Sequence[DictRow]:
        return self._run(name, parameters).fetchall()

    @override
    @contextmanager
    def pipeline(self) -> Iterator[None]:
        try:
            with self.connection.pipeline():
                yield
        except psycopg.Error:
            # the driver believes statements prepared that the server has skipped
            self.connection.close()
            raise

    @override
    def attempt(self, work: Callable[[], object], dataset: Dataset) -> Refused | None:
        try:
            with self.connection.transaction():
                work()
        except ROW_ERRORS as error:
            return refused_row(error, dataset)
        return None

    @override
    def existing_values(
        self, reference: Reference, values: Sequence[Any]
    ) -> Collection[Any]:
        found = self.connection.execute(
            existing_values(reference).encode(), {"values": values}
        )
        return [row["value"] for row in found.fetchall()]

    @override
    def imports_of_rows(self, dataset: str) -> Collection[int]:
        row = self.connection.execute(
            "select to_regclass(quote_ident(current_schema()) || '.' "
            "|| quote_ident(%s)) as found",
            (dataset,),
        ).fetchone()
        if row is None or row["found"] is None:
            return ()
        found = self.connection.execute(imports_of_rows(dataset).encode())
        return [row["_import"] for row in found]

    @override
    def table(self, dataset: Dataset) -> PostgresImportTable:
        return PostgresImportTable(
            self.tables.of(dataset),
            self.tables.state(dataset),
            self.connection,
            self.statements,
            self.changes,
            self.is_retry,
        )

    @override
    def record_table(self, dataset: Dataset) -> "PostgresRecordTable":
        # loaded by the first request to the API; workers do not need it
        from penstock.adapters.postgres.record_table import PostgresRecordTable

        return PostgresRecordTable(self.tables.of(dataset), self.connection)

    @override
    def search_table(self, dataset: Dataset) -> "PostgresSearchTable":
        from penstock.adapters.postgres.search.table import PostgresSearchTable

        return PostgresSearchTable(
            self.tables.of(dataset),
            self.tables.state(dataset),
            self.connection,
            self.statements,
        )

    def _run(self, name: str, parameters: dict[str, Any]) -> psycopg.Cursor[DictRow]:
        statement = self.statements[name].encode()
        return self.connection.execute(statement, storable_all(parameters))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedTransaction(Generic[Outcome]):
    """The result of work that was committed."""

    outcome: Outcome
    # changed rows, by table
    changes: Mapping[PostgresTableSql, int]
    # the position of the write-ahead log, if requested and received
    position: int | None = None


class PostgresDatabase(sql.Database):
    """The database that holds the ledger and the records.

    - A conflict (deadlock, serialization) rolls everything back, and the work is
      retried.
    - A connection that breaks before the commit has changed nothing: the work is
      retried with growing delays, for as long as a commit may take.
    - A connection that breaks during the commit leaves its outcome open. The server is
      asked for it by the id of the transaction. (After a crash it may give the id of a
      lost transaction to another one and say yes. No guarantee depends on that: the
      next write of the worker checks the true fence and page.)
    - A statement that is its own transaction is sent again, and the work checks whether
      it has taken effect.
    """

    def __init__(  # noqa: PLR0913 (what differs between those that use a server)
        self,
        url: str,
        *,
        place: str,
        schema: str,
        limit: timedelta = timedelta(seconds=10),
        most_connections: int = 8,
        clock: str | None = None,
        manner: SessionProfile = IMPORT_SESSION,
        on_slow: OnSlow = ignore_slow,
        observe: Observe | None = None,
    ) -> None:
        self.place = place
        self.schema = schema
        self._limit = limit.total_seconds()
        self._retry_time = self._limit if manner.retries else 0.0
        self._has_succeeded = False
        self._has_written = False
        # a test may bring an SQL expression of its own for the time
        self._statements = statements(now=clock or NOW, clock=clock or CLOCK)
        self.connections = ConnectionPool(
            connection_parameters(url, schema=schema, limit=limit, profile=manner),
            max_size=most_connections,
            limit=limit,
            watch=StatementWatch(self._statements, on_slow, observe),
        )
        self._tables = PostgresTableCatalog(self._statements, now=clock or NOW)
        self._gin_cleanup = GinCleanup(self.connections)

    @override
    def write(
        self, work: Callable[[PostgresTransaction], Outcome], *, slow: bool = False
    ) -> Outcome:
        return self._write(work, slow=slow).outcome

    def write_statement(
        self, work: Callable[[PostgresTransaction], Outcome]
    ) -> Outcome:
        """Do work of which one statement writes, and is its own transaction.

        Where its response was lost, the work is retried with `is_retry` set: it has to
        check whether it has taken effect.
        """
        return self._retry_write(
            partial(self._autocommit, work), min_attempts=2
        ).outcome

    def write_returning_position(
        self, work: Callable[[PostgresTransaction], Outcome], *, slow: bool = False
    ) -> tuple[Outcome, int | None]:
        """Do work in one transaction, and also return the log position after it.

        It is read together with the commit: a query of its own could fail although the
        work has taken effect. None where the response to the commit was lost.
        """
        committed = self._write(work, slow=slow, commit=COMMIT_RETURNING_POSITION)
        return committed.outcome, committed.position

    def _write(
        self,
        work: Callable[[PostgresTransaction], Outcome],
        *,
        slow: bool,
        commit: str = "commit",
    ) -> CommittedTransaction[Outcome]:
        return self._retry_write(
            partial(self._write_once, work, slow=slow, commit=commit)
        )

    def _retry_write(
        self,
        write: Callable[..., CommittedTransaction[Outcome]],
        *,
        min_attempts: int = 1,
    ) -> CommittedTransaction[Outcome]:
        attempts = itertools.count()
        committed = self._retry(
            lambda: write(is_retry=next(attempts) > 0), min_attempts=min_attempts
        )
        self._has_written = True
        self._gin_cleanup.count(committed.changes)
        return committed

    @override
    def read(self, work: Callable[[PostgresTransaction], Outcome]) -> Outcome:
        return self._retry(lambda: self._autocommit(work).outcome)

    def _autocommit(
        self, work: Callable[[PostgresTransaction], Outcome], *, is_retry: bool = False
    ) -> CommittedTransaction[Outcome]:
        with self.connections.one() as connection, cancellable(connection):
            try:
                transaction = self._transaction(connection, is_retry=is_retry)
                return CommittedTransaction(
                    outcome=work(transaction), changes=transaction.changes
                )
            except postgres.FeatureNotSupported:
                # a table has changed since the statement was prepared here
                connection.close()
                raise

    @override
    @contextmanager
    def stream(self) -> Iterator[PostgresTransaction]:
        with (
            self._translated(),
            self.connections.one(timeout=float("inf")) as connection,
            connection.transaction(),
        ):
            # the reader may be slow; it locks nothing that others need
            connection.execute("set local statement_timeout = 0")
            connection.execute("set local idle_in_transaction_session_timeout = 0")
            connection.execute("set local enable_seqscan = on")
            yield self._transaction(connection)

    @override
    def to_stored_time(self, of: datetime | None) -> datetime | None:
        return of

    @override
    def instant(self, stored: datetime) -> datetime:
        return stored

    @contextmanager
    def maintenance_connection(self) -> Iterator[Connection]:
        """Borrow a connection without a transaction or a time limit."""
        with (
            self._translated(),
            self.connections.one(timeout=float("inf")) as connection,
        ):
            connection.execute("set statement_timeout = 0")
            # a concurrent index build waits for all earlier transactions
            connection.execute("set lock_timeout = 0")
            connection.execute("set enable_seqscan = on")
            try:
                yield connection
            finally:
                if not connection.closed:
                    connection.execute("reset statement_timeout")
                    connection.execute("reset lock_timeout")
                    connection.execute("reset enable_seqscan")

    def table(self, dataset: Dataset) -> PostgresTableSql:
        return self._tables.of(dataset)

    def table_state(self, dataset: Dataset) -> TableState:
        return self._tables.state(dataset)

    def close(self) -> None:
        self.connections.close()

    def _transaction(
        self,
        connection: Connection,
        *,
        is_retry: bool = False,
    ) -> PostgresTransaction:
        return PostgresTransaction(
            connection, self._statements, self._tables, {}, is_retry
        )

    def _retry(  # noqa: C901 (one branch for each kind of error)
        self, attempt: Callable[[], Outcome], *, min_attempts: int = 1
    ) -> Outcome:
        """Retry until it succeeds, fails for good, or is out of time.

        `min_attempts` are made even where a broken connection took all of the time.
        """
        deadline = time.monotonic() + self._retry_time
        conflicts, delay, attempts = 0, MIN_RETRY_DELAY, 0
        while True:
            attempts += 1
            try:
                outcome = attempt()
            except CONFLICTS as error:
                conflicts += 1
                if conflicts >= MAX_CONFLICTS:
                    raise self._unavailable(error) from error
                time.sleep(random.random() * 0.02 * conflicts)  # noqa: S311 (no secret)
            except postgres.QueryCanceled as error:
                raise self._unavailable(error) from error
            except LIMIT_EXCEEDED as error:
                raise self._refused(error) from error
            except (*DISCONNECTED, postgres.ReadOnlySqlTransaction) as error:
                # if it worked before, the error is temporary: the server fails over
                has_worked = (
                    self._has_written if is_read_only(error) else self._has_succeeded
                )
                permanent = misconfiguration(error, self.place, self.schema)
                if permanent is not None and not has_worked:
                    raise permanent from error
                if time.monotonic() + delay > deadline and attempts >= min_attempts:
                    raise self._unavailable(error) from error
                time.sleep(delay * (0.5 + random.random()))  # noqa: S311 (no secret)
                delay = min(2 * delay, MAX_RETRY_DELAY)
            except psycopg.Error as error:
                permanent = misconfiguration(error, self.place, self.schema)
                raise (permanent or self._refused(error)) from error
            else:
                self._has_succeeded = True
                return outcome

    def _write_once(
        self,
        work: Callable[[PostgresTransaction], Outcome],
        *,
        slow: bool,
        is_retry: bool,
        commit: str,
    ) -> CommittedTransaction[Outcome]:
        timeout = float("inf") if slow else None
        with self.connections.one(timeout=timeout) as connection:
            xid = begin(connection)
            try:
                if slow:
                    connection.execute("set local statement_timeout = 0")
                    # it may read all rows of a table
                    connection.execute("set local enable_seqscan = on")
                transaction = self._transaction(connection, is_retry=is_retry)
                outcome = work(transaction)
            except BaseException:
                roll_back(connection)
                raise
            self.connections.extend(connection)
            committed = CommittedTransaction(
                outcome=outcome, changes=transaction.changes
            )
            try:
                results = connection.execute(commit)
            except psycopg.Error as error:
                lost = error
            else:
                return replace(committed, position=read_position(results))
        if self._took_effect(xid):
            return committed
        raise lost

    def _took_effect(self, xid: str) -> bool:
        """Return whether a transaction was committed; its response was lost."""
        deadline = time.monotonic() + self._limit
        while True:
            try:
                with self.connections.one(timeout=COMMIT_STATUS_TIMEOUT) as connection:
                    status = status_of(connection, xid)
            except DISCONNECTED as error:
                if time.monotonic() > deadline:
                    raise self._unavailable(error) from error
                status = "in progress"
            if status != "in progress":
                return status == "committed"
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{self.place}: it is unknown whether a commit took effect"
                )
            time.sleep(MIN_RETRY_DELAY)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            permanent = misconfiguration(error, self.place, self.schema)
            raise (permanent or self._unavailable(error)) from error

    def _refused(self, error: psycopg.Error) -> StoreRefused:
        return StoreRefused(f"{self.place}: {describe(error)}")

    def _unavailable(self, error: psycopg.Error) -> StoreUnavailable:
        return unavailable(error, self.place)


@cache
def combine(names: tuple[str, ...], statements: tuple[str, ...]) -> bytes:
    """Combine statements into one; only the last may begin with `with`."""
    *first, last = (text.removesuffix(";") for text in statements)
    parts = ", ".join(f"part_{at} as ({text})" for at, text in enumerate(first))
    combined = f"with {parts} {last}".encode()
    name_combined(combined, names)
    return combined


def storable_all(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: storable(value) for name, value in parameters.items()}


def storable(value: object) -> object:
    """Replace characters that a text column cannot hold.

    Records have none of them; the message of an error may.
    """
    if not isinstance(value, str):
        return value
    text = value if value.isascii() else value.encode(errors="replace").decode()
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def is_read_only(error: psycopg.Error) -> bool:
    return isinstance(error, postgres.ReadOnlySqlTransaction)


def begin(connection: Connection) -> str:
    """Begin a transaction, and return its id, in one round trip."""
    results = connection.execute(BEGIN)
    results.nextset()
    row = results.fetchone()
    if row is None:
        raise psycopg.OperationalError("the transaction has no id")
    return str(row["xid"])


def read_position(results: psycopg.Cursor[DictRow]) -> int | None:
    """Read the log position that follows the result of a commit, if requested."""
    row = results.fetchone() if results.nextset() else None
    return None if row is None else int(row["position"])


def roll_back(connection: Connection) -> None:
    try:
        connection.execute("rollback")
    except psycopg.Error:
        # the connection is broken, which ends the transaction
        connection.close()


def status_of(connection: Connection, xid: str) -> str:
    try:
        row = connection.execute(
            "select pg_xact_status(%s::xid8) as status", (xid,)
        ).fetchone()
    except postgres.InvalidParameterValue:
        # lost in a crash before it was written
        return "aborted"
    return "aborted" if row is None else str(row["status"])
