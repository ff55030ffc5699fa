"""One PostgreSQL database: transactions that are repeated, resumed or resolved."""

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

from penstock.adapters.postgres.connections import (
    FOR_PAGES,
    Connection,
    Connections,
    Manner,
    cancellable,
    parameters,
)
from penstock.adapters.postgres.refusals import (
    explained,
    refusal,
    refused_row,
    unavailable,
)
from penstock.adapters.postgres.statements import CLOCK, NOW, statements
from penstock.adapters.postgres.stored import StoredTable
from penstock.adapters.postgres.tables import Table, Tables, known_values
from penstock.adapters.postgres.tidying import Tidying
from penstock.adapters.sql import database as sql
from penstock.adapters.sql.database import Outcome
from penstock.domain.dataset import Dataset, Reference
from penstock.errors import Refused, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from penstock.adapters.postgres.searching import SearchedTable
    from penstock.adapters.postgres.served import ServedTable

# also of a client's, a transaction that writes finds its rows by index
BEGIN = "begin; select pg_current_xact_id()::text as xid, " + ", ".join(
    f"set_config('{name}', '{value}', true)"
    for name, value in FOR_PAGES.planner.items()
)
# how far the log of the server has come, by which replicas follow
POSITION = """
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as position"""
COMMIT_AND_TELL = f"commit; {POSITION}"
# conflicts that the server resolves by asking one side to begin anew
CONFLICTS = (
    postgres.SerializationFailure,
    postgres.DeadlockDetected,
    # of a prepared statement whose table has changed
    postgres.FeatureNotSupported,
)
MOST_CONFLICTS = 10
# the line broke, or the server is starting, stopping or full, or has ended a
# transaction whose worker had been stopped in the middle of it
BROKEN = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    postgres.IdleInTransactionSessionTimeout,
)
# more than the server can ever take, which its driver calls operational, too
TOO_MUCH = (postgres.ProgramLimitExceeded, postgres.StatementTooComplex)
# what is wrong with rows, and stays so
OF_ROWS = (*TOO_MUCH, psycopg.DataError, psycopg.IntegrityError)
# how long one question whether a commit took effect may take, in seconds
ASK_FOR = 2.0
FIRST_REST, LONGEST_REST = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Transaction(sql.Transaction):
    """Named statements on one connection."""

    connection: Connection
    statements: Mapping[str, str]
    tables: Tables
    # how many rows of each table it has changed
    changes: dict[Table, int]
    # it was tried before, and met a conflict, or its answer was lost
    is_again: bool = False

    @override
    def execute(self, name: str, /, **given: Any) -> int:
        return self._run(name, given).rowcount

    @override
    def execute_all(self, names: Sequence[str], /, **given: Any) -> None:
        as_one = in_one(tuple([self.statements[name] for name in names]))
        self.connection.execute(as_one, storable_all(given))

    @override
    def each(self, name: str, /, given: Sequence[dict[str, Any]]) -> None:
        if given:
            with self.connection.cursor() as cursor:
                cursor.executemany(
                    self.statements[name].encode(), [*map(storable_all, given)]
                )

    @override
    def one(self, name: str, /, **given: Any) -> DictRow | None:
        return self._run(name, given).fetchone()

    @override
    def all(self, name: str, /, **given: Any) -> Sequence[DictRow]:
        return self._run(name, given).fetchall()

    @override
    @contextmanager
    def together(self) -> Iterator[None]:
        try:
            with self.connection.pipeline():
                yield
        except psycopg.Error:
            # the driver takes for prepared what the server has passed over
            self.connection.close()
            raise

    @override
    def attempt(self, work: Callable[[], object], dataset: Dataset) -> Refused | None:
        try:
            with self.connection.transaction():
                work()
        except OF_ROWS as error:
            return refused_row(error, dataset)
        return None

    @override
    def known_values(
        self, reference: Reference, values: Sequence[Any]
    ) -> Collection[Any]:
        found = self.connection.execute(
            known_values(reference).encode(), {"values": values}
        )
        return [row["value"] for row in found.fetchall()]

    @override
    def table(self, dataset: Dataset) -> StoredTable:
        return StoredTable(
            self.tables.of(dataset),
            self.connection,
            self.statements,
            self.changes,
            self.is_again,
        )

    @override
    def served(self, dataset: Dataset) -> "ServedTable":
        # what only an API needs is loaded with its first question
        from penstock.adapters.postgres.served import ServedTable

        return ServedTable(self.tables.of(dataset), self.connection)

    @override
    def searched(self, dataset: Dataset) -> "SearchedTable":
        from penstock.adapters.postgres.searching import SearchedTable

        return SearchedTable(self.tables.of(dataset), self.connection, self.statements)

    def _run(self, name: str, given: dict[str, Any]) -> psycopg.Cursor[DictRow]:
        known = storable_all(given)
        return self.connection.execute(self.statements[name].encode(), known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Generic[Outcome]):
    """Work that was committed."""

    outcome: Outcome
    # how many rows of each table it has changed
    changes: Mapping[Table, int]
    # where the log of the server was then, if that was asked for and heard
    position: int | None = None


