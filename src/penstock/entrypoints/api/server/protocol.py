"""An HTTP protocol with limits for clients that are slow or open many connections.

uvicorn reads the head of a request however long it is and however long it takes. Here
both are limited, and connections beyond a number are refused, so that such clients do
not affect others. Some connections are reserved for health checks.
"""

import asyncio
import resource
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.request_context import (
    MAX_HEADER_BYTES,
    MAX_TARGET_LENGTH,
    POLICY,
    SECURITY,
)
from penstock.entrypoints.api.server.prebuilt_head import encode_headers
from penstock.errors import Misconfigured

# seconds in which the head of a request must be complete
HEAD_TIMEOUT = 10.0
# seconds in which a client may go on sending a body after an early response
LINGER_TIMEOUT = 5.0
# bytes of a head; the lower limits of `RequestContext` give better messages
MAX_HEAD_BYTES = 64 * 1024
MAX_CONNECTIONS = 10_000
# in addition, for health checks only
HEALTH_CONNECTIONS = 50
HEALTH_PATHS = (b"/api/health", b"/api/ready")
# file descriptors of a process beside connections, and per thread that uses a database
OTHER_FILES, FILES_PER_THREAD = 88, 6
# fewer than the first are an error, fewer than the second an event
MIN_CONNECTIONS, FEW_CONNECTIONS = 32, 1_000

# bytes of a URL that httptools can parse
MAX_URL_BYTES = 60_000
NOT_HTTP = Problem("bad-request", "the request is not valid HTTP")
URL_TOO_LONG = Problem("uri-too-long", f"at most {MAX_TARGET_LENGTH} bytes are read")
TOO_MANY = Problem("overloaded", "too many connections at once; try again in a moment")
TOO_LARGE = Problem("headers-too-large", f"at most {MAX_HEADER_BYTES} bytes are read")
TOO_SLOW = Problem(
    "request-timeout", f"the head of a request must be sent within {HEAD_TIMEOUT:g} s"
)
RETRYABLE = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.REQUEST_TIMEOUT}


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections a process accepts, and how many more for health checks."""

    connections: int
    for_health: int
    # how many files it may open, if that is the limit
    files: int | None = None


class LingeringTransport:
    """The transport of a response that may be complete before its request is.

    If the connection is closed while the client is sending, the client gets an error of
    its socket, often before it has read the response.
    """

    def __init__(self, protocol: "LimitedHttpProtocol") -> None:
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol.transport, name)

    def close(self) -> None:
        if self._protocol.has_body:
            self._protocol.transport.close()
        else:
            self._protocol.linger()


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits."""

    # see `connection_limits`
    limits: ClassVar[ConnectionLimits] = ConnectionLimits(
        MAX_CONNECTIONS, HEALTH_CONNECTIONS
    )
    # see `docs/explanation/fast-path.md`
    fast_path: ClassVar[bool] = True
    # called when a connection is closed
    on_lost: ClassVar[Callable[[], None]] = staticmethod(lambda: None)
    # whether the limit was reached when it was opened
    is_for_health = False
    had_request = False
    # whether no request is in progress, and received data is the head of the next
    awaits_head = True
    # whether the body of the last request is complete; it may be after its response
    has_body = True
    # done when the connection is closed whose last response is sent; what still comes
    # of the body is ignored until then
    lingers: asyncio.Future[None] | None = None
    # when the first byte of the head was received
    head_since: float | None = None
    head_bytes = 0

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.head_since = self.loop.time()
        others = len(self.connections) - 1
        self.is_for_health = others >= self.limits.connections
        if others >= self.limits.connections + self.limits.for_health:
            self.refuse(TOO_MANY)

    @property
    def awaits_first_request(self) -> bool:
        return not self.had_request and not self.transport.is_closing()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.lingers is not None and not self.lingers.done():
            self.lingers.set_result(None)
        LimitedHttpProtocol.on_lost()

    @override
    def data_received(self, data: bytes) -> None:
        if self.lingers is not None:
            return
        if self.awaits_head:
            if self.head_since is None:
                self.head_since = self.loop.time()
            self.head_bytes += len(data)
        super().data_received(data)
        # checked after parsing, as data may contain the end of the head and some body
        if self.awaits_head and self.head_bytes > MAX_HEAD_BYTES:
            is_long_url = len(getattr(self, "url", b"")) > MAX_TARGET_LENGTH
            self.refuse(URL_TOO_LONG if is_long_url else TOO_LARGE)

    @override
    def on_headers_complete(self) -> None:
        self.awaits_head, self.head_since, self.head_bytes = False, None, 0
        self.had_request = True
        self.has_body = False
        if len(self.url) > MAX_URL_BYTES:
            raise ValueError("too long to be parsed")
        if self.is_for_health and self.url not in HEALTH_PATHS:
            self.app = refuse_connection
        super().on_headers_complete()
        if self.scope["method"] not in ("GET", "HEAD"):
            self.cycle.transport = cast("asyncio.Transport", LingeringTransport(self))

    @override
    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.has_body = True
        self.awaits_head = self.cycle.response_complete

    @override
    def on_response_complete(self) -> None:
        # after an early response, the rest of the body may still be received
        self.awaits_head = self.has_body
        super().on_response_complete()

    def linger(self) -> None:
        """End the response, and ignore what still comes of its request for a while."""
        self.lingers = self.loop.create_future()
        self.transport.write_eof()
        self.loop.call_later(LINGER_TIMEOUT, self.transport.close)

    async def lingering(self) -> None:
        """Wait until the connection is closed, if it lingers."""
        if self.lingers is not None:
            await self.lingers

    @override
    def shutdown(self) -> None:
        if self.lingers is None:
            super().shutdown()

    @override
    def send_400_response(self, msg: str) -> None:
        is_long_url = len(getattr(self, "url", b"")) > MAX_URL_BYTES
        self.refuse(URL_TOO_LONG if is_long_url else NOT_HTTP)

    def refuse(self, problem: Problem) -> None:
        if not self.transport.is_closing():
            self.transport.write(encode_refusal(problem))
            self.transport.close()


