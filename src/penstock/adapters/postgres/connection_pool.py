"""A bounded connection pool with deadlines, which closes connections that hang."""

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Self, TypeAlias, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row
from typing_extensions import override

from penstock.adapters.postgres.binary_arrays import register_array_dumpers
from penstock.adapters.sqlstore.slow_statements import StatementWatch
from penstock.ports.cancellation import CURRENT_TOKEN
from penstock.ports.database_watch import PoolUse

Connection: TypeAlias = psycopg.Connection[DictRow]

# seconds
CONNECT_TIMEOUT = 5
# where another server can be used instead; the minimum of libpq
SHORT_CONNECT_TIMEOUT = 2
# seconds after which an idle connection is closed, except the last one
MAX_IDLE_TIME = 60.0
# seconds that the network may take beyond the server's own time limit
NETWORK_GRACE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionProfile:
    """How sessions on a server behave."""

    # settings of its query planner
    planner: Mapping[str, str] = field(default_factory=dict)
    # False where another server can be used: then nothing waits for this one to recover
    retries: bool = True


# Rows are found by index even while a table is small: so a plan that was cached for an
# empty table is good for a full one, and statements need not be planned for every page.
IMPORT_SESSION = SessionProfile(
    planner={
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
    }
)
CLIENT_SESSION = SessionProfile()
REPLICA_SESSION = SessionProfile(retries=False)


def connection_parameters(
    url: str, *, schema: str, limit: timedelta, profile: SessionProfile = IMPORT_SESSION
) -> dict[str, Any]:
    """Return the connection parameters.

    The server cancels a statement that takes too long or waits too long for a lock, and
    ends an idle transaction: a worker that was paused in the middle of one must not
    keep rows locked that others need.
    """
    configured = conninfo_to_dict(url)
    milliseconds = max(int(limit.total_seconds() * 1000), 1)
    options = {
        "search_path": f'"{schema}",public',
        "statement_timeout": milliseconds,
        "lock_timeout": milliseconds,
        "idle_in_transaction_session_timeout": milliseconds,
        # a worker whose machine is gone must not keep locks for hours
        "tcp_keepalives_idle": 10,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
        "timezone": "UTC",
        # whatever the server's default is
        "default_transaction_isolation": r"read\ committed",
        **profile.planner,
    }
    return {
        "connect_timeout": CONNECT_TIMEOUT
        if profile.retries
        else SHORT_CONNECT_TIMEOUT,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "application_name": "penstock",
        **configured,
        "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
    }