class Database(sql.Database):
    """The database that holds the ledger and the records.

    - A conflict (deadlock, serialization) rolls everything back, and the work is done
      again.
    - A broken line before the commit means that nothing was done: again, with growing
      pauses, as long as a commit may take.
    - A line that breaks during the commit leaves open whether it took effect. The
      server knows by the number of the transaction, and is asked. (After a crash it may
      give the number of a lost transaction to another one and say yes. No promise hangs
      on that: the next write of the worker meets the true fence and page.)
    - A statement that is its own transaction is sent again, and the work looks whether
      it has taken effect.
    """

    def __init__(
        self,
        url: str,
        *,
        place: str,
        schema: str,
        limit: timedelta = timedelta(seconds=10),
        most_connections: int = 8,
        clock: str | None = None,
        manner: Manner = FOR_PAGES,
    ) -> None:
        self.place = place
        self.schema = schema
        self._limit = limit.total_seconds()
        self._patience = self._limit if manner.insists else 0.0
        self._has_answered = False
        self._has_written = False
        self.connections = Connections(
            parameters(url, schema=schema, limit=limit, manner=manner),
            most=most_connections,
            limit=limit,
        )
        # a test brings an expression of its own for the time
        self._statements = statements(now=clock or NOW, clock=clock or CLOCK)
        self._tables = Tables(self._statements, now=clock or NOW)
        self._tidying = Tidying(self.connections)

    @override
    def write(
        self, work: Callable[[Transaction], Outcome], *, slow: bool = False
    ) -> Outcome:
        return self._write(work, slow=slow).outcome

    def write_at_once(self, work: Callable[[Transaction], Outcome]) -> Outcome:
        """Do work of which one statement writes, and is its own transaction.

        Where its answer was lost, the work is done again, and told so: it has to look
        whether it has taken effect.
        """
        return self._written(partial(self._at_once, work), least=2).outcome

    def write_and_tell(
        self, work: Callable[[Transaction], Outcome], *, slow: bool = False
    ) -> tuple[Outcome, int | None]:
        """Do work in one transaction, and tell where the log was after it.

        It is told with the commit: a question of its own could fail, though the work
        has taken effect. None where the commit is known to have, but was not answered.
        """
        done = self._write(work, slow=slow, commit=COMMIT_AND_TELL)
        return done.outcome, done.position

    def _write(
        self,
        work: Callable[[Transaction], Outcome],
        *,
        slow: bool,
        commit: str = "commit",
    ) -> Done[Outcome]:
        return self._written(partial(self._write_once, work, slow=slow, commit=commit))

    def _written(
        self, write: Callable[..., Done[Outcome]], *, least: int = 1
    ) -> Done[Outcome]:
        attempts = itertools.count()
        done = self._insist(lambda: write(is_again=next(attempts) > 0), least=least)
        self._has_written = True
        self._tidying.note(done.changes)
        return done

    @override
    def read(self, work: Callable[[Transaction], Outcome]) -> Outcome:
        return self._insist(lambda: self._at_once(work).outcome)

    def _at_once(
        self, work: Callable[[Transaction], Outcome], *, is_again: bool = False
    ) -> Done[Outcome]:
        with self.connections.one() as connection, cancellable(connection):
            try:
                transaction = self._transaction(connection, is_again=is_again)
                return Done(outcome=work(transaction), changes=transaction.changes)
            except postgres.FeatureNotSupported:
                # a table has changed since the statement was prepared here
                connection.close()
                raise

    @override
    @contextmanager
    def stream(self) -> Iterator[Transaction]:
        with (
            self._translated(),
            self.connections.one(patience=float("inf")) as one,
            one.transaction(),
        ):
            # whoever reads along may be slow; it holds nothing that others need
            one.execute("set local statement_timeout = 0")
            one.execute("set local idle_in_transaction_session_timeout = 0")
            one.execute("set local enable_seqscan = on")
            yield self._transaction(one)

    @override
    def moment(self, of: datetime | None) -> datetime | None:
        return of

    @override
    def instant(self, stored: datetime) -> datetime:
        return stored

    @contextmanager
    def alone(self) -> Iterator[Connection]:
        """Use a connection without a transaction or a time limit, for slow errands."""
        with self._translated(), self.connections.one(patience=float("inf")) as one:
            one.execute("set statement_timeout = 0")
            # an index waits for transactions that began before it, however long
            one.execute("set lock_timeout = 0")
            one.execute("set enable_seqscan = on")
            try:
                yield one
            finally:
                if not one.closed:
                    one.execute("reset statement_timeout")
                    one.execute("reset lock_timeout")
                    one.execute("reset enable_seqscan")

    def table(self, dataset: Dataset) -> Table:
        return self._tables.of(dataset)

    def close(self) -> None:
        self.connections.close()

    def _transaction(
        self,
        connection: Connection,
        *,
        is_again: bool = False,
    ) -> Transaction:
        return Transaction(connection, self._statements, self._tables, {}, is_again)

    def _insist(  # noqa: C901 (a line a kind)
        self, once: Callable[[], Outcome], *, least: int = 1
    ) -> Outcome:
        """Do something until it is done, refused for good, or out of time.

        It is tried at least so often, however long a line that broke was silent.
        """
        deadline = time.monotonic() + self._patience
        conflicts, rest, tries = 0, FIRST_REST, 0
        while True:
            tries += 1
            try:
                outcome = once()
            except CONFLICTS as error:
                conflicts += 1
                if conflicts >= MOST_CONFLICTS:
                    raise self._unavailable(error) from error
                time.sleep(random.random() * 0.02 * conflicts)  # noqa: S311 (no secret)
            except postgres.QueryCanceled as error:
                raise self._unavailable(error) from error
            except TOO_MUCH as error:
                raise self._refused(error) from error
            except (*BROKEN, postgres.ReadOnlySqlTransaction) as error:
                # what a server did before and refuses now will pass: it fails over
                did_so = (
                    self._has_written if is_read_only(error) else self._has_answered
                )
                told = refusal(error, self.place, self.schema)
                if told is not None and not did_so:
                    raise told from error
                if time.monotonic() + rest > deadline and tries >= least:
                    raise self._unavailable(error) from error
                time.sleep(rest * (0.5 + random.random()))  # noqa: S311 (no secret)
                rest = min(2 * rest, LONGEST_REST)
            except psycopg.Error as error:
                told = refusal(error, self.place, self.schema)
                raise (told or self._refused(error)) from error
            else:
                self._has_answered = True
                return outcome

    def _write_once(
        self,
        work: Callable[[Transaction], Outcome],
        *,
        slow: bool,
        is_again: bool,
        commit: str,
    ) -> Done[Outcome]:
        patience = float("inf") if slow else None
        with self.connections.one(patience=patience) as connection:
            xid = begun(connection)
            try:
                if slow:
                    connection.execute("set local statement_timeout = 0")
                    # it may be about all rows of a table
                    connection.execute("set local enable_seqscan = on")
                transaction = self._transaction(connection, is_again=is_again)
                outcome = work(transaction)
            except BaseException:
                roll_back(connection)
                raise
            self.connections.extend(connection)
            done = Done(outcome=outcome, changes=transaction.changes)
            try:
                told = connection.execute(commit)
            except psycopg.Error as error:
                lost = error
            else:
                return replace(done, position=position_in(told))
        if self._took_effect(xid):
            return done
        raise lost

    def _took_effect(self, xid: str) -> bool:
        """Ask what became of a transaction whose commit was not answered."""
        deadline = time.monotonic() + self._limit
        while True:
            try:
                with self.connections.one(patience=ASK_FOR) as connection:
                    status = status_of(connection, xid)
            except BROKEN as error:
                if time.monotonic() > deadline:
                    raise self._unavailable(error) from error
                status = "in progress"
            if status != "in progress":
                return status == "committed"
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{self.place}: did not say whether a commit took effect"
                )
            time.sleep(FIRST_REST)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            told = refusal(error, self.place, self.schema)
            raise (told or self._unavailable(error)) from error

    def _refused(self, error: psycopg.Error) -> StoreRefused:
        return StoreRefused(f"{self.place}: {explained(error)}")

    def _unavailable(self, error: psycopg.Error) -> StoreUnavailable:
        return unavailable(error, self.place)


@cache
def in_one(statements: tuple[str, ...]) -> bytes:
    """Make one statement of several; none but the last may begin with `with`."""
    *first, last = (text.removesuffix(";") for text in statements)
    parts = ", ".join(f"part_{at} as ({text})" for at, text in enumerate(first))
    return f"with {parts} {last}".encode()


def storable_all(given: dict[str, Any]) -> dict[str, Any]:
    return {name: storable(value) for name, value in given.items()}


def storable(value: object) -> object:
    """Write what no text of the server can hold as a character that stands for it.

    Records have none of it; what is told of an error may have.
    """
    if not isinstance(value, str):
        return value
    text = value if value.isascii() else value.encode(errors="replace").decode()
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def is_read_only(error: psycopg.Error) -> bool:
    return isinstance(error, postgres.ReadOnlySqlTransaction)


def begun(connection: Connection) -> str:
    """Begin a transaction, and learn its number in the same round trip."""
    answers = connection.execute(BEGIN)
    answers.nextset()
    row = answers.fetchone()
    if row is None:
        raise psycopg.OperationalError("the transaction has no number")
    return str(row["xid"])


def position_in(told: psycopg.Cursor[DictRow]) -> int | None:
    """Read what follows the answer to a commit, if that was asked for."""
    row = told.fetchone() if told.nextset() else None
    return None if row is None else int(row["position"])


def roll_back(connection: Connection) -> None:
    try:
        connection.execute("rollback")
    except psycopg.Error:
        # the line is gone, and the transaction with it
        connection.close()


def status_of(connection: Connection, xid: str) -> str:
    try:
        row = connection.execute(
            "select pg_xact_status(%s::xid8) as status", (xid,)
        ).fetchone()
    except postgres.InvalidParameterValue:
        # a crash lost it before it was known to anybody
        return "aborted"
    return "aborted" if row is None else str(row["status"])
