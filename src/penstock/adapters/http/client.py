"""Send one request and read its answer, within one time and one size.

No retries and no redirects: each request costs a token, so each is the caller's
decision. A connection goes back to the pool only if its answer was read to the end.
"""

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

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

from penstock.adapters.http.links import host_of, server_of
from penstock.adapters.net.deadlines import CHUNK, timed_pools
from penstock.errors import AnswerTooLarge, Misconfigured, SourceUnavailable

LONGEST_CONNECT = timedelta(seconds=10)
# enough of an error's body to tell what it says
ERROR_BYTES = 64 * 1024
FIRST_ERROR = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str = "GET"
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, decompressed; of an error only the beginning of its body."""

    status: int
    # any spelling of a name finds its header
    headers: Mapping[str, str]
    body: bytes = b""


class Client:
    """The connections of one process, shared by its threads."""

    def __init__(self, *, connections: int = 16) -> None:
        self._pool = timed_pools(maxsize=connections, block=False)

    def send(self, request: Request, *, timeout: timedelta, max_bytes: int) -> Answer:
        """Exchange one request for one whole answer."""
        with translated(request, timeout):
            response = self._pool.request(
                request.method,
                request.url,
                body=request.body,
                headers=request.headers,
                timeout=urllib3.Timeout(
                    connect=min(timeout, LONGEST_CONNECT).total_seconds(),
                    total=timeout.total_seconds(),
                ),
                preload_content=False,
                redirect=False,
                retries=False,
            )
            try:
                return read_answer(response, max_bytes)
            finally:
                # a connection that was read to the end is back in the pool already
                response.close()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()


def read_answer(response: urllib3.BaseHTTPResponse, max_bytes: int) -> Answer:
    is_error = response.status >= FIRST_ERROR
    limit = ERROR_BYTES if is_error else max_bytes
    if tells_length(response, limit):
        # most do, and reading them piece by piece takes twice the time
        body = response.read(decode_content=False)
    else:
        body = read_up_to(response, limit, is_error=is_error)
    return Answer(status=response.status, headers=response.headers, body=body)


def tells_length(response: urllib3.BaseHTTPResponse, limit: int) -> bool:
    """Say whether an answer is not packed, and tells a length within the limit."""
    if not isinstance(response, urllib3.HTTPResponse):
        return False
    length = response.length_remaining
    is_plain = "Content-Encoding" not in response.headers
    return is_plain and length is not None and length <= limit


def read_up_to(
    response: urllib3.BaseHTTPResponse, limit: int, *, is_error: bool
) -> bytes:
    chunks, length = [], 0
    # the limit counts decompressed bytes: a small answer may unpack to a huge one
    for chunk in response.stream(CHUNK, decode_content=True):
        chunks.append(chunk)
        length += len(chunk)
        if length > limit:
            if is_error:
                break
            raise AnswerTooLarge(
                f"the answer is larger than {limit} bytes; "
                "ask for smaller pages, or raise source.max_bytes"
            )
    return b"".join(chunks)


@contextmanager
def translated(request: Request, timeout: timedelta) -> Iterator[None]:
    """Turn what the network may do to us into our own errors.

    Only hosts and ports are named: an address or a header may hold a secret.
    """
    host, server = host_of(request.url), server_of(request.url)
    try:
        yield
    except (LocationValueError, http.client.InvalidURL, UnicodeError):
        raise Misconfigured("source.url is not an address that can be asked") from None
    except NameResolutionError as error:
        raise SourceUnavailable(f"the name {host!r} cannot be resolved") from error
    except NewConnectionError as error:
        raise SourceUnavailable(
            f"no connection to {server!r}: {reason(error)}"
        ) from error
    except ConnectTimeoutError as error:
        raise SourceUnavailable(f"no connection to {server!r} in time") from error
    except (ReadTimeoutError, TimeoutError) as error:
        raise SourceUnavailable(
            f"{host!r} gave no whole answer within {timeout.total_seconds():.3g} s"
        ) from error
    except SSLError as error:
        raise SourceUnavailable(f"no TLS with {host!r}: {reason(error)}") from error
    except DecodeError as error:
        raise SourceUnavailable(f"{host!r} sent broken compression") from error
    except (HTTPError, http.client.HTTPException, OSError) as error:
        cut = is_cut_off(error)
        told = "cut its answer off" if cut else f"broke off: {reason(error)}"
        raise SourceUnavailable(f"{host!r} {told}") from error


def is_cut_off(error: BaseException) -> bool:
    causes = [error, *error.args]
    return any(
        isinstance(each, IncompleteRead | http.client.IncompleteRead) for each in causes
    )


def reason(error: BaseException) -> str:
    """Return the innermost cause in a few words."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    told = error.strerror if isinstance(error, OSError) else None
    return (told or type(error).__name__)[:80]
