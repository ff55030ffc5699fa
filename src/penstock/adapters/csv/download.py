"""Fetch a file by its address: within one time, and from public places only."""

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from time import monotonic
from urllib.parse import SplitResult, urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from penstock.errors import Rejected, SourceUnavailable

PIECE = 256 * 1024
MOST_MOVES = 3
MOVED = frozenset({301, 302, 303, 307, 308})
HTTPS_PORT, HTTP_PORT = 443, 80
# how long a server may say nothing, in seconds
SILENCE = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """How files are fetched."""

    longest: timedelta
    # an address inside of one's own network is refused: a declaration, or a redirect,
    # must not reach what only this machine can
    may_be_private: bool = False

    def __call__(self, url: str) -> Iterator[bytes]:
        """Yield the content piece by piece; raise where there is none to be had."""
        deadline = monotonic() + self.longest.total_seconds()
        for _ in range(MOST_MOVES + 1):
            with self._asked(url) as answer:
                if answer.status in MOVED:
                    url = self._moved(url, answer.headers.get("Location"))
                    continue
                refuse(url, answer.status)
                # what has come, not a whole piece: a trickle would outlast the deadline
                while piece := answer.read1(PIECE, decode_content=False):
                    if monotonic() > deadline:
                        limit = self.longest.total_seconds()
                        raise SourceUnavailable(
                            f"{host_of(url)} did not send the file within {limit:g} s"
                        )
                    yield piece
                return
        raise Rejected(f"{host_of(url)} redirects more than {MOST_MOVES} times")

    @contextmanager
    def _asked(self, url: str) -> Iterator[urllib3.BaseHTTPResponse]:
        split = urlsplit(url)
        host, address = split.hostname or "", self._address(split)
        # the address that was judged is the one that is asked: a name may change
        if split.scheme == "https":
            pool: urllib3.HTTPConnectionPool = urllib3.HTTPSConnectionPool(
                address,
                split.port or HTTPS_PORT,
                server_hostname=host,
                assert_hostname=host,
            )
        else:
            pool = urllib3.HTTPConnectionPool(address, split.port or HTTP_PORT)
        path = (split.path or "/") + (f"?{split.query}" if split.query else "")
        try:
            with pool:
                answer = pool.request(
                    "GET",
                    path,
                    headers={"Host": split.netloc, "Accept-Encoding": "identity"},
                    redirect=False,
                    retries=False,
                    timeout=SILENCE,
                    preload_content=False,
                )
                try:
                    yield answer
                finally:
                    answer.close()
        except (HTTPError, OSError) as error:
            raise SourceUnavailable(
                f"{host} broke off: {type(error).__name__}"
            ) from error

    def _address(self, split: SplitResult) -> str:
        """Return the first address of a host, if all of them may be asked."""
        host = split.hostname or ""
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise SourceUnavailable(f"the name {host!r} cannot be resolved") from error
        addresses = [str(each[4][0]) for each in found]
        for address in addresses:
            if not self.may_be_private and not is_public(address):
                raise Rejected(
                    f"{host} is {address}, which is no public address; set "
                    "source.private = true if that is meant"
                )
        return addresses[0]

    def _moved(self, url: str, target: str | None) -> str:
        following = urljoin(url, target or "")
        if urlsplit(following).scheme != "https" and urlsplit(url).scheme == "https":
            raise Rejected(f"{host_of(url)} redirects to an address without TLS")
        return following


def is_public(address: str) -> bool:
    known = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(known, "ipv4_mapped", None)
    return (mapped or known).is_global and not known.is_multicast


def host_of(url: str) -> str:
    return urlsplit(url).hostname or "the host"


def refuse(url: str, status: int) -> None:
    """Raise what an answer without a file means."""
    if status == HTTPStatus.OK:
        return
    told = f"{host_of(url)} answered {status} instead of a file"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }:
        raise SourceUnavailable(told)
    raise Rejected(told)
