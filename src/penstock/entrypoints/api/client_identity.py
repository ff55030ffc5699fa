"""The client of a request: its token, its address and its origin."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.types import Scope

Headers: TypeAlias = Mapping[bytes, bytes]
Network: TypeAlias = IPv4Network | IPv6Network

BEARER = b"bearer "
# the network that is assigned to an IPv6 client
CLIENT_PREFIX = 64


def bearer_token(headers: Headers) -> str | None:
    header = headers.get(b"authorization")
    if header is None or header[: len(BEARER)].lower() != BEARER:
        return None
    # bytes that are no text fail verification later
    return header[len(BEARER) :].strip().decode("latin-1")


def client_address(scope: Scope, proxies: tuple[Network, ...]) -> str:
    """Identify a client by its address.

    `X-Forwarded-For` is followed as long as the hops are trusted proxies; the first
    address that is none is the client.
    """
    peer = scope["client"][0] if scope.get("client") else ""
    if proxies and is_in(peer, proxies):
        values = [
            value for name, value in scope["headers"] if name == b"x-forwarded-for"
        ]
        peer = first_untrusted(peer, b",".join(values), proxies)
    return group_ipv6(peer)


@lru_cache(maxsize=4096)
def first_untrusted(
    peer: str, forwarded_for: bytes, proxies: tuple[Network, ...]
) -> str:
    for entry in reversed(forwarded_for.decode("latin-1").split(",")):
        hop = without_port(entry.strip())
        if parse_ip(hop) is None:
            break
        peer = hop
        if not is_in(hop, proxies):
            break
    return peer


@lru_cache(maxsize=4096)
def is_in(address: str, networks: tuple[Network, ...]) -> bool:
    ip = parse_ip(address)
    return ip is not None and any(ip in network for network in networks)


@lru_cache(maxsize=4096)
def group_ipv6(address: str) -> str:
    """Replace an IPv6 address by its network, as one client has many addresses."""
    ip = parse_ip(address)
    if not isinstance(ip, IPv6Address):
        return address
    bits = ip.max_prefixlen - CLIENT_PREFIX
    return f"{IPv6Address(int(ip) >> bits << bits)}/{CLIENT_PREFIX}"


def parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip


def without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, _ = text.partition(":")
    return host if colon and text.count(":") == 1 else text


@lru_cache(maxsize=1024)
def is_local_host(host: bytes) -> bool:
    """Return whether a Host header names this machine.

    Another site can resolve its own name to this address (DNS rebinding), and a browser
    would treat our responses as that site's.
    """
    name = without_port(host.decode("latin-1").strip().lower()).removesuffix(".")
    ip = parse_ip(name)
    if ip is not None:
        return ip.is_loopback
    return name == "localhost" or name.endswith(".localhost")


def is_allowed_origin(origin: bytes, allowed: Iterable[str]) -> bool:
    """Return whether a page was served by this machine, or its origin is allowed."""
    text = origin.decode("latin-1")
    if text in allowed:
        return True
    try:
        host = urlsplit(text).netloc
    except ValueError:
        return False
    return is_local_host(host.encode("latin-1"))
