"""A TCP proxy on loopback whose connections can be slowed, cut, silenced or robbed."""

import asyncio
import contextlib
import socket
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine
from typing import Any, Self
from urllib.parse import urlsplit

# makes closing a reset: the other side sees an error, not an orderly end
NO_LINGERING = struct.pack("ii", 1, 0)
CHUNK = 1 << 20

Trap = bytes | Callable[[bytes], bool]


class Proxy:
    """Passes everything on until told otherwise, by any thread and at any time."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self.target = (target_host, target_port)
        self.seconds = 0.0
        self.is_black_hole = False
        self.trap: Trap | None = None
        # or a test could mean to lose a reply and never do so
        self.lost_replies = 0
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._listener: asyncio.Server | None = None

    def __enter__(self) -> Self:
        # keeps the port ours while nothing listens on it
        self._reservation = bound_socket(port=0)
        self.port: int = self._reservation.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reservation.close()

    def via(self, url: str) -> str:
        """Lead a URL of the target through this proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    def delay(self, seconds: float) -> None:
        """Hold back each piece that passes, in either direction."""
        self.seconds = seconds

    def cut(self) -> None:
        """Reset all connections, and refuse new ones until mended."""
        self._do(self._cut())

    def black_hole(self) -> None:
        """Accept everything and pass nothing on, not even that a side has given up.

        A connection that was silenced stays silent when the proxy is mended.
        """
        self._do(self._silence())

    def lose_reply_after(self, trap: Trap) -> None:
        """Pass on the next message that has these bytes, in any case, but no reply.

        The connection is reset once the server has answered: it has done what it was
        asked for, and only the client cannot know.
        """
        self.trap = trap

    def mend(self) -> None:
        """Behave again; connections that are broken already stay broken."""
        self.seconds = 0.0
        self.is_black_hole = False
        self.trap = None
        self._do(self._listen())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(
                self._serve, sock=bound_socket(self.port), limit=CHUNK
            )

    async def _cut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        tasks = list(self._links.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _silence(self) -> None:
        self.is_black_hole = True
        for link in self._links:
            link.is_silent = True

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        link = Link(self, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._links[link] = task
        try:
            # or it was accepted just when the line was cut
            if self._listener is not None:
                await link.run()
        except* (OSError, ReplyLost, asyncio.CancelledError):
            # the last is how a line is cut
            pass
        finally:
            link.reset()
            del self._links[link]


class ReplyLost(Exception):
    pass


class Link:
    """A client's connection, and the one to the target that belongs to it."""

    def __init__(
        self, proxy: Proxy, reader: StreamReader, writer: StreamWriter
    ) -> None:
        self.is_silent = proxy.is_black_hole
        self._proxy = proxy
        self._client = reader, writer
        self._writers = [writer]
        self._last_chunk = b""
        self._is_losing_reply = False

    async def run(self) -> None:
        """Pass on both directions until both have ended, or one has failed."""
        from_client, to_client = self._client
        if self.is_silent:
            await self._swallow(from_client)
        from_server, to_server = await asyncio.open_connection(
            *self._proxy.target, limit=CHUNK
        )
        self._writers.append(to_server)
        async with asyncio.TaskGroup() as directions:
            directions.create_task(self._pass_requests(from_client, to_server))
            directions.create_task(self._pass_replies(from_server, to_client))
        for writer in self._writers:
            writer.close()
            await writer.wait_closed()

    def reset(self) -> None:
        """Close rudely what is still open."""
        for writer in self._writers:
            connection = writer.get_extra_info("socket")
            # it may be closed already
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
            writer.transport.abort()

    async def _pass_requests(self, reader: StreamReader, writer: StreamWriter) -> None:
        while chunk := await self._next_chunk(reader):
            if self._springs_trap(chunk):
                self._proxy.trap = None
                self._is_losing_reply = True
            self._last_chunk = chunk
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()

    async def _pass_replies(self, reader: StreamReader, writer: StreamWriter) -> None:
        while chunk := await self._next_chunk(reader):
            if self._is_losing_reply:
                self._proxy.lost_replies += 1
                raise ReplyLost
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()

    async def _next_chunk(self, reader: StreamReader) -> bytes:
        try:
            chunk = await reader.read(CHUNK)
        except OSError:
            if not self.is_silent:
                raise
            chunk = b""
        await asyncio.sleep(self._proxy.seconds)
        if self.is_silent:
            await self._swallow(reader)
        return chunk

    async def _swallow(self, reader: StreamReader) -> None:
        """Acknowledge whatever comes, until the line is cut."""
        with contextlib.suppress(OSError):
            while await reader.read(CHUNK):
                pass
        await asyncio.Event().wait()

    def _springs_trap(self, chunk: bytes) -> bool:
        trap = self._proxy.trap
        if trap is None:
            return False
        if callable(trap):
            return trap(chunk)
        # the bytes may lie across two pieces
        before = self._last_chunk[max(0, len(self._last_chunk) - len(trap) + 1) :]
        return trap.lower() in (before + chunk).lower()


def bound_socket(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound
