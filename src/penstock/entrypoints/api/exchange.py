"""One request and its answer, as long as both are under way."""

import itertools
import re
import secrets
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from starlette.types import Message, Scope, Send

from penstock.entrypoints.api.heads import Head, cycle_of, send_whole, written
from penstock.entrypoints.api.problems import Problem

if TYPE_CHECKING:
    from penstock.entrypoints.api.bodies import Bodies
    from penstock.entrypoints.api.metrics import Meter

LONGEST_TARGET = 8_192
LARGEST_HEADERS = 16_384
MOST_HEADERS = 100
# whoever sends two of them wants one to be overlooked
ONCE = (b"host", b"authorization", b"content-type", b"idempotency-key", b"origin")

TRACEPARENT = re.compile(rb"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
# HSTS is for whoever ends TLS in front of us, and knows of it
SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# of answers that are no pages; those have their own
POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")

OF_ALL = written((*SECURITY, POLICY))


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


class Exchange:
    """A request, and the way of its answer: adds to it what all answers have."""

    __slots__ = (
        "_send",
        "begun",
        "bodies",
        "cause",
        "extra",
        "headers",
        "held",
        "meter",
        "rate",
        "scope",
        "status",
        "trace_id",
    )

    def __init__(
        self, scope: Scope, send: Send, *, trace_ids: Iterator[str], bodies: "Bodies"
    ) -> None:
        self.begun = time.perf_counter()
        self.scope = scope
        # of several of one name the last; see `refuse_oddities`
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        traceparent = self.headers.get(b"traceparent")
        self.trace_id = continued(traceparent) or next(trace_ids)
        self.bodies = bodies
        # bytes of its own body that are in memory
        self.held = 0
        # what the answer says beside its own
        self.extra: list[tuple[bytes, bytes]] = []
        # of it, how often the client may ask
        self.rate: tuple[tuple[bytes, bytes], ...] = ()
        # of the endpoint, once it is known
        self.meter: Meter | None = None
        # of the answer, once it has begun
        self.status = 0
        # of an error of ours, for operators
        self.cause: str | None = None
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = message["headers"]
            headers = [*own, *self.extra, *self.rate, *SECURITY]
            if POLICY[0] not in [name for name, _ in own]:
                headers.append(POLICY)
            headers.append((b"x-trace-id", self.trace_id.encode()))
            message = {**message, "headers": headers}
        await self._send(message)

    async def send_whole(self, head: Head, body: bytes) -> None:
        """Send a good answer whose head is written already."""
        cycle = cycle_of(self._send)
        if cycle is None or self.extra:
            start = {"type": "http.response.start", "status": 200}
            await self({**start, "headers": head.headers})
            await self({"type": "http.response.body", "body": body})
            return
        self.status = HTTPStatus.OK
        trace = b"x-trace-id: %s\r\n" % self.trace_id.encode()
        text = b"".join((head.text, written(self.rate), OF_ALL, trace))
        send_whole(cycle, text, body)

    def hold(self, size: int) -> None:
        """Keep so much more of the body in memory until the answer is given."""
        self.bodies.hold(size)
        self.held += size

    def end(self) -> None:
        if self.held:
            self.bodies.let_go(self.held)

    def refuse_oddities(self) -> None:
        """Refuse what is longer than any honest request, or says two things at once."""
        scope = self.scope
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_TARGET:
            raise Problem("uri-too-long", f"at most {LONGEST_TARGET} bytes are read")
        if not is_text(scope["query_string"]):
            raise Problem("bad-request", "the parameters are not UTF-8 text")
        headers = scope["headers"]
        size = sum([len(name) + len(value) for name, value in headers])
        if len(headers) > MOST_HEADERS or size > LARGEST_HEADERS:
            told = f"at most {MOST_HEADERS} with {LARGEST_HEADERS} bytes are read"
            raise Problem("headers-too-large", told)
        if b"host" not in self.headers and scope["http_version"] != "1.0":
            raise Problem("bad-request", "the header host is missing")
        if len(self.headers) != len(headers):
            names = [name for name, _ in headers]
            for each in ONCE:
                if names.count(each) > 1:
                    told = f"the header {each.decode()} is given twice; give it once"
                    raise Problem("bad-request", told)


def is_text(query: bytes) -> bool:
    """Say whether parameters are letters; what is none would be read as another."""
    if b"%" not in query and query.isascii():
        return True
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        return False
    return True


def continued(traceparent: bytes | None) -> str | None:
    """Return the trace of the caller, if it has one."""
    given = None if traceparent is None else TRACEPARENT.fullmatch(traceparent)
    return None if given is None else str(given[1].decode())


def new_trace_ids() -> Iterator[str]:
    """Yield ids that no process gives twice; they need not be secret."""
    ours = secrets.token_hex(8)
    return (f"{ours}{number:016x}" for number in itertools.count(secrets.randbits(48)))