async def refuse_connection(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request on a connection that is reserved for health checks."""
    response = refusal_of(TOO_MANY, instance=scope["path"])
    await response(scope, receive, send)


def refusal_of(problem: Problem, *, instance: str = "") -> Response:
    """Return the response of a problem that closes the connection."""
    trace_id = secrets.token_hex(16)
    response = problem.response(trace_id=trace_id, instance=instance)
    retry = {"retry-after": "1"} if problem.status in RETRYABLE else {}
    for name, value in {**retry, "connection": "close", "x-trace-id": trace_id}.items():
        response.headers[name] = value
    response.raw_headers += [*SECURITY, POLICY]
    return response


def encode_refusal(problem: Problem) -> bytes:
    """Encode a response for a connection without a complete request."""
    response = refusal_of(problem)
    phrase = HTTPStatus(problem.status).phrase
    head = f"HTTP/1.1 {problem.status} {phrase}\r\n".encode()
    return b"".join(
        [head, encode_headers(response.raw_headers), b"\r\n", response.body]
    )


def connection_limits(threads: int) -> ConnectionLimits:
    """Raise the limit of open files as needed, and divide them among connections.

    Raises `Misconfigured` if there are too few.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = OTHER_FILES + FILES_PER_THREAD * threads
    needed = MAX_CONNECTIONS + HEALTH_CONNECTIONS + others
    files = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    left = files - others
    for_health = min(HEALTH_CONNECTIONS, left // 4)
    connections = left - for_health
    if connections < MIN_CONNECTIONS:
        least = others + 2 * MIN_CONNECTIONS
        raise Misconfigured(
            f"this process may open {files} files, and needs {others} beside its "
            f"connections; allow it {least} at least (ulimit -n, LimitNOFILE of "
            "systemd), or give it fewer --threads"
        )
    is_few = connections < FEW_CONNECTIONS
    return ConnectionLimits(connections, for_health, files if is_few else None)


async def close_slow_clients(state: ServerState) -> None:
    """Refuse clients that do not complete the head of a request in time."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(1)
        now = loop.time()
        connections: list[Any] = [*state.connections]
        for connection in connections:
            since = getattr(connection, "head_since", None)
            if since is not None and now - since > HEAD_TIMEOUT:
                connection.refuse(TOO_SLOW)
