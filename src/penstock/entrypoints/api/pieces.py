"""What is written to a client at the same moment leaves in one piece.

uvicorn writes the head of an answer, and then its body. Each would be a packet of its
own, which takes almost as long again as all else; and a process that dies between the
two leaves an answer that has begun and never ends, where a proxy could have asked
another one.
"""

import asyncio
from typing import Any

# what all heads end with
BLANK_LINE = b"\r\n\r\n"


class Pieces:
    """A transport that waits with a head for what follows."""

    __slots__ = ("_first", "_loop", "_transport")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._first = b""

    def write(self, data: bytes) -> None:
        first = self._first
        if first:
            self._first = b""
            self._transport.writelines((first, data))
        elif data.endswith(BLANK_LINE):
            self._first = data
            # nothing may follow, or only later
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._first:
            first, self._first = self._first, b""
            if not self._transport.is_closing():
                self._transport.write(first)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
