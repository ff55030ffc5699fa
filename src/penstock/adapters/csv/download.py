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
GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# their last 32 bits are an address of IPv4: mapped, and behind NAT64 (RFC 6052)
TRANSLATED = (
    ipaddress.IPv6Network("::ffff:0:0/96"),
    ipaddress.IPv6Network("64:ff9b::/96"),
)
# tunnels to an address of IPv4 that nobody offers files through, and what is for
# documents: Teredo, 6to4 (RFC 7526 ended it), 3fff::/20
TUNNELLED = (
    ipaddress.IPv6Network("2001::/32"),
    ipaddress.IPv6Network("2002::/16"),
    ipaddress.IPv6Network("3fff::/20"),
)
# the bits before the last 32 that announce an address of IPv4 (RFC 5214)
ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
IPV4_MASK = 0xFFFF_FFFF


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
    """Say whether an address belongs to the open internet, however it is written.

    Of IPv6 only what is listed here may: Python's own tables differ by its version,
    and many forms carry an address of IPv4 that a router takes out again.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv4Address):
        return is_public_ipv4(int(parsed))
    number = int(parsed)
    if any(parsed in network for network in TRANSLATED):
        return is_public_ipv4(number & IPV4_MASK)
    if (number >> 32) & IPV4_MASK in ISATAP and not is_public_ipv4(number & IPV4_MASK):
        return False
    return (
        parsed in GLOBAL_UNICAST
        and parsed.is_global
        and not any(parsed in network for network in TUNNELLED)
    )


def is_public_ipv4(number: int) -> bool:
    address = ipaddress.IPv4Address(number)
    return address.is_global and not address.is_multicast


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