class TimedCursor(psycopg.Cursor[DictRow]):
    """A cursor that times its statements; in a pipeline only until they are sent."""

    def __init__(self, *arguments: Any, watch: StatementWatch, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._watch = watch

    @override
    def execute(self, query: Any, *arguments: Any, **options: Any) -> Self:
        begun = time.perf_counter()
        try:
            return super().execute(query, *arguments, **options)
        finally:
            if isinstance(query, str | bytes):
                self._watch.note(query, time.perf_counter() - begun)

    @override
    def executemany(self, query: Any, *arguments: Any, **options: Any) -> None:
        begun = time.perf_counter()
        try:
            super().executemany(query, *arguments, **options)
        finally:
            if isinstance(query, str | bytes):
                self._watch.note(query, time.perf_counter() - begun)


class ConnectionPool:
    """A bounded pool of connections.

    A connection is opened by the thread that needs it, which so gets the error at once,
    and notices at once when the server is back.

    When the network to a server fails, the driver would wait for it for ever. So each
    use of a connection has a deadline, and one thread shuts down the sockets of those
    that have passed it; the driver then sees a broken connection.
    """

    def __init__(
        self,
        parameters: dict[str, Any],
        *,
        max_size: int,
        limit: timedelta,
        watch: StatementWatch | None = None,
    ) -> None:
        self._watch = watch
        self._parameters = parameters
        self._limit = limit.total_seconds()
        self._max_size = max_size
        self._slots = threading.BoundedSemaphore(max_size)
        # the last used one at the end, each with the time at which it was returned
        self._idle: deque[tuple[Connection, float]] = deque()
        self._deadlines: dict[Connection, float] = {}
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._in_use = self._waiting = self._waits = 0
        self._waited = 0.0
        self._deadline_thread: threading.Thread | None = None

    def open_connection(self) -> Connection:
        """Open a connection outside the pool."""
        connection = psycopg.connect(
            **self._parameters, autocommit=True, row_factory=dict_row
        )
        register_array_dumpers(connection)
        if self._watch is not None:
            factory = partial(TimedCursor, watch=self._watch)
            connection.cursor_factory = cast("type[TimedCursor]", factory)
        return connection

    @contextmanager
    def one(self, *, timeout: float | None = None) -> Iterator[Connection]:
        """Borrow a connection for at most `timeout` seconds."""
        self._start_deadline_thread()
        self._take_slot()
        try:
            connection = self._take_idle() or self.open_connection()
            try:
                with self._deadline(connection, timeout=timeout):
                    yield connection
            finally:
                self._put_back(connection)
        finally:
            with self._lock:
                self._in_use -= 1
            self._slots.release()

    def use(self) -> PoolUse:
        """Return how many connections there are, and how long they were waited for."""
        with self._lock:
            return PoolUse(
                size=self._max_size,
                in_use=self._in_use,
                idle=len(self._idle),
                waiting=self._waiting,
                waits=self._waits,
                waited=self._waited,
            )

    def _take_slot(self) -> None:
        if not self._slots.acquire(blocking=False):
            self._wait_for_slot()
        with self._lock:
            self._in_use += 1

    def _wait_for_slot(self) -> None:
        begun = time.monotonic()
        with self._lock:
            self._waits += 1
            self._waiting += 1
        try:
            is_free = self._slots.acquire(timeout=self._limit)
        finally:
            with self._lock:
                self._waiting -= 1
                self._waited += time.monotonic() - begun
        if not is_free:
            raise psycopg.OperationalError(
                f"all {self._max_size} connections were in use for {self._limit:g} s"
            )

    @contextmanager
    def _deadline(
        self, connection: Connection, *, timeout: float | None = None
    ) -> Iterator[None]:
        """Let a connection be closed if it is used for longer than `timeout`."""
        allowed = self._limit + NETWORK_GRACE if timeout is None else timeout
        self._deadlines[connection] = time.monotonic() + allowed
        try:
            yield
        finally:
            self._deadlines.pop(connection, None)

    def extend(self, connection: Connection) -> None:
        """Restart the deadline of a connection, since it has just responded."""
        if connection in self._deadlines:
            self._deadlines[connection] = time.monotonic() + self._limit + NETWORK_GRACE

    def close(self) -> None:
        self._closing.set()
        if self._deadline_thread is not None:
            self._deadline_thread.join()
        while self._idle:
            self._idle.pop()[0].close()

    def _take_idle(self) -> Connection | None:
        while True:
            try:
                connection, _ = self._idle.pop()
            except IndexError:
                return None
            if is_quiet(connection):
                return connection
            connection.close()

    def _put_back(self, connection: Connection) -> None:
        status = connection.info.transaction_status
        if status is not TransactionStatus.IDLE or self._closing.is_set():
            connection.close()
        else:
            self._idle.append((connection, time.monotonic()))

    def _start_deadline_thread(self) -> None:
        with self._lock:
            if self._deadline_thread is None:
                self._deadline_thread = threading.Thread(
                    target=self._enforce_deadlines,
                    name="postgres-deadlines",
                    daemon=True,
                )
                self._deadline_thread.start()

    def _enforce_deadlines(self) -> None:
        while not self._closing.wait(0.25):
            now = time.monotonic()
            for connection, deadline in list(self._deadlines.items()):
                if now > deadline:
                    self._deadlines.pop(connection, None)
                    shut_down_socket(connection)
                    # the idle connections use the same network
                    self._close_idle(now, max_age=0)
            self._close_idle(now)

    def _close_idle(self, now: float, *, max_age: float = MAX_IDLE_TIME) -> None:
        """Close all but one of the connections that were idle for longer."""
        while len(self._idle) > 1:
            try:
                connection, since = self._idle.popleft()
            except IndexError:
                # another thread took it
                return
            if now - since <= max_age:
                self._idle.appendleft((connection, since))
                return
            connection.close()


def is_quiet(connection: Connection) -> bool:
    """Return whether an idle connection is unused: nothing but its end could arrive."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


@contextmanager
def cancellable(connection: Connection) -> Iterator[None]:
    """Let the current cancel token cancel the statements of a connection."""
    token = CURRENT_TOKEN.get()
    if token is None:
        yield
        return
    try:
        with token.on_cancel(partial(cancel, connection)):
            yield
    finally:
        if token.is_cancelled:
            # a late cancel request must not hit the next statement
            connection.close()


def cancel(connection: Connection) -> None:
    # if the server cannot be reached, the deadline ends the connection
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=NETWORK_GRACE)


def shut_down_socket(connection: Connection) -> None:
    """Shut down the socket of a connection that another thread waits for."""
    with (
        suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as duplicate,
    ):
        duplicate.shutdown(socket.SHUT_RDWR)
