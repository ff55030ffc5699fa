"""HTTP connections with a deadline for a complete exchange.

A socket's own timeout restarts with every byte: a server that sends one now and then
would outlast any lease and any limit.
"""

import http.client
import io
import socket
from http import HTTPStatus
from time import monotonic
from typing import Any, ClassVar

import urllib3
from typing_extensions import Buffer, override
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

CHUNK = 64 * 1024
# interim responses; 101 is a final one, which is never requested
INFORMATIONAL = frozenset(range(100, 200)) - {HTTPStatus.SWITCHING_PROTOCOLS}


def timed_pools(**options: Any) -> urllib3.PoolManager:
    """Return pools that apply `Timeout(total=…)` from the first byte to the last."""
    pools = urllib3.PoolManager(**options)
    pools.pool_classes_by_scheme = {"http": TimedPool, "https": TimedSecurePool}
    return pools


class DeadlineSocketIO(io.RawIOBase):
    """A raw socket stream whose reads all end at one deadline.

    With `silence`, no single read waits longer than that.
    """

    def __init__(
        self, raw: io.RawIOBase, sock: socket.socket, silence: float | None = None
    ) -> None:
        self._raw = raw
        self._sock = sock
        self._silence = silence
        # urllib3 has just set the remaining time of the exchange
        timeout = sock.gettimeout()
        self._deadline = None if timeout is None else monotonic() + timeout

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Buffer) -> int | None:
        if self._deadline is not None:
            remaining = self._deadline - monotonic()
            if remaining <= 0:
                raise TimeoutError
            self._sock.settimeout(min(remaining, self._silence or remaining))
        return self._raw.readinto(buffer)

    @override
    def close(self) -> None:
        self._raw.close()
        super().close()


class TimedResponse(http.client.HTTPResponse):
    # seconds for which a server may send nothing
    silence: ClassVar[float | None] = None

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        limited = DeadlineSocketIO(self.fp.detach(), sock, self.silence)
        self.fp = io.BufferedReader(limited, CHUNK)

    @override
    def begin(self) -> None:
        """Read the head of the response, and skip interim responses.

        The standard library skips 100 and takes 103 for the response.
        """
        super().begin()
        while self.status in INFORMATIONAL:
            # else it assumes that the head was read
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()


class TimedConnection(HTTPConnection):
    response_class = TimedResponse


class TimedSecureConnection(HTTPSConnection):
    response_class = TimedResponse


class TimedPool(HTTPConnectionPool):
    ConnectionCls = TimedConnection


class TimedSecurePool(HTTPSConnectionPool):
    ConnectionCls = TimedSecureConnection
