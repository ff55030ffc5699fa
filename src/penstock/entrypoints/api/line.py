"""A connection of a client, which is not waited for without end.

uvicorn reads the head of a request however long it is and however long it takes. Here
it has a time and a size, and there is a number of connections beyond which new ones are
sent away: whoever opens many, or sends a byte now and then, costs others nothing. Some
are kept for those who ask whether we are well.
"""

import asyncio
import resource
from functools import lru_cache
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.entrypoints.api.pieces import Pieces

# seconds in which the head of a request must come
LONGEST_HEAD = 10.0
# bytes of it; what fits is judged again, with a better answer
LARGEST_HEAD = 64 * 1024
MOST_CONNECTIONS = 10_000
# beyond them, for health only
FOR_HEALTH = 50
HEALTH = (b"/api/health", b"/api/ready")
# files that a process needs beside them
OTHER_FILES = 250

SENT_AWAY = (
    b"HTTP/1.1 %s\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
TOO_MANY = SENT_AWAY % b"503 Service Unavailable"
TOO_LARGE = SENT_AWAY % b"431 Request Header Fields Too Large"
TOO_SLOW = SENT_AWAY % b"408 Request Timeout"


class Line(HttpToolsProtocol):
    """uvicorn's own, but for what it lets clients do."""

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
        self.is_for_health = others >= most_connections()
        if others >= most_connections() + FOR_HEALTH:
            self.send_away(TOO_MANY)

    @override
    def data_received(self, data: bytes) -> None:
        if self.awaits_head:
            if self.head_since is None:
                self.head_since = self.loop.time()
            self.head_bytes += len(data)
        super().data_received(data)
        # its end may have come with some of the body
        if self.awaits_head and self.head_bytes > LARGEST_HEAD:
            self.send_away(TOO_LARGE)

    @override
    def on_headers_complete(self) -> None:
        self.awaits_head, self.head_since, self.head_bytes = False, None, 0
        self.has_body = False
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

    def send_away(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


async def too_many(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer whoever comes by a connection that is kept for others."""
    headers = {"retry-after": "1", "connection": "close"}
    await Response(status_code=503, headers=headers)(scope, receive, send)


@lru_cache
def most_connections() -> int:
    """Return how many connections this process may have, by the files it may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + FOR_HEALTH + OTHER_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    most = max(soft, allowed) - FOR_HEALTH - OTHER_FILES
    return max(1, min(MOST_CONNECTIONS, most))


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
