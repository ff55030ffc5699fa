"""Response heads that are encoded once and sent many times.

uvicorn processes every header of every response, which takes longer than a cache hit.
So the head of a cached response is encoded here and written with its body, past
uvicorn; what uvicorn does after a response is done in the same way. Which private parts
of uvicorn this uses, and what it gains, is in `docs/explanation/fast-path.md`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

# would end a header, or is not allowed in one
INVALID = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
STATUS_LINE, END = b"HTTP/1.1 200 OK\r\n", b"\r\n"


class ResponseHead(NamedTuple):
    """Headers, and the same encoded."""

    headers: Sequence[tuple[bytes, bytes]]
    text: bytes


def head_of(*headers: tuple[bytes, bytes]) -> ResponseHead:
    return ResponseHead(headers, encode_headers(headers))


def encode_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    lines = [b"%s: %s\r\n" % header for header in headers]
    for line in lines:
        if INVALID.search(line[:-2]):
            raise ValueError(f"a header cannot be {line!r}")
    return b"".join(lines)


def cycle_of(send: Send) -> RequestResponseCycle | None:
    """Return uvicorn's response cycle, if no middleware wraps its `send`.

    Connections that will be closed and slow clients are left to uvicorn, and all are
    if `api.fast_path` is off.
    """
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle):
        return None
    protocol = getattr(cycle.on_response, "__self__", None)
    if not getattr(protocol, "fast_path", False):
        return None
    return cycle if cycle.keep_alive and not cycle.flow.write_paused else None


def send_whole(cycle: RequestResponseCycle, head: bytes, body: bytes) -> None:
    """Send a response with status 200; `head` has no status line."""
    if cycle.disconnected:
        return
    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    defaults = encode_headers(cycle.default_headers)
    cycle.transport.write(b"".join((STATUS_LINE, defaults, head, END, body)))
    cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
