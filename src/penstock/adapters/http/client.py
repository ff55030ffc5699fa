"""Send one request and read its response, within a deadline and a size limit.

No retries and no redirects: each request costs a token, so each is the caller's
decision. A connection returns to the pool only if its response was read to the end.
"""

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeAlias

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    DecodeError,
    HTTPError,
    IncompleteRead,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from penstock.adapters.http.urls import host_of, port_of, server_of
from penstock.adapters.net.http_deadlines import CHUNK, timed_pools
from penstock.errors import Misconfigured, ResponseTooLarge, SourceUnavailable
from penstock.ports.tracing import NO_TRACER, SpanKind, Tracer, TraceSpan

CONNECT_TIMEOUT = timedelta(seconds=10)
# enough of the body of an error to show its message
MAX_ERROR_BYTES = 64 * 1024
FIRST_ERROR_STATUS = 300
# of those that make the span of a client fail
FIRST_FAILED_STATUS = 400


# hears of the status of each response, or None, and of how long it took
Observe: TypeAlias = Callable[[int | None, timedelta], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str = "GET"
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A decompressed response; of an error only the start of its body."""

    status: int
    # names are case-insensitive
    headers: Mapping[str, str]
    body: bytes = b""


class HttpClient:
    """The connections of one process, shared by its threads."""

    def __init__(
        self,
        *,
        connections: int = 16,
        pool: urllib3.PoolManager | None = None,
        observe: Observe | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._pool = pool or timed_pools(maxsize=connections, block=False)
        self._observe = observe
        self._tracer = tracer

    def observed_by(
        self, observe: Observe | None = None, tracer: Tracer = NO_TRACER
    ) -> "HttpClient":
        """Return a client with the same connections, whose requests are reported."""
        return HttpClient(pool=self._pool, observe=observe, tracer=tracer)

    def send(
        self, request: HttpRequest, *, timeout: timedelta, max_bytes: int
    ) -> HttpResponse:
        """Return the complete response to a request."""
        with self._tracer.child(request.method, SpanKind.CLIENT) as span:
            traceparent = self._tracer.traceparent()
            if traceparent is not None:
                headers = {**request.headers, "traceparent": traceparent}
                request = replace(request, headers=headers)
            if span.is_recording:
                describe_request(span, request)
            response = self._send_observed(request, timeout, max_bytes)
            if span.is_recording:
                span.set("http.response.status_code", response.status)
                if response.status >= FIRST_FAILED_STATUS:
                    span.fail(str(response.status))
            return response

    def _send_observed(
        self, request: HttpRequest, timeout: timedelta, max_bytes: int
    ) -> HttpResponse:
        if self._observe is None:
            return self._send(request, timeout, max_bytes)
        status, started_at = None, time.monotonic()
        try:
            response = self._send(request, timeout, max_bytes)
            status = response.status
        finally:
            took = timedelta(seconds=time.monotonic() - started_at)
            self._observe(status, took)
        return response

    def _send(
        self, request: HttpRequest, timeout: timedelta, max_bytes: int
    ) -> HttpResponse:
        with translate_errors(request, timeout):
            response = self._pool.request(
                request.method,
                request.url,
                body=request.body,
                headers=request.headers,
                timeout=urllib3.Timeout(
                    connect=min(timeout, CONNECT_TIMEOUT).total_seconds(),
                    total=timeout.total_seconds(),
                ),
                preload_content=False,
                redirect=False,
                retries=False,
            )
            try:
                return read_response(response, max_bytes)
            finally:
                # a connection that was read to the end is already back in the pool
                response.close()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()


def describe_request(span: TraceSpan, request: HttpRequest) -> None:
    """Set what the conventions of OpenTelemetry ask of the span of a client.

    The URL is without its parameters: their values may identify persons.
    """
    span.set("http.request.method", request.method)
    span.set("server.address", host_of(request.url))
    port = port_of(request.url)
    if port is not None:
        span.set("server.port", port)
    span.set("url.full", request.url.partition("?")[0])


def read_response(response: urllib3.BaseHTTPResponse, max_bytes: int) -> HttpResponse:
    is_error = response.status >= FIRST_ERROR_STATUS
    limit = MAX_ERROR_BYTES if is_error else max_bytes
    if has_length(response, limit):
        # most do, and reading them in chunks takes twice the time
        body = response.read(decode_content=False)
    else:
        body = read_limited(response, limit, is_error=is_error)
    return HttpResponse(status=response.status, headers=response.headers, body=body)


def has_length(response: urllib3.BaseHTTPResponse, limit: int) -> bool:
    """Return whether a response is uncompressed and has a length within the limit."""
    if not isinstance(response, urllib3.HTTPResponse):
        return False
    length = response.length_remaining
    is_plain = "Content-Encoding" not in response.headers
    return is_plain and length is not None and length <= limit


def read_limited(
    response: urllib3.BaseHTTPResponse, limit: int, *, is_error: bool
) -> bytes:
    chunks, length = [], 0
    # the limit counts decompressed bytes: a small response may expand to a huge one
    for chunk in response.stream(CHUNK, decode_content=True):
        chunks.append(chunk)
        length += len(chunk)
        if length > limit:
            if is_error:
                break
            raise ResponseTooLarge(
                f"the response is larger than {limit} bytes; "
                "request smaller pages, or raise source.max_bytes"
            )
    return b"".join(chunks)


@contextmanager
def translate_errors(request: HttpRequest, timeout: timedelta) -> Iterator[None]:
    """Translate network errors into Penstock's own.

    Only hosts and ports are named: a URL or a header may contain a secret.
    """
    host, server = host_of(request.url), server_of(request.url)
    try:
        yield
    except (LocationValueError, http.client.InvalidURL, UnicodeError):
        raise Misconfigured("source.url is not a valid URL") from None
    except NameResolutionError as error:
        raise SourceUnavailable(f"the name {host!r} cannot be resolved") from error
    except NewConnectionError as error:
        raise SourceUnavailable(
            f"no connection to {server!r}: {describe_cause(error)}"
        ) from error
    except ConnectTimeoutError as error:
        raise SourceUnavailable(f"no connection to {server!r} in time") from error
    except (ReadTimeoutError, TimeoutError) as error:
        raise SourceUnavailable(
            f"{host!r} sent no complete response within {timeout.total_seconds():.3g} s"
        ) from error
    except SSLError as error:
        raise SourceUnavailable(
            f"no TLS with {host!r}: {describe_cause(error)}"
        ) from error
    except DecodeError as error:
        raise SourceUnavailable(f"{host!r} sent invalid compressed data") from error
    except (HTTPError, http.client.HTTPException, OSError) as error:
        raise SourceUnavailable(
            f"{host!r} sent an incomplete response"
            if is_incomplete_read(error)
            else f"the request to {host!r} failed: {describe_cause(error)}"
        ) from error


def is_incomplete_read(error: BaseException) -> bool:
    causes = [error, *error.args]
    return any(
        isinstance(cause, IncompleteRead | http.client.IncompleteRead)
        for cause in causes
    )


def describe_cause(error: BaseException) -> str:
    """Return the innermost cause in a few words."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    detail = error.strerror if isinstance(error, OSError) else None
    return (detail or type(error).__name__)[:80]
