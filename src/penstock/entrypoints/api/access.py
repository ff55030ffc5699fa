"""Who asks: what a request says of its sender, and how much of it is believed."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.types import Scope

Headers: TypeAlias = Mapping[bytes, bytes]
Network: TypeAlias = IPv4Network | IPv6Network

BEARER = b"bearer "
# of an IPv6 client, the network that it was given
CLIENT_BITS = 64


def bearer_token(headers: Headers) -> str | None:
    given = headers.get(b"authorization")
    if given is None or given[: len(BEARER)].lower() != BEARER:
        return None
    # what is no text is no token, and is refused as such
    return given[len(BEARER) :].strip().decode("latin-1")


def client_of(scope: Scope, proxies: tuple[Network, ...]) -> str:
    """Name a client by its address.

    A proxy that is trusted says for whom it asks, and so on; the first that is not
    trusted is the client.
    """
    peer = scope["client"][0] if scope.get("client") else ""
    if proxies and is_in(peer, proxies):
        said = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        peer = first_stranger(peer, b",".join(said), proxies)
    return grouped(peer)


@lru_cache(maxsize=4096)
def first_stranger(peer: str, said: bytes, proxies: tuple[Network, ...]) -> str:
    for each in reversed(said.decode("latin-1").split(",")):
        hop = without_port(each.strip())
        if parsed(hop) is None:
            # whoever wrote this does not know addresses
            break
        peer = hop
        if not is_in(hop, proxies):
            break
    return peer


@lru_cache(maxsize=4096)
def is_in(address: str, networks: tuple[Network, ...]) -> bool:
    known = parsed(address)
    return known is not None and any(known in each for each in networks)


@lru_cache(maxsize=4096)
def grouped(address: str) -> str:
    """Take all addresses of an IPv6 client for one."""
    known = parsed(address)
    if not isinstance(known, IPv6Address):
        return address
    bits = known.max_prefixlen - CLIENT_BITS
    return f"{IPv6Address(int(known) >> bits << bits)}/{CLIENT_BITS}"


def parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, _ = text.partition(":")
    return host if colon and text.count(":") == 1 else text


@lru_cache(maxsize=1024)
def is_here(host: bytes) -> bool:
    """Say whether a Host header names this very machine.

    A page of another site can make its own name point here (DNS rebinding), and a
    browser would take our answers for that site's.
    """
    name = without_port(host.decode("latin-1").strip().lower()).removesuffix(".")
    known = parsed(name)
    if known is not None:
        return known.is_loopback
    return name == "localhost" or name.endswith(".localhost")


def is_from_here(origin: bytes, allowed: Iterable[str]) -> bool:
    """Say whether a page that asks was served by this machine, or is allowed to."""
    told = origin.decode("latin-1")
    if told in allowed:
        return True
    try:
        host = urlsplit(told).netloc
    except ValueError:
        return False
    return is_here(host.encode("latin-1"))
