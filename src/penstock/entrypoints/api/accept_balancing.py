"""Accept connections of a socket that several processes share, each its part of them.

The processes share one queue, so that one that dies takes no connection along that
nobody has accepted. The kernel would wake any of them, which is mostly the same one;
here a process that has more connections than another leaves the next one to that. If
the other does not take it in a moment, because it hangs or has just died, it does, and
waits for that one no more until its count changes.
"""

import asyncio
import mmap
import select
import socket
from collections.abc import Callable
from pathlib import Path

from uvicorn.server import ServerState

# of a process that accepts nothing: it has not begun, or has ended
CLOSED = 2**32 - 1
# seconds between two looks whether another has taken a connection, and how long it may
# take for that
LOOK_EVERY, LONGEST_DEFERRAL = 0.001, 0.05
# seconds after which a process that has no file left for a connection tries again
REST = 0.1
# a process may have so many more than another, or this part of its own
FEW_MORE, SHARE_MORE = 4, 8


class ConnectionCounts:
    """How many connections each process has, in memory that all of them share."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._counts = memoryview(self._memory).cast("I")
        # the counts of processes that have left a connection in the queue
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
        """Say whether a process may have one more, as others have not far fewer."""
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
            # who has none comes first
            return mine == 0
        return mine <= least + max(FEW_MORE, mine // SHARE_MORE)

    def ignore_lower(self, process: int) -> None:
        """Wait no more for processes that have fewer, until their counts change.

        One that hangs keeps its count, and would delay every connection of the others.
        """
        mine = self._counts[process]
        self._stalled = {
            number: count for number, count in enumerate(self._counts) if count < mine
        }


class Acceptor:
    """Accepts for one process; uvicorn closes it like a server of its own."""

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
        # accepted, and not yet among the connections
        self._connecting: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = True

    def open(self) -> None:
        self.count()
        self._wait()

    def close(self) -> None:
        """Accept no more; what is in the queue is for others."""
        if self._is_open:
            self._is_open = False
            self._counts.close(self._process)
            self._loop.remove_reader(self._listening.fileno())
            if self._timer is not None:
                self._timer.cancel()
            self._listening.close()

    async def wait_closed(self) -> None:
        """Return at once: its connections are waited for by themselves."""

    def count(self) -> None:
        """Tell the others how many connections there are."""
        if self._is_open:
            held = len(self._state.connections) + len(self._connecting)
            self._counts.set(self._process, held)

    def _wait(self) -> None:
        self._loop.add_reader(self._listening.fileno(), self._on_ready)

    def _on_ready(self) -> None:
        if self._counts.is_fair(self._process):
            self._accept()
        else:
            self._loop.remove_reader(self._listening.fileno())
            self._defer(until=self._loop.time() + LONGEST_DEFERRAL)

    def _defer(self, *, until: float) -> None:
        self._timer = self._loop.call_later(LOOK_EVERY, self._look, until)

    def _look(self, until: float) -> None:
        """Go on if the connection is gone, or has been left to another in vain."""
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
            # another was faster, or the client has gone
            return
        except OSError:
            # no file is left for it
            self._loop.remove_reader(self._listening.fileno())
            self._timer = self._loop.call_later(REST, self._wait)
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


def is_readable(listening: socket.socket) -> bool:
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    return bool(poll.poll(0))
