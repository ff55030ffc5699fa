"""The state of one request, and the headers that all responses have."""

import itertools
import re
import secrets
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from starlette.types import Message, Scope, Send

from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.server.prebuilt_head import (
    ResponseHead,
    cycle_of,
    encode_headers,
    send_whole,
)
from penstock.ports.tracing import NO_SPAN, SpanKind, Tracer, TraceSpan

if TYPE_CHECKING:
    from penstock.entrypoints.api.metrics.http_metrics import RouteMetrics
    from penstock.entrypoints.api.params.request_body import BodyMemoryLimit

MAX_TARGET_LENGTH = 8_192
MAX_HEADER_BYTES = 16_384
MAX_HEADERS = 100
# two of one of these may be an attempt to smuggle one past a proxy
SINGLE_HEADERS = (
    b"host",
    b"authorization",
    b"content-type",
    b"idempotency-key",
    b"origin",
)

TRACEPARENT = re.compile(rb"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
# HSTS is for the proxy that terminates TLS
SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# pages have a policy of their own
POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")

COMMON_HEADERS = encode_headers((*SECURITY, POLICY))


class ClientDisconnected(Exception):
    """The client no longer waits for the response."""


class RequestContext:
    """A request, and the ASGI `send` of its response, which adds the common headers."""

    __slots__ = (
        "_send",
        "_span",
        "bodies",
        "body_bytes",
        "cause",
        "extra_headers",
        "headers",
        "metrics",
        "rate_headers",
        "scope",
        "started",
        "status",
        "trace_id",
    )

    def __init__(
        self,
        scope: Scope,
        send: Send,
        *,
        trace_ids: Iterator[str],
        bodies: "BodyMemoryLimit",
    ) -> None:
        self.started = time.perf_counter()
        self.scope = scope
        # of several of one name the last; see `enforce_limits`
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        traceparent = self.headers.get(b"traceparent")
        self.trace_id = parent_trace_id(traceparent) or next(trace_ids)
        self.bodies = bodies
        # bytes of the request body in memory
        self.body_bytes = 0
        # added to those of the response itself
        self.extra_headers: list[tuple[bytes, bytes]] = []
        self.rate_headers: tuple[tuple[bytes, bytes], ...] = ()
        # of the endpoint, once the request is routed
        self.metrics: RouteMetrics | None = None
        # 0 until the response starts
        self.status = 0
        # of a server error, for the log
        self.cause: str | None = None
        self._send = send
        self._span: TraceSpan = NO_SPAN

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = message["headers"]
            headers = [*own, *self.extra_headers, *self.rate_headers, *SECURITY]
            if POLICY[0] not in [name for name, _ in own]:
                headers.append(POLICY)
            headers.append((b"x-trace-id", self.trace_id.encode()))
            message = {**message, "headers": headers}
        await self._send(message)

    async def send_whole(self, head: ResponseHead, body: bytes) -> None:
        """Send a response with status 200 whose head is prebuilt."""
        cycle = cycle_of(self._send)
        if cycle is None or self.extra_headers:
            start = {"type": "http.response.start", "status": 200}
            await self({**start, "headers": head.headers})
            await self({"type": "http.response.body", "body": body})
            return
        self.status = HTTPStatus.OK
        trace = b"x-trace-id: %s\r\n" % self.trace_id.encode()
        rate_headers = encode_headers(self.rate_headers)
        text = b"".join((head.text, rate_headers, COMMON_HEADERS, trace))
        send_whole(cycle, text, body)

    def hold(self, size: int) -> None:
        """Count more of the body as in memory until the request ends."""
        self.bodies.hold(size)
        self.body_bytes += size

    def begin_span(self, tracer: Tracer, route: str) -> None:
        """Trace this request from now on, as a part of the client's trace if any."""
        method, parent = self.scope["method"], self.headers.get(b"traceparent")
        span = tracer.span(
            f"{method} {route}",
            SpanKind.SERVER,
            # an invalid one is not continued, here as above
            "" if parent is None else parent.decode("latin-1"),
        )
        self._span = span.__enter__()
        self.trace_id = span.trace_id or self.trace_id
        if span.is_recording:
            # neither the path nor the parameters: they may contain keys of records
            span.set("http.request.method", method)
            span.set("http.route", route)
            span.set("url.scheme", self.scope["scheme"])

    def end_span(self) -> None:
        span = self._span
        if span.is_recording and self.status:
            span.set("http.response.status_code", self.status)
            if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                span.fail(str(self.status))
        span.__exit__(None, None, None)

    def end(self) -> None:
        if self.body_bytes:
            self.bodies.release(self.body_bytes)

    def enforce_limits(self) -> None:
        """Refuse a request that is too long, malformed or ambiguous."""
        scope = self.scope
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_LENGTH:
            raise Problem("uri-too-long", f"at most {MAX_TARGET_LENGTH} bytes are read")
        if not is_text(scope["query_string"]):
            raise Problem("bad-request", "the parameters are not UTF-8 text")
        headers = scope["headers"]
        size = sum([len(name) + len(value) for name, value in headers])
        if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
            text = f"at most {MAX_HEADERS} with {MAX_HEADER_BYTES} bytes are read"
            raise Problem("headers-too-large", text)
        if b"host" not in self.headers and scope["http_version"] != "1.0":
            raise Problem("bad-request", "the header host is missing")
        if len(self.headers) != len(headers):
            names = [name for name, _ in headers]
            for name in SINGLE_HEADERS:
                if names.count(name) > 1:
                    text = f"the header {name.decode()} is given twice; give it once"
                    raise Problem("bad-request", text)


def is_text(query: bytes) -> bool:
    """Return whether parameters are UTF-8; others would be decoded wrongly."""
    if b"%" not in query and query.isascii():
        return True
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        return False
    return True


def parent_trace_id(traceparent: bytes | None) -> str | None:
    """Return the trace id of the caller, if it sent a valid one."""
    match = None if traceparent is None else TRACEPARENT.fullmatch(traceparent)
    return None if match is None else str(match[1].decode())


def new_trace_ids() -> Iterator[str]:
    """Yield ids that are unique across processes; they need not be secret."""
    prefix = secrets.token_hex(8)
    return (
        f"{prefix}{number:016x}" for number in itertools.count(secrets.randbits(48))
    )
