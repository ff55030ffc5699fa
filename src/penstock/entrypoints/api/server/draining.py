"""Closing a socket without failing the connections that the kernel has accepted for it.

The kernel completes connections before a process accepts them, and resets those that
still wait when the socket is closed. So new ones are kept away first: packets that open
a connection are dropped, and their sender tries again, and finds the socket closed.
Then what waits is accepted, and gets a moment for its first request.
"""

import asyncio
import contextlib
import ctypes
import select
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Protocol

# Linux's, which Python does not name
SO_ATTACH_FILTER = 26
# byte 13 of a TCP header has the flags; a packet with SYN is dropped
DROP_SYN = [
    (0x30, 0, 0, 13),
    (0x45, 0, 1, 0x02),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0xFFFF_FFFF),
]
# seconds for the backlog and first requests, and between two checks
DRAIN_TIMEOUT, CHECK_INTERVAL = 1.0, 0.005


class Drainable(Protocol):
    @property
    def awaits_first_request(self) -> bool: ...


async def drain(
    listeners: Iterable[socket.socket], connections: Callable[[], Iterable[Drainable]]
) -> None:
    """Let no new connections in, and wait until those that are in have a request."""
    listeners = [*listeners]
    for listening in listeners:
        drop_new_connections(listening)
    loop = asyncio.get_running_loop()
    until = loop.time() + DRAIN_TIMEOUT
    while loop.time() < until:
        # even if nothing waits, some may be accepted and not yet among the connections
        await asyncio.sleep(CHECK_INTERVAL)
        if not any(map(is_readable, listeners)) and not any(
            connection.awaits_first_request for connection in connections()
        ):
            return


def drop_new_connections(listening: socket.socket) -> None:
    """Drop packets that open a connection, where the system can do that."""
    code = b"".join(struct.pack("HBBI", *line) for line in DROP_SYN)
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HP", len(DROP_SYN), ctypes.addressof(buffer))
    with contextlib.suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def is_readable(listening: socket.socket) -> bool:
    """Return whether a connection waits to be accepted."""
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    return bool(poll.poll(0))
