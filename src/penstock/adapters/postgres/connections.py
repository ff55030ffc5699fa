"""Connections to one server: bounded, with time limits, and given up when they hang."""

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
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row

from penstock.adapters.postgres.arrays import teach
from penstock.ports.tickets import CURRENT

Connection: TypeAlias = psycopg.Connection[DictRow]

# a server that does not answer a connection attempt for so long, in seconds, is away
CONNECT_TIMEOUT = 5
# where another server can be asked instead; libpq takes no less
SHORT_CONNECT_TIMEOUT = 2
# how long an idle connection is kept beyond the first, in seconds
MAX_IDLE = 60.0
# what the network may take beyond what the server may, in seconds
GRACE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a server is asked."""

    # what its planner is told
    planner: Mapping[str, str] = field(default_factory=dict)
    # whoever has another server to ask does not wait for this one to come back
    insists: bool = True


# Rows are found by index, also in a young table that is small yet: so a plan that was
# made for an empty one holds for a full one, and need not be made for every page.
FOR_PAGES = Manner(
    planner={
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
    }
)
FOR_CLIENTS = Manner()
FOR_CLIENTS_OF_A_REPLICA = Manner(insists=False)


def parameters(
    url: str, *, schema: str, limit: timedelta, manner: Manner = FOR_PAGES
) -> dict[str, Any]:
    """Return how every connection is opened.

    The server ends a statement that takes too long, one that waits too long for a lock,
    and a transaction whose worker was stopped in the middle of it: a sleeping worker
    must not hold rows that others need.
    """
    given = conninfo_to_dict(url)
    milliseconds = max(int(limit.total_seconds() * 1000), 1)
    options = {
        "search_path": f'"{schema}",public',
        "statement_timeout": milliseconds,
        "lock_timeout": milliseconds,
        "idle_in_transaction_session_timeout": milliseconds,
        # a worker whose machine is gone must not hold anything for hours
        "tcp_keepalives_idle": 10,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
        "timezone": "UTC",
        # each statement sees what was committed before it, whatever the server prefers
        "default_transaction_isolation": r"read\ committed",
        **manner.planner,
    }
    return {
        "connect_timeout": CONNECT_TIMEOUT if manner.insists else SHORT_CONNECT_TIMEOUT,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "application_name": "penstock",
        **given,
        "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
    }


class Connections:
    """Connections that are shared, of which there are never more than allowed.

    Each is opened by whoever needs it, who so hears at once why none can be had, and
    whether the server is back.

    A server that was cut off says nothing, and the driver would wait for it for ever.
    So each use has a deadline of its own, and one thread closes the sockets of those
    that have passed it; the driver then sees a broken connection.
    """

    def __init__(self, how: dict[str, Any], *, most: int, limit: timedelta) -> None:
        self.how = how
        self._limit = limit.total_seconds()
        self._most = most
        self._places = threading.BoundedSemaphore(most)
        # the one used last at the end, each with the time at which it was given back
        self._idle: deque[tuple[Connection, float]] = deque()
        self._deadlines: dict[Connection, float] = {}
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._watch: threading.Thread | None = None

    def open_one(self) -> Connection:
        """Open a connection of its own, or say why none can be had."""
        connection = psycopg.connect(**self.how, autocommit=True, row_factory=dict_row)
        teach(connection)
        return connection

    @contextmanager
    def one(self, *, patience: float | None = None) -> Iterator[Connection]:
        """Borrow a connection; `patience` is how long it may be used, in seconds."""
        self._start()
        if not self._places.acquire(timeout=self._limit):
            told = f"all {self._most} connections were in use for {self._limit:g} s"
            raise psycopg.OperationalError(told)
        try:
            connection = self._idle_one() or self.open_one()
            try:
                with self.watched(connection, patience=patience):
                    yield connection
            finally:
                self._give_back(connection)
        finally:
            self._places.release()

    @contextmanager
    def watched(
        self, connection: Connection, *, patience: float | None = None
    ) -> Iterator[None]:
        """Close a connection that is used longer than it may be."""
        allowed = self._limit + GRACE if patience is None else patience
        self._deadlines[connection] = time.monotonic() + allowed
        try:
            yield
        finally:
            self._deadlines.pop(connection, None)

    def extend(self, connection: Connection) -> None:
        """Begin the time of a connection anew, since it has just answered."""
        if connection in self._deadlines:
            self._deadlines[connection] = time.monotonic() + self._limit + GRACE

    def close(self) -> None:
        self._closing.set()
        if self._watch is not None:
            self._watch.join()
        while self._idle:
            self._idle.pop()[0].close()

    def _idle_one(self) -> Connection | None:
        while True:
            try:
                connection, _ = self._idle.pop()
            except IndexError:
                return None
            if is_quiet(connection):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        status = connection.info.transaction_status
        if status is not TransactionStatus.IDLE or self._closing.is_set():
            connection.close()
        else:
            self._idle.append((connection, time.monotonic()))

    def _start(self) -> None:
        with self._lock:
            if self._watch is None:
                self._watch = threading.Thread(
                    target=self._look_after, name="postgres-deadlines", daemon=True
                )
                self._watch.start()

    def _look_after(self) -> None:
        while not self._closing.wait(0.25):
            now = time.monotonic()
            for connection, deadline in list(self._deadlines.items()):
                if now > deadline:
                    self._deadlines.pop(connection, None)
                    hang_up(connection)
                    # the line is the same for those that wait to be used
                    self._close_idle(now, longest=0)
            self._close_idle(now)

    def _close_idle(self, now: float, *, longest: float = MAX_IDLE) -> None:
        """Close what has not been used for so long, but for one."""
        while len(self._idle) > 1:
            try:
                connection, since = self._idle.popleft()
            except IndexError:
                # others were faster
                return
            if now - since <= longest:
                self._idle.appendleft((connection, since))
                return
            connection.close()


def is_quiet(connection: Connection) -> bool:
    """Say whether an idle connection has heard nothing: what it hears is its end."""
    if connection.closed:
        return False
    line = select.poll()
    line.register(connection.fileno(), select.POLLIN)
    return not line.poll(0)


@contextmanager
def cancellable(connection: Connection) -> Iterator[None]:
    """Let whoever asks call off what a connection is asked meanwhile."""
    ticket = CURRENT.get()
    if ticket is None:
        yield
        return
    try:
        with ticket.covering(partial(cancel, connection)):
            yield
    finally:
        if ticket.is_called_off:
            # the server may hear of it late, and must not end the next question
            connection.close()


def cancel(connection: Connection) -> None:
    # a line on which the server cannot be told is cut by its deadline
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=GRACE)


def hang_up(connection: Connection) -> None:
    """Cut the line under a connection, from another thread than the one that waits."""
    with suppress(OSError, psycopg.Error):
        line = socket.socket(fileno=os.dup(connection.fileno()))
        with line:
            line.shutdown(socket.SHUT_RDWR)
