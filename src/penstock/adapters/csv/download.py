"""Download a file by URL: within a deadline, and from public addresses only."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from time import monotonic, sleep
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from penstock.adapters.csv.gzip_reader import GzipReader
from penstock.adapters.net.http_dates import parse_retry_after
from penstock.adapters.net.http_deadlines import (
    TimedConnection,
    TimedPool,
    TimedResponse,
    TimedSecureConnection,
    TimedSecurePool,
)
from penstock.adapters.net.public_addresses import PrivateAddress, resolve
from penstock.errors import Rejected, SourceUnavailable
from penstock.ports import KeepAlive

CHUNK_SIZE = 256 * 1024
MAX_REDIRECTS = 3
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# how often a file that the server is still preparing is requested
MAX_ATTEMPTS = 5
# how long to wait for it where the server does not say
DEFAULT_WAIT = timedelta(seconds=5)
# seconds to sleep between two calls of `still_here`
SLEEP_INTERVAL = 0.25
# stored as received: the reader decompresses gzip
STORED_ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip"})
ZLIB_WINDOW, DEFLATE_WINDOW = 15, -15
HTTPS_PORT, HTTP_PORT = 443, 80
# seconds for which a server may send nothing
SILENCE_TIMEOUT = 30.0


class LongResponse(TimedResponse):
    silence = SILENCE_TIMEOUT


class LongConnection(TimedConnection):
    response_class = LongResponse


class LongSecureConnection(TimedSecureConnection):
    response_class = LongResponse


class LongPool(TimedPool):
    """Connections for downloads that may take an hour, but never pause for long."""

    ConnectionCls = LongConnection


class LongSecurePool(TimedSecurePool):
    ConnectionCls = LongSecureConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """How files are downloaded."""

    longest: timedelta
    # else a private address is refused: a declaration, or a redirect, must not reach
    # what only this machine can
    may_be_private: bool = False
    # whether the end of the connection counts as the end of the file
    may_be_unsized: bool = False
    # called while waiting
    still_here: KeepAlive = lambda: None

    def __call__(self, url: str) -> Iterator[bytes]:
        """Yield the content in chunks, or raise."""
        deadline = monotonic() + self.longest.total_seconds()
        target = parse_target(url, named_by="the declaration")
        redirects, attempts, wait = 0, 1, timedelta()
        while redirects <= MAX_REDIRECTS:
            self._wait(target, wait, deadline)
            with self._request(target, deadline) as response:
                if response.status in REDIRECTS:
                    target = resolve_redirect(target, response.headers.get("Location"))
                    redirects, wait = redirects + 1, timedelta()
                elif response.status == HTTPStatus.ACCEPTED and attempts < MAX_ATTEMPTS:
                    attempts += 1
                    requested = parse_retry_after(response.headers, datetime.now(UTC))
                    wait = DEFAULT_WAIT if requested is None else requested.wait
                else:
                    check_status(target.host, response.status)
                    yield from self._stream_body(target, response, deadline)
                    return
        raise Rejected(f"{target.host} redirects more than {MAX_REDIRECTS} times")

    def _stream_body(
        self,
        target: "DownloadTarget",
        response: urllib3.BaseHTTPResponse,
        deadline: float,
    ) -> Iterator[bytes]:
        """Yield a body, and raise if nothing proves that it is complete.

        urllib3 checks a length or a last chunk; else the trailer of a gzip file is
        proof. The end of the connection is not.
        """
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in {*STORED_ENCODINGS, "deflate"}:
            raise Rejected(
                f"{target.host} sent the file with Content-Encoding "
                f"{encoding[:20]!r}, which was not requested"
            )
        is_sized, gzip = has_length(response), GzipReader()

        def chunks() -> Iterator[bytes]:
            # read1 returns what has arrived: else a trickle would outlast the deadline
            while chunk := response.read1(CHUNK_SIZE, decode_content=False):
                self._remaining(target, deadline)
                if not is_sized:
                    gzip.add(chunk)
                yield chunk

        if encoding == "deflate":
            # it checks its own end
            yield from inflate(chunks(), target.host)
            return
        yield from chunks()
        if not (is_sized or gzip.is_whole or self.may_be_unsized):
            raise Rejected(
                f"{target.host} sent neither the length of the file nor a last chunk, "
                "so a part of it would look complete; set source.unsized = "
                '"accept" to accept it all the same'
            )

    def _wait(self, target: "DownloadTarget", wait: timedelta, deadline: float) -> None:
        """Sleep as long as the server requested, if the deadline allows it."""
        until = monotonic() + wait.total_seconds()
        if wait and until >= deadline:
            limit = self.longest.total_seconds()
            raise SourceUnavailable(
                f"{target.host} returned 202: the file will not be ready within "
                f"the {limit:g} s of source.download"
            )
        while (remaining := until - monotonic()) > 0:
            self.still_here()
            sleep(min(remaining, SLEEP_INTERVAL))

    @contextmanager
    def _request(
        self, target: "DownloadTarget", deadline: float
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        address = self._resolve(target.host)
        # connect to the checked address: the name may resolve to another one later
        if target.is_secure:
            pool: urllib3.HTTPConnectionPool = LongSecurePool(
                address,
                target.port,
                server_hostname=target.host,
                assert_hostname=target.host,
            )
        else:
            pool = LongPool(address, target.port)
        timeout = self._remaining(target, deadline)
        try:
            with pool:
                response = pool.request(
                    "GET",
                    target.path,
                    headers={"Host": target.host_header, "Accept-Encoding": "identity"},
                    redirect=False,
                    retries=False,
                    # for headers and body together
                    timeout=urllib3.Timeout(total=timeout, connect=SILENCE_TIMEOUT),
                    preload_content=False,
                )
                try:
                    yield response
                finally:
                    response.close()
        except (HTTPError, OSError) as error:
            self._remaining(target, deadline)
            raise SourceUnavailable(
                f"the download from {target.host} failed: {type(error).__name__}"
            ) from error

    def _remaining(self, target: "DownloadTarget", deadline: float) -> float:
        remaining = deadline - monotonic()
        if remaining <= 0:
            limit = self.longest.total_seconds()
            raise SourceUnavailable(
                f"{target.host} did not send the file within {limit:g} s"
            )
        return remaining

    def _resolve(self, host: str) -> str:
        """Return the first address of a host, if all of them are allowed."""
        try:
            return resolve(host, allow_private=self.may_be_private)
        except OSError as error:
            raise SourceUnavailable(f"the name {host!r} cannot be resolved") from error
        except PrivateAddress as error:
            raise Rejected(f"{error}; set source.private = true to allow it") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadTarget:
    """The parts of a URL."""

    url: str
    is_secure: bool
    host: str
    port: int
    host_header: str
    path: str


def parse_target(url: str, *, named_by: str) -> DownloadTarget:
    """Parse a URL; raise `Rejected` if it is not one of a file."""
    try:
        split = urlsplit(url)
        is_secure = split.scheme == "https"
        port = split.port or (HTTPS_PORT if is_secure else HTTP_PORT)
        host = (split.hostname or "").encode("idna").decode()
    except ValueError as error:
        raise Rejected(f"{named_by} names a URL that is not one of a file") from error
    if split.scheme not in {"http", "https"} or not host:
        raise Rejected(f"{named_by} names a URL that is not one of a file")
    bracketed = f"[{host}]" if ":" in host else host
    return DownloadTarget(
        url=url,
        is_secure=is_secure,
        host=host,
        port=port,
        host_header=f"{bracketed}:{split.port}" if split.port else bracketed,
        path=(split.path or "/") + (f"?{split.query}" if split.query else ""),
    )


def resolve_redirect(target: DownloadTarget, location: str | None) -> DownloadTarget:
    """Return the target of a redirect."""
    named_by = f"a redirect of {target.host}"
    try:
        url = urljoin(target.url, location or "")
    except ValueError as error:
        raise Rejected(f"{named_by} names a URL that is not one of a file") from error
    redirected = parse_target(url, named_by=named_by)
    if target.is_secure and not redirected.is_secure:
        raise Rejected(f"{target.host} redirects to an address without TLS")
    return redirected


def inflate(chunks: Iterator[bytes], host: str) -> Iterator[bytes]:
    """Decompress a body that was sent as `deflate`; raise if its end is missing."""
    decompressor = None
    for chunk in chunks:
        if decompressor is None:
            # some servers send it without the zlib frame that `deflate` means
            is_framed = chunk[0] & 0x0F == zlib.DEFLATED
            decompressor = zlib.decompressobj(
                ZLIB_WINDOW if is_framed else DEFLATE_WINDOW
            )
        rest, is_full = chunk, False
        # a full chunk may leave more output, even if all of the input is consumed
        while rest or is_full:
            try:
                decompressed = decompressor.decompress(rest, CHUNK_SIZE)
            except zlib.error as error:
                raise SourceUnavailable(f"{host} sent invalid deflate data") from error
            yield decompressed
            rest, is_full = (
                decompressor.unconsumed_tail,
                len(decompressed) == CHUNK_SIZE,
            )
    if decompressor is None or not decompressor.eof:
        raise SourceUnavailable(f"{host} sent an incomplete compressed file")


def has_length(response: urllib3.BaseHTTPResponse) -> bool:
    """Return whether urllib3 itself detects a truncated body."""
    transfer = response.headers.get("Transfer-Encoding")
    if transfer is not None:
        return transfer.strip().lower() == "chunked"
    return isinstance(response, urllib3.HTTPResponse) and (
        response.length_remaining is not None
    )


def check_status(host: str, status: int) -> None:
    """Raise the error for a response without a file."""
    if status == HTTPStatus.OK:
        return
    message = f"{host} returned {status} instead of a file"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in {
        HTTPStatus.ACCEPTED,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }:
        raise SourceUnavailable(message)
    raise Rejected(message)
