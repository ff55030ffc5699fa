"""Fetch a file by its address: within one time, and from public places only."""

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from time import monotonic
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from penstock.adapters.net.deadlines import (
    TimedConnection,
    TimedPool,
    TimedResponse,
    TimedSecureConnection,
    TimedSecurePool,
)
from penstock.errors import Rejected, SourceUnavailable

PIECE = 256 * 1024
MOST_MOVES = 3
MOVED = frozenset({301, 302, 303, 307, 308})
HTTPS_PORT, HTTP_PORT = 443, 80
# how long a server may say nothing, in seconds
SILENCE = 30.0


class LongResponse(TimedResponse):
    silence = SILENCE


class LongConnection(TimedConnection):
    response_class = LongResponse


class LongSecureConnection(TimedSecureConnection):
    response_class = LongResponse


class LongPool(TimedPool):
    """Connections for what may take an hour, and says something all the while."""

    ConnectionCls = LongConnection


class LongSecurePool(TimedSecurePool):
    ConnectionCls = LongSecureConnection


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
        place = place_of(url, named_by="the declaration")
        for _ in range(MOST_MOVES + 1):
            with self._asked(place, deadline) as answer:
                if answer.status in MOVED:
                    place = moved(place, answer.headers.get("Location"))
                    continue
                refuse(place.host, answer.status)
                # what has come, not a whole piece: a trickle would outlast the deadline
                while piece := answer.read1(PIECE, decode_content=False):
                    self._remaining(place, deadline)
                    yield piece
                return
        raise Rejected(f"{place.host} redirects more than {MOST_MOVES} times")

    @contextmanager
    def _asked(
        self, place: "Place", deadline: float
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        address = self._address(place.host)
        # the address that was judged is the one that is asked: a name may change
        if place.is_secure:
            pool: urllib3.HTTPConnectionPool = LongSecurePool(
                address,
                place.port,
                server_hostname=place.host,
                assert_hostname=place.host,
            )
        else:
            pool = LongPool(address, place.port)
        allowed = self._remaining(place, deadline)
        try:
            with pool:
                answer = pool.request(
                    "GET",
                    place.target,
                    headers={"Host": place.named, "Accept-Encoding": "identity"},
                    redirect=False,
                    retries=False,
                    # of head and content together
                    timeout=urllib3.Timeout(total=allowed, connect=SILENCE),
                    preload_content=False,
                )
                try:
                    yield answer
                finally:
                    answer.close()
        except (HTTPError, OSError) as error:
            self._remaining(place, deadline)
            raise SourceUnavailable(
                f"{place.host} broke off: {type(error).__name__}"
            ) from error

    def _remaining(self, place: "Place", deadline: float) -> float:
        remaining = deadline - monotonic()
        if remaining <= 0:
            limit = self.longest.total_seconds()
            raise SourceUnavailable(
                f"{place.host} did not send the file within {limit:g} s"
            )
        return remaining

    def _address(self, host: str) -> str:
        """Return the first address of a host, if all of them may be asked."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What an address means; one that means nothing is none."""

    url: str
    is_secure: bool
    host: str
    port: int
    # as the server is told
    named: str
    target: str


def place_of(url: str, *, named_by: str) -> Place:
    """Take an address apart; raise `Rejected` where it is none."""
    try:
        split = urlsplit(url)
        is_secure = split.scheme == "https"
        port = split.port or (HTTPS_PORT if is_secure else HTTP_PORT)
        host = (split.hostname or "").encode("idna").decode()
    except ValueError as error:
        raise Rejected(f"{named_by} names what is no address of a file") from error
    if split.scheme not in {"http", "https"} or not host:
        raise Rejected(f"{named_by} names what is no address of a file")
    named = f"[{host}]" if ":" in host else host
    return Place(
        url=url,
        is_secure=is_secure,
        host=host,
        port=port,
        named=f"{named}:{split.port}" if split.port else named,
        target=(split.path or "/") + (f"?{split.query}" if split.query else ""),
    )


def moved(place: Place, target: str | None) -> Place:
    """Return where a redirect leads."""
    named_by = f"a redirect of {place.host}"
    try:
        following = urljoin(place.url, target or "")
    except ValueError as error:
        raise Rejected(f"{named_by} names what is no address of a file") from error
    found = place_of(following, named_by=named_by)
    if place.is_secure and not found.is_secure:
        raise Rejected(f"{place.host} redirects to an address without TLS")
    return found


def is_public(address: str) -> bool:
    known = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(known, "ipv4_mapped", None)
    return (mapped or known).is_global and not known.is_multicast


def refuse(host: str, status: int) -> None:
    """Raise what an answer without a file means."""
    if status == HTTPStatus.OK:
        return
    told = f"{host} answered {status} instead of a file"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }:
        raise SourceUnavailable(told)
    raise Rejected(told)
