"""A connection of a client, which is not waited for without end.

uvicorn reads the head of a request however long it is and however long it takes. Here
it has a time and a size, and there is a number of connections beyond which new ones are
sent away: whoever opens many, or sends a byte now and then, costs others nothing. Some
are kept for those who ask whether we are well.
"""

import asyncio
import resource
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.entrypoints.api.exchange import (
    LARGEST_HEADERS,
    LONGEST_TARGET,
    POLICY,
    SECURITY,
)
from penstock.entrypoints.api.heads import written
from penstock.entrypoints.api.pieces import Pieces
from penstock.entrypoints.api.problems import Problem
from penstock.errors import Misconfigured

# seconds in which the head of a request must come
LONGEST_HEAD = 10.0
# bytes of it; what fits is judged again, with a better answer
LARGEST_HEAD = 64 * 1024
MOST_CONNECTIONS = 10_000
# beyond them, for health only
FOR_HEALTH = 50
HEALTH = (b"/api/health", b"/api/ready")
# files that a process needs beside them, and for each thread that asks the database
OTHER_FILES, FILES_A_THREAD = 88, 6
# fewer than these serve nobody, and fewer than those are worth a word
FEWEST_CONNECTIONS, FEW_CONNECTIONS = 32, 1_000

# bytes of an address that can be taken apart; what is longer than others is refused
# with more words
LARGEST_URL = 60_000
NO_HTTP = Problem("bad-request", "what came is no HTTP")
URL_TOO_LONG = Problem("uri-too-long", f"at most {LONGEST_TARGET} bytes are read")
TOO_MANY = Problem("overloaded", "too many connections at once; ask again in a moment")
TOO_LARGE = Problem("headers-too-large", f"at most {LARGEST_HEADERS} bytes are read")
TOO_SLOW = Problem(
    "request-timeout", f"the head of a request must come within {LONGEST_HEAD:g} s"
)
AGAIN = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.REQUEST_TIMEOUT}


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections a process has, and how many more for health only."""

    connections: int
    for_health: int
    # files that it may open, where they are what limits it
    files: int | None = None


class Line(HttpToolsProtocol):
    """uvicorn's own, but for what it lets clients do."""

    # how many there may be; see `connection_limits`
    limits: ClassVar[Limits] = Limits(MOST_CONNECTIONS, FOR_HEALTH)
    # called when one is closed
    on_lost: ClassVar[Callable[[], None]] = staticmethod(lambda: None)
    # whether there were too many others when it was opened
    is_for_health = False
    # whether nothing is under way, and what comes is the head of a request
    awaits_head = True
    # whether the body of the last one has come, whose answer may be older
    has_body = True
    # when it began; None while nothing of it has come
    head_since: float | None = None
    head_bytes = 0

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        pieces: Any = Pieces(transport, self.loop)
        super().connection_made(pieces)
        self.head_since = self.loop.time()
        others = len(self.connections) - 1
        self.is_for_health = others >= self.limits.connections
        if others >= self.limits.connections + self.limits.for_health:
            self.send_away(TOO_MANY)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        Line.on_lost()

    @override
    def data_received(self, data: bytes) -> None:
        if self.awaits_head:
            if self.head_since is None:
                self.head_since = self.loop.time()
            self.head_bytes += len(data)
        super().data_received(data)
        # its end may have come with some of the body
        if self.awaits_head and self.head_bytes > LARGEST_HEAD:
            is_address = len(getattr(self, "url", b"")) > LONGEST_TARGET
            self.send_away(URL_TOO_LONG if is_address else TOO_LARGE)

    @override
    def on_headers_complete(self) -> None:
        self.awaits_head, self.head_since, self.head_bytes = False, None, 0
        self.has_body = False
        if len(self.url) > LARGEST_URL:
            raise ValueError("too long to be taken apart")
        if self.is_for_health and self.url not in HEALTH:
            self.app = too_many
        super().on_headers_complete()

    @override
    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.has_body = True
        self.awaits_head = self.cycle.response_complete

    @override
    def on_response_complete(self) -> None:
        # of a request that was refused early, the rest of its body may still come
        self.awaits_head = self.has_body
        super().on_response_complete()

    @override
    def send_400_response(self, msg: str) -> None:
        is_address = len(getattr(self, "url", b"")) > LARGEST_URL
        self.send_away(URL_TOO_LONG if is_address else NO_HTTP)

    def send_away(self, problem: Problem) -> None:
        if not self.transport.is_closing():
            self.transport.write(written_out(problem))
            self.transport.close()


async def too_many(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer whoever comes by a connection that is kept for others."""
    response = refusal_of(TOO_MANY, instance=scope["path"])
    await response(scope, receive, send)


def refusal_of(problem: Problem, *, instance: str = "") -> Response:
    """Return a problem of which no request is told, as it ends its connection."""
    trace_id = secrets.token_hex(16)
    response = problem.response(trace_id=trace_id, instance=instance)
    again = {"retry-after": "1"} if problem.status in AGAIN else {}
    for name, value in {**again, "connection": "close", "x-trace-id": trace_id}.items():
        response.headers[name] = value
    response.raw_headers += [*SECURITY, POLICY]
    return response


def written_out(problem: Problem) -> bytes:
    """Write an answer where there is no request to be answered."""
    response = refusal_of(problem)
    phrase = HTTPStatus(problem.status).phrase
    head = f"HTTP/1.1 {problem.status} {phrase}\r\n".encode()
    return b"".join([head, written(response.raw_headers), b"\r\n", response.body])


def connection_limits(threads: int) -> Limits:
    """Let this process open as many files as it may, and divide them.

    Raises `Misconfigured` where they are too few to serve anybody.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = OTHER_FILES + FILES_A_THREAD * threads
    wanted = MOST_CONNECTIONS + FOR_HEALTH + others
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    left = files - others
    for_health = min(FOR_HEALTH, left // 4)
    connections = left - for_health
    if connections < FEWEST_CONNECTIONS:
        least = others + 2 * FEWEST_CONNECTIONS
        raise Misconfigured(
            f"this process may open {files} files, and needs {others} beside its "
            f"connections; allow it {least} at least (ulimit -n, LimitNOFILE of "
            "systemd), or give it fewer --threads"
        )
    is_few = connections < FEW_CONNECTIONS
    return Limits(connections, for_health, files if is_few else None)


async def hurry(state: ServerState) -> None:
    """Send those away who do not come to the end of what they ask."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(1)
        now = loop.time()
        lines: list[Any] = [*state.connections]
        for line in lines:
            since = getattr(line, "head_since", None)
            if since is not None and now - since > LONGEST_HEAD:
                line.send_away(TOO_SLOW)
