"""Connections to one server: bounded, with time limits, and given up when they hang."""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool

Connection: TypeAlias = psycopg.Connection[DictRow]

# a server that does not answer a connection attempt for so long, in seconds, is away
CONNECT_TIMEOUT = 5
# how long an idle connection is kept beyond the first, in seconds
MAX_IDLE = 60.0
# what the network may take beyond what the server may, in seconds
GRACE = 2.0

# the pool tells its troubles to a log that nobody set up, and Python would print them;
# whoever waits for a connection is told why there is none
logging.getLogger("psycopg").addHandler(logging.NullHandler())


def parameters(url: str, *, schema: str, limit: timedelta) -> dict[str, Any]:
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
        "timezone": "UTC",
        # rows are found by key: a plan made for an empty table must hold for a full one
        "plan_cache_mode": "force_custom_plan",
    }
    return {
        "connect_timeout": CONNECT_TIMEOUT,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "application_name": "penstock",
        **given,
        "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
    }


class Connections:
    """A pool whose connections never hang.

    A server that was cut off says nothing, and the driver would wait for it for ever.
    So each use has a deadline of its own, and one thread closes the sockets of those
    that have passed it; the driver then sees a broken connection.
    """

    def __init__(self, how: dict[str, Any], *, most: int, limit: timedelta) -> None:
        self.how = how
        self._limit = limit.total_seconds()
        self._lock = threading.Lock()
        self._deadlines: dict[Connection, float] = {}
        self._closing = threading.Event()
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            kwargs={**how, "autocommit": True, "row_factory": dict_row},
            connection_class=psycopg.Connection[DictRow],
            min_size=0,
            max_size=most,
            max_idle=MAX_IDLE,
            # the next who asks tries again: the pool's own pauses grow too long
            reconnect_timeout=1.0,
            timeout=self._limit,
            open=False,
        )
        self._watch: threading.Thread | None = None

    def open_one(self) -> Connection:
        """Open a connection of its own, or say why none can be had."""
        return psycopg.connect(**self.how, autocommit=True, row_factory=dict_row)

    @contextmanager
    def one(self, *, patience: float | None = None) -> Iterator[Connection]:
        """Borrow a connection; `patience` is how long it may be used, in seconds."""
        self._start()
        connection = self._pool.getconn()
        try:
            with self.watched(connection, patience=patience):
                yield connection
        finally:
            self._pool.putconn(connection)

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

    def discard_idle(self) -> None:
        """Drop connections that a restart of the server has broken."""
        self._start()
        self._pool.check()

    def close(self) -> None:
        self._closing.set()
        if self._watch is not None:
            self._watch.join()
            self._pool.close()

    def _start(self) -> None:
        if self._watch is None:
            # the pool knows only that it waited; an attempt of our own tells why
            self.open_one().close()
        with self._lock:
            if self._watch is None:
                self._pool.open()
                self._watch = threading.Thread(
                    target=self._end_overdue, name="postgres-deadlines", daemon=True
                )
                self._watch.start()

    def _end_overdue(self) -> None:
        while not self._closing.wait(0.25):
            now = time.monotonic()
            for connection, deadline in list(self._deadlines.items()):
                if now > deadline:
                    self._deadlines.pop(connection, None)
                    hang_up(connection)


def hang_up(connection: Connection) -> None:
    """Cut the line under a connection, from another thread than the one that waits."""
    with suppress(OSError, psycopg.Error):
        line = socket.socket(fileno=os.dup(connection.fileno()))
        with line:
            line.shutdown(socket.SHUT_RDWR)
