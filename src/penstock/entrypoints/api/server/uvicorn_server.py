"""The API server with graceful shutdown.

First the process reports that it is not ready, and continues to serve: a load balancer
needs a moment to notice. Then it stops accepting, which fails no connection that was
made, ends long polls and streams, finishes the requests in progress, and exits.
"""

import asyncio
import socket
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple, cast

import uvicorn
from typing_extensions import override

from penstock.domain.events import ConnectionsLimited
from penstock.entrypoints.api.app import build_app
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.server.accept_balancing import Acceptor, ConnectionCounts
from penstock.entrypoints.api.server.draining import drain
from penstock.entrypoints.api.server.protocol import (
    LimitedHttpProtocol,
    close_slow_clients,
    connection_limits,
)

# seconds for requests in progress; a write has 10, and its body some more
SHUTDOWN_TIMEOUT = 15
# seconds; longer than that of proxies, which should close idle connections first
KEEP_ALIVE_TIMEOUT = 75
BACKLOG = 2048


class ProcessShare(NamedTuple):
    """The number of this process among several, and their connection counts."""

    counts: ConnectionCounts
    process: int


def serve_api(
    api: AppContext,
    listening: socket.socket,
    *,
    grace: float,
    on_ready: Callable[[], None],
    on_stop: Callable[[], None] = lambda: None,
    share: ProcessShare | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; a second one skips the grace period."""
    LimitedHttpProtocol.fast_path = api.penstock.settings.api.fast_path
    LimitedHttpProtocol.limits = connection_limits(api.lanes.threads)
    if LimitedHttpProtocol.limits.files is not None:
        api.penstock.emit(
            ConnectionsLimited(
                files=LimitedHttpProtocol.limits.files,
                connections=LimitedHttpProtocol.limits.connections,
            )
        )
    config = uvicorn.Config(
        build_app(api),
        http=LimitedHttpProtocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        # the application emits events instead
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        # see `client_identity`
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_TIMEOUT,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
    )
    server = GracefulServer(
        config, api, listening, grace=grace, on_ready=on_ready, on_stop=on_stop
    )
    server.share = share
    server.run(sockets=[listening] if share is None else [])


class GracefulServer(uvicorn.Server):
    # if other processes accept from the socket as well
    share: ProcessShare | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        api: AppContext,
        listening: socket.socket,
        *,
        grace: float,
        on_ready: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._api = api
        self._listening = listening
        self._grace = grace
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slow_client_task: asyncio.Task[None] | None = None

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            if self.share is not None:
                self._accept_shared(self.share)
            self._slow_client_task = asyncio.create_task(
                close_slow_clients(self.server_state)
            )
            self._on_ready()

    def _accept_shared(self, share: ProcessShare) -> None:
        acceptor = Acceptor(
            self._listening,
            *share,
            state=self.server_state,
            protocol=lambda: LimitedHttpProtocol(
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            ),
        )
        LimitedHttpProtocol.on_lost = acceptor.count
        acceptor.open()
        # uvicorn closes it when the process stops
        self.servers.append(cast("asyncio.Server", acceptor))

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await drain([self._listening], self._connections)
        await super().shutdown(sockets)
        # clients of early responses may still be sending
        await asyncio.gather(*(line.lingering() for line in self._connections()))

    def _connections(self) -> list[LimitedHttpProtocol]:
        # uvicorn's types name its own protocols
        return cast("list[LimitedHttpProtocol]", [*self.server_state.connections])

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # a signal handler interrupts the event loop anywhere
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Stop after the grace period; a second call stops now."""
        if self._api.is_stopping:
            self._stop_now()
            return
        self._api.stop()
        asyncio.get_running_loop().call_later(self._grace, self._stop_now)
        self._on_stop()

    def _stop_now(self) -> None:
        self._api.close()
        self.should_exit = True
