"""The HTTP server of the sandbox provider."""

import gzip
import logging
import socket
import struct
import sys
from collections.abc import Mapping
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from time import monotonic
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

from penstock.sandbox.faults import InjectedFault
from penstock.sandbox.messages import (
    JSON,
    SandboxRequest,
    SandboxResponse,
    SandboxStream,
    parse_parameters,
)
from penstock.sandbox.options import SandboxOptions
from penstock.sandbox.provider import OWN_PATHS, Provider
from penstock.sandbox.request_log import LoggedRequest

LOOPBACK = "127.0.0.1"
MIN_COMPRESSED_BYTES = 1024

_log = logging.getLogger(__name__)


class Sandbox:
    """A sandbox provider that runs in a thread of this process."""

    def __init__(
        self,
        options: SandboxOptions | None = None,
        *,
        host: str = LOOPBACK,
        port: int = 0,
    ) -> None:
        self._provider = Provider(options or SandboxOptions())
        self._server = _Server((host, port), self._provider)
        self._thread = Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="sandbox",
            daemon=True,
        )

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop listening and close every open connection."""
        self._server.stopping.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.close_connections()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """The URL without a path: `http://127.0.0.1:PORT`."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def url(self) -> str:
        """The URL of the points, as in the API of Open Charge Map."""
        return f"{self.base_url}/v3/poi/"

    @property
    def requests(self) -> list[LoggedRequest]:
        """Every request so far, in the order of arrival."""
        return self._provider.log.read()

    @property
    def tokens_issued(self) -> int:
        return self._provider.access.tokens_issued

    def expected(
        self, countries: list[int] | None = None, *, compact: bool = True
    ) -> dict[int, dict[str, Any]]:
        """Return each point by id, as a client without faults sees it."""
        return self._provider.catalogue.expected(countries, compact=compact)

    def flaws(self) -> dict[int, str]:
        """Return what is wrong with each invalid point, by id."""
        return self._provider.catalogue.flaws()

    def edit(self, point_id: int, changes: Mapping[str, Any] | None = None) -> None:
        """Change fields by dotted path, by default the title, as of now."""
        self._provider.catalogue.edit(point_id, changes)

    def remove(self, point_id: int) -> None:
        self._provider.catalogue.remove(point_id)

    def add(self) -> int:
        """Add a point and return its id."""
        return self._provider.catalogue.add()

    def forget_requests(self) -> None:
        self._provider.log.clear()


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def __init__(self, address: tuple[str, int], provider: Provider) -> None:
        self.provider = provider
        self.stopping = Event()
        self._connections: set[socket.socket] = set()
        self._lock = Lock()
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        with self._lock:
            self._connections.add(connection)
        return connection, address

    def close_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().close_request(request)

    def close_connections(self) -> None:
        """End the threads that wait for the next request on a keep-alive connection."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                _log.debug("a connection was closed already: %s", error)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class decides
        error = sys.exception()
        if isinstance(error, ConnectionError):
            _log.debug("a client disconnected: %s", error)
        else:
            _log.error("the sandbox failed on a request", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    """One connection, kept open over many requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._handle_request()

    def do_POST(self) -> None:
        self._handle_request()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        _log.debug(format, *args)

    def _handle_request(self) -> None:
        request = self._read()
        server = cast("_Server", self.server)
        provider = server.provider
        if request.path.startswith(OWN_PATHS):
            own = provider.respond_about_sandbox(request)
            if isinstance(own, SandboxStream):
                self._stream(own)
            else:
                self._send(own, request)
            return
        response = provider.respond(request)
        wait = provider.options.latency
        if response.fault is InjectedFault.SLOW:
            wait += provider.options.slow
        if wait:
            server.stopping.wait(wait.total_seconds())
        if response.fault is InjectedFault.RESET:
            self._reset()
        else:
            self._send(response, request)

    def _read(self) -> SandboxRequest:
        at = monotonic()
        address = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = headers.get("content-length", "0")
        return SandboxRequest(
            at=at,
            method=self.command,
            path=address.path,
            parameters=parse_parameters(address.query),
            headers=headers,
            body=self.rfile.read(int(length)) if length.isdecimal() else b"",
        )

    def _send(self, response: SandboxResponse, request: SandboxRequest) -> None:
        body = response.body
        headers = {"Content-Type": response.content_type, **response.headers}
        accepted = "gzip" in request.headers.get("accept-encoding", "")
        options = cast("_Server", self.server).provider.options
        if options.gzip and accepted and len(body) >= MIN_COMPRESSED_BYTES:
            body = gzip.compress(body, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(body))
        if response.cut:
            body = body[: len(body) // 2]
            self.close_connection = True
        self.connection.sendall(self._head(response.status, headers) + body)

    def _stream(self, stream: SandboxStream) -> None:
        head = {"Content-Type": JSON, "Transfer-Encoding": "chunked"}
        self.connection.sendall(self._head(200, head))
        for chunk in stream.chunks:
            self.connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self.connection.sendall(b"0\r\n\r\n")

    def _head(self, status: int, headers: Mapping[str, str]) -> bytes:
        # By hand: head and body are sent in one packet, with the sandbox's own clock.
        now = cast("_Server", self.server).provider.catalogue.now()
        lines = [
            f"HTTP/1.1 {status} {self.responses[status][0]}",
            f"Date: {format_datetime(now, usegmt=True)}",
            "Server: sandbox",
            *(f"{name}: {value}" for name, value in headers.items()),
            "Connection: close" if self.close_connection else "Connection: keep-alive",
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _reset(self) -> None:
        """Close the connection so that the client sees a reset, not an end."""
        self.close_connection = True
        # With a linger time of zero, unsent data is dropped and RST is sent.
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.rfile.close()
        self.connection.close()
