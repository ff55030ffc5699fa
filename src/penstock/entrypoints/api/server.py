"""Serve the API on a socket until asked to stop, and then stop without hurting anyone.

First the process says that it is not ready, and goes on: whoever sends requests here
needs a moment to hear of it. Then it accepts no more, ends what only waits for news,
finishes what is under way, and closes.
"""

import asyncio
import socket
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple, cast

import uvicorn
from typing_extensions import override

from penstock.domain.events import ConnectionsLimited
from penstock.entrypoints.api.accept_balancing import Acceptor, ConnectionCounts
from penstock.entrypoints.api.app import app_of
from penstock.entrypoints.api.line import Line, connection_limits, hurry
from penstock.entrypoints.api.service import Api

# seconds that requests under way get to finish; a write has 10, and its body some more
LONGEST_END = 15
# seconds after which an idle connection is closed; proxies give theirs up before
LONGEST_IDLE = 75
BACKLOG = 2048


class Share(NamedTuple):
    """Which of several processes this is, and what they know of each other."""

    counts: ConnectionCounts
    process: int


def serve_api(
    api: Api,
    listening: socket.socket,
    *,
    grace: float,
    on_ready: Callable[[], None],
    on_stop: Callable[[], None] = lambda: None,
    share: Share | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; a second one does not wait for the grace."""
    Line.limits = connection_limits(api.lanes.threads)
    if Line.limits.files is not None:
        api.penstock.emit(
            ConnectionsLimited(
                files=Line.limits.files, connections=Line.limits.connections
            )
        )
    config = uvicorn.Config(
        app_of(api),
        http=Line,
        loop="uvloop",
        ws="none",
        lifespan="on",
        # what is worth telling is told as events
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        # who is believed to be a proxy is ours to say
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=LONGEST_IDLE,
        timeout_graceful_shutdown=LONGEST_END,
    )
    server = Server(config, api, grace=grace, on_ready=on_ready, on_stop=on_stop)
    if share is None:
        server.run(sockets=[listening])
    else:
        server.shared = (listening, share)
        server.run(sockets=[])


class Server(uvicorn.Server):
    # a socket that other processes accept from as well
    shared: tuple[socket.socket, Share] | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        api: Api,
        *,
        grace: float,
        on_ready: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._api = api
        self._grace = grace
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hurrying: asyncio.Task[None] | None = None

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            if self.shared is not None:
                self._accept_beside_others(*self.shared)
            self._hurrying = asyncio.create_task(hurry(self.server_state))
            self._on_ready()

    def _accept_beside_others(self, listening: socket.socket, share: Share) -> None:
        acceptor = Acceptor(
            listening,
            *share,
            state=self.server_state,
            protocol=lambda: Line(
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            ),
        )
        Line.on_lost = acceptor.count
        acceptor.open()
        # closed with the others when the process stops
        self.servers.append(cast("asyncio.Server", acceptor))

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # in the middle of whatever this thread does
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Stop after the grace; asked again, stop now."""
        if self._api.is_stopping:
            self._stop_now()
            return
        self._api.stop()
        asyncio.get_running_loop().call_later(self._grace, self._stop_now)
        self._on_stop()

    def _stop_now(self) -> None:
        self._api.close()
        self.should_exit = True
