"""Wake those who wait for jobs, or for an end: LISTEN, with slow asking behind it."""

import threading
from collections.abc import Callable
from datetime import timedelta

import psycopg
from typing_extensions import override

from penstock.adapters.postgres.connections import Connection, hang_up
from penstock.ports import Bell

CHANNEL = "penstock"
# how long the listener sleeps between looks whether it is to end, in seconds
LISTEN = 0.5
# how long it waits before it tries to listen again, in seconds
REST = 2.0
# a line that says nothing may be dead: it is tried so often, in seconds
PROBE_EVERY = 30.0


class ListeningBell(Bell):
    """Listens on a connection of its own, once somebody cares."""

    def __init__(self, connect: Callable[[], Connection], *, schema: str) -> None:
        self._connect = connect
        self._schema = schema
        self._rings = 0
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._listener: threading.Thread | None = None
        self._line: Connection | None = None

    @property
    @override
    def patience(self) -> timedelta:
        return timedelta(seconds=5)

    @property
    @override
    def rings(self) -> int:
        with self._lock:
            if self._listener is None:
                self._listener = threading.Thread(
                    target=self._listen, name="postgres-bell", daemon=True
                )
                self._listener.start()
        return self._rings

    def close(self) -> None:
        self._closing.set()
        if self._line is not None:
            # it would wait for the next ring
            hang_up(self._line)
        if self._listener is not None:
            self._listener.join(5)

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                with self._connect() as connection:
                    self._line = connection
                    connection.execute(f"listen {CHANNEL}")
                    # what was planned while nobody listened
                    self._rings += 1
                    self._hear(connection)
            except psycopg.Error:
                # nobody sleeps longer than the bell's patience without it
                self._closing.wait(REST)

    def _hear(self, connection: Connection) -> None:
        silent = 0.0
        while not self._closing.is_set():
            heard = False
            for notice in connection.notifies(timeout=LISTEN, stop_after=1):
                heard = True
                self._rings += notice.payload == self._schema
            silent = 0.0 if heard else silent + LISTEN
            if silent >= PROBE_EVERY:
                return
