"""Fetch a file by its address: within one time, and from public places only."""

import ipaddress
import socket
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

from penstock.adapters.csv.packed import GzipReader
from penstock.adapters.net.dates import retry_after
from penstock.adapters.net.deadlines import (
    TimedConnection,
    TimedPool,
    TimedResponse,
    TimedSecureConnection,
    TimedSecurePool,
)
from penstock.errors import Rejected, SourceUnavailable
from penstock.ports import StillHere

PIECE = 256 * 1024
MOST_MOVES = 3
MOVED = frozenset({301, 302, 303, 307, 308})
# how often a file is asked for that the server is still preparing
MAX_ATTEMPTS = 5
# how long to wait for it where the server does not say
DEFAULT_WAIT = timedelta(seconds=5)
# how long to sleep before it is asked whether to go on, in seconds
SLEEP_INTERVAL = 0.25
# of these the bytes are stored as they come: a packed file is read as well as a plain
STORED_CODINGS = frozenset({"", "identity", "gzip", "x-gzip"})
ZLIB_WINDOW, DEFLATE_WINDOW = 15, -15
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
    # whether the end of a connection is taken for the end of the file
    may_be_unsized: bool = False
    # called while it waits
    still_here: StillHere = lambda: None

    def __call__(self, url: str) -> Iterator[bytes]:
        """Yield the content piece by piece; raise where there is none to be had."""
        deadline = monotonic() + self.longest.total_seconds()
        place = place_of(url, named_by="the declaration")
        moves, attempts, wait = 0, 1, timedelta()
        while moves <= MOST_MOVES:
            self._wait(place, wait, deadline)
            with self._asked(place, deadline) as answer:
                if answer.status in MOVED:
                    place = moved(place, answer.headers.get("Location"))
                    moves, wait = moves + 1, timedelta()
                elif answer.status == HTTPStatus.ACCEPTED and attempts < MAX_ATTEMPTS:
                    attempts += 1
                    said = retry_after(answer.headers, datetime.now(UTC))
                    wait = DEFAULT_WAIT if said is None else said
                else:
                    refuse(place.host, answer.status)
                    yield from self._content(place, answer, deadline)
                    return
        raise Rejected(f"{place.host} redirects more than {MOST_MOVES} times")

    def _content(
        self, place: "Place", answer: urllib3.BaseHTTPResponse, deadline: float
    ) -> Iterator[bytes]:
        """Yield a body, and raise where nothing proves that it is whole.

        A length and a last chunk are checked by the client; else the end of a packed
        file tells. The end of a connection tells nothing.
        """
        coding = answer.headers.get("Content-Encoding", "").strip().lower()
        if coding not in {*STORED_CODINGS, "deflate"}:
            raise Rejected(
                f"{place.host} sent the file packed as {coding[:20]!r}, which it was "
                "not asked for"
            )
        is_sized, end = has_length(answer), GzipReader()

        def pieces() -> Iterator[bytes]:
            # what has come, not a whole piece: a trickle would outlast the deadline
            while piece := answer.read1(PIECE, decode_content=False):
                self._remaining(place, deadline)
                if not is_sized:
                    end.add(piece)
                yield piece

        if coding == "deflate":
            # its end is checked
            yield from inflate(pieces(), place.host)
            return
        yield from pieces()
        if not (is_sized or end.is_whole or self.may_be_unsized):
            raise Rejected(
                f"{place.host} sent neither the length of the file nor a last chunk, "
                "so that a part of it looks like all; set source.unsized = "
                '"accept" if it is to be taken as it came'
            )

    def _wait(self, place: "Place", wait: timedelta, deadline: float) -> None:
        """Sleep until the server wants to be asked again, if there is the time."""
        until = monotonic() + wait.total_seconds()
        if wait and until >= deadline:
            limit = self.longest.total_seconds()
            raise SourceUnavailable(
                f"{place.host} answered 202: the file is not ready, and not before "
                f"the {limit:g} s of source.download are over"
            )
        while (remaining := until - monotonic()) > 0:
            self.still_here()
            sleep(min(remaining, SLEEP_INTERVAL))

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


def inflate(pieces: Iterator[bytes], host: str) -> Iterator[bytes]:
    """Unpack a body that was sent as `deflate`; raise where its end is missing."""
    unpacked = None
    for piece in pieces:
        if unpacked is None:
            # some send it without the frame that its name means
            is_framed = piece[0] & 0x0F == zlib.DEFLATED
            unpacked = zlib.decompressobj(ZLIB_WINDOW if is_framed else DEFLATE_WINDOW)
        rest, is_full = piece, False
        # a full piece may leave more behind, also if all of the input is taken in
        while rest or is_full:
            try:
                plain = unpacked.decompress(rest, PIECE)
            except zlib.error as error:
                raise SourceUnavailable(f"{host} sent broken compression") from error
            yield plain
            rest, is_full = unpacked.unconsumed_tail, len(plain) == PIECE
    if unpacked is None or not unpacked.eof:
        raise SourceUnavailable(f"{host} broke off within the compressed file")


def has_length(answer: urllib3.BaseHTTPResponse) -> bool:
    """Say whether the client finds out by itself that a body is cut off."""
    transfer = answer.headers.get("Transfer-Encoding")
    if transfer is not None:
        return transfer.strip().lower() == "chunked"
    return isinstance(answer, urllib3.HTTPResponse) and (
        answer.length_remaining is not None
    )


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
        HTTPStatus.ACCEPTED,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }:
        raise SourceUnavailable(told)
    raise Rejected(told)
