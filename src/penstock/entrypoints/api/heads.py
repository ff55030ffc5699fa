"""Heads of answers that are written once, and sent as often as they are asked for.

uvicorn looks at every header of every answer, which takes longer than to find an answer
that is kept. So the head of such a one is written here, and leaves with its body; what
uvicorn does when an answer has been sent is done as it would have been.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

# what would be the end of a header, or is none
ODD = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
BEGINNING, END = b"HTTP/1.1 200 OK\r\n", b"\r\n"


class Head(NamedTuple):
    """Headers, and the same as they are sent."""

    headers: Sequence[tuple[bytes, bytes]]
    text: bytes


def head_of(*headers: tuple[bytes, bytes]) -> Head:
    return Head(headers, written(headers))


def written(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write headers as they are sent."""
    told = [b"%s: %s\r\n" % header for header in headers]
    for each in told:
        if ODD.search(each[:-2]):
            raise ValueError(f"a header cannot be {each!r}")
    return b"".join(told)


def cycle_of(send: Send) -> RequestResponseCycle | None:
    """Return what uvicorn answers with, if nobody stands between it and us.

    A connection that will be closed is left to it, and a client that is slow.
    """
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle):
        return None
    return cycle if cycle.keep_alive and not cycle.flow.write_paused else None


def send_whole(cycle: RequestResponseCycle, head: bytes, body: bytes) -> None:
    """Send a good answer at once: its head without the first line, and its body."""
    if cycle.disconnected:
        return
    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    usual = written(cycle.default_headers)
    cycle.transport.write(b"".join((BEGINNING, usual, head, END, body)))
    cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
