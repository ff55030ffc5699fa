"""Wake waiting workers by LISTEN/NOTIFY; they also poll slowly."""

import threading
from collections.abc import Callable
from datetime import timedelta

import psycopg
from typing_extensions import override

from penstock.adapters.postgres.connection_pool import Connection, shut_down_socket
from penstock.ports import WorkNotifier

CHANNEL = "penstock"
# seconds after which the listener checks whether it is closed
LISTEN_TIMEOUT = 0.5
# seconds before the listener connects again after an error
RECONNECT_DELAY = 2.0
# seconds of silence after which a connection may be dead, and is opened again
MAX_SILENCE = 30.0


class ListenNotifier(WorkNotifier):
    """Listens on a connection of its own once `notification_count` has been read."""

    def __init__(self, connect: Callable[[], Connection], *, schema: str) -> None:
        self._connect = connect
        self._schema = schema
        self._notifications = 0
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._listener: threading.Thread | None = None
        self._connection: Connection | None = None

    @property
    @override
    def poll_interval(self) -> timedelta:
        return timedelta(seconds=5)

    @property
    @override
    def notification_count(self) -> int:
        with self._lock:
            if self._listener is None:
                self._listener = threading.Thread(
                    target=self._listen, name="postgres-listen", daemon=True
                )
                self._listener.start()
        return self._notifications

    def close(self) -> None:
        self._closing.set()
        if self._connection is not None:
            # it would wait for the next notification
            shut_down_socket(self._connection)
        if self._listener is not None:
            self._listener.join(5)

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                with self._connect() as connection:
                    self._connection = connection
                    connection.execute(f"listen {CHANNEL}")
                    # notifications may have been missed meanwhile
                    self._notifications += 1
                    self._receive(connection)
            except psycopg.Error:
                # waiting workers poll meanwhile
                self._closing.wait(RECONNECT_DELAY)

    def _receive(self, connection: Connection) -> None:
        silent = 0.0
        while not self._closing.is_set():
            has_received = False
            for notification in connection.notifies(
                timeout=LISTEN_TIMEOUT, stop_after=1
            ):
                has_received = True
                self._notifications += notification.payload == self._schema
            silent = 0.0 if has_received else silent + LISTEN_TIMEOUT
            if silent >= MAX_SILENCE:
                return
