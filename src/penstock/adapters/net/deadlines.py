"""Connections on which a whole exchange ends within one time.

A socket's own timeout begins anew with every byte: whoever sends one now and then
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
# responses before the response; 101 is one by itself, and nobody asked for it
INFORMATIONAL = frozenset(range(100, 200)) - {HTTPStatus.SWITCHING_PROTOCOLS}


def timed_pools(**options: Any) -> urllib3.PoolManager:
    """Return pools that hold `Timeout(total=…)` from the first byte to the last."""
    pools = urllib3.PoolManager(**options)
    pools.pool_classes_by_scheme = {"http": TimedPool, "https": TimedSecurePool}
    return pools


class UntilDeadline(io.RawIOBase):
    """A socket's bytes, each wait for which ends at one common deadline.

    Where a silence is given, none lasts longer than that.
    """

    def __init__(
        self, raw: io.RawIOBase, sock: socket.socket, silence: float | None = None
    ) -> None:
        self._raw = raw
        self._sock = sock
        self._silence = silence
        # urllib3 has just set what remains of the whole exchange
        allowed = sock.gettimeout()
        self._deadline = None if allowed is None else monotonic() + allowed

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
    # how long a server may say nothing, in seconds
    silence: ClassVar[float | None] = None

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        timed = UntilDeadline(self.fp.detach(), sock, self.silence)
        self.fp = io.BufferedReader(timed, CHUNK)

    @override
    def begin(self) -> None:
        """Read the head of the response, past those that only announce it.

        The standard library passes 100 by and takes 103 for the response.
        """
        super().begin()
        while self.status in INFORMATIONAL:
            # or it believes that the head was read
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
