"""Balanced accepting of connections from a socket that several processes share.

The processes share one backlog, so that a process that dies loses no connection that is
not accepted yet. The kernel mostly wakes the same process; so a process that has more
connections than another leaves the next one to that. If the other does not accept it in
a moment, because it hangs or has just died, the first one does, and no longer waits for
that process until its count changes.
"""

import asyncio
import mmap
import socket
from collections.abc import Callable
from pathlib import Path

from uvicorn.server import ServerState

from penstock.entrypoints.api.server.draining import is_readable

# the count of a process that does not accept: not started yet, or stopped
CLOSED = 2**32 - 1
# seconds between two checks whether another process has accepted a connection, and how
# long it may take for that
CHECK_INTERVAL, MAX_DEFERRAL = 0.001, 0.05
# seconds after which a process without free file descriptors tries again
RETRY_DELAY = 0.1
# a process may have so many more than another, or one in so many of its own
FEW_MORE, SHARE_MORE = 4, 8


class ConnectionCounts:
    """The number of connections of each process, in shared memory."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._counts = memoryview(self._memory).cast("I")
        # processes that did not accept a connection in time, with their counts then
        self._stalled: dict[int, int] = {}

    @classmethod
    def create(cls, path: Path, *, processes: int) -> "ConnectionCounts":
        path.write_bytes(CLOSED.to_bytes(4, "little") * processes)
        return cls(path)

    def set(self, process: int, count: int) -> None:
        self._counts[process] = count

    def close(self, process: int) -> None:
        self.set(process, CLOSED)

    def is_fair(self, process: int) -> bool:
        """Return whether a process may accept: no other has far fewer connections."""
        mine = self._counts[process]
        self._stalled = {
            number: count
            for number, count in self._stalled.items()
            if self._counts[number] == count
        }
        least = min(
            count
            for number, count in enumerate(self._counts)
            if number not in self._stalled
        )
        if least == 0:
            # processes without connections go first
            return mine == 0
        return mine <= least + max(FEW_MORE, mine // SHARE_MORE)

    def ignore_lower(self, process: int) -> None:
        """Ignore processes that have fewer connections, until their counts change.

        The count of a hanging process stays low, and would delay all connections.
        """
        mine = self._counts[process]
        self._stalled = {
            number: count for number, count in enumerate(self._counts) if count < mine
        }


class Acceptor:
    """Accepts for one process; uvicorn closes it like an `asyncio.Server`."""

    def __init__(
        self,
        listening: socket.socket,
        counts: ConnectionCounts,
        process: int,
        *,
        state: ServerState,
        protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        self._listening = listening
        self._counts = counts
        self._process = process
        self._state = state
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        # accepted, but not yet among uvicorn's connections
        self._connecting: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = True

    def open(self) -> None:
        self.count()
        self._wait()

    def close(self) -> None:
        """Stop accepting; the backlog is left to other processes."""
        if self._is_open:
            self._is_open = False
            self._counts.close(self._process)
            self._loop.remove_reader(self._listening.fileno())
            if self._timer is not None:
                self._timer.cancel()
            self._listening.close()

    async def wait_closed(self) -> None:
        """Return at once: uvicorn waits for the connections itself."""

    def count(self) -> None:
        """Publish the number of connections to the other processes."""
        if self._is_open:
            count = len(self._state.connections) + len(self._connecting)
            self._counts.set(self._process, count)

    def _wait(self) -> None:
        self._loop.add_reader(self._listening.fileno(), self._on_ready)

    def _on_ready(self) -> None:
        if self._counts.is_fair(self._process):
            self._accept()
        else:
            self._loop.remove_reader(self._listening.fileno())
            self._defer(until=self._loop.time() + MAX_DEFERRAL)

    def _defer(self, *, until: float) -> None:
        self._timer = self._loop.call_later(CHECK_INTERVAL, self._check, until)

    def _check(self, until: float) -> None:
        """Resume if the connection was accepted by another, or was not in time."""
        is_ours = self._counts.is_fair(self._process)
        if not is_ours and is_readable(self._listening):
            if self._loop.time() < until:
                self._defer(until=until)
                return
            self._counts.ignore_lower(self._process)
            is_ours = True
        self._wait()
        if is_ours:
            self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            # another process was faster, or the client has disconnected
            return
        except OSError:
            # out of file descriptors
            self._loop.remove_reader(self._listening.fileno())
            self._timer = self._loop.call_later(RETRY_DELAY, self._wait)
            return
        connection.settimeout(0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._connect(connection))
        self._connecting.add(task)
        self.count()

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:
            connection.close()
        finally:
            self._connecting.discard(asyncio.current_task())
            self.count()
