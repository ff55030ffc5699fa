"""Which addresses belong to the public internet, and which only we can reach."""

import ipaddress
import socket

GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# their last 32 bits are an IPv4 address: mapped, and behind NAT64 (RFC 6052)
IPV4_MAPPED = (
    ipaddress.IPv6Network("::ffff:0:0/96"),
    ipaddress.IPv6Network("64:ff9b::/96"),
)
# tunnels to IPv4 addresses, and the range for documentation: Teredo, 6to4 (deprecated
# by RFC 7526), 3fff::/20
EXCLUDED = (
    ipaddress.IPv6Network("2001::/32"),
    ipaddress.IPv6Network("2002::/16"),
    ipaddress.IPv6Network("3fff::/20"),
)
# the bits before the last 32 that announce an IPv4 address (RFC 5214)
ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
IPV4_MASK = 0xFFFF_FFFF


class PrivateAddress(Exception):
    """A host has an address that is not public; the message names both."""


def resolve(host: str, *, allow_private: bool) -> str:
    """Return the first address of a host, if all of them are allowed.

    Connect to this address: the name may resolve to another one later. Raises
    `PrivateAddress`, or `OSError` if the name cannot be resolved.
    """
    results = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = [str(result[4][0]) for result in results]
    for address in addresses:
        if not allow_private and not is_public(address):
            raise PrivateAddress(f"{host} is {address}, which is not a public address")
    return addresses[0]


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet, however it is written.

    Of IPv6 only what is listed here does: Python's own tables differ by version, and
    many forms contain an IPv4 address that a router extracts again.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv4Address):
        return is_public_ipv4(int(parsed))
    number = int(parsed)
    if any(parsed in network for network in IPV4_MAPPED):
        return is_public_ipv4(number & IPV4_MASK)
    if (number >> 32) & IPV4_MASK in ISATAP and not is_public_ipv4(number & IPV4_MASK):
        return False
    return (
        parsed in GLOBAL_UNICAST
        and parsed.is_global
        and not any(parsed in network for network in EXCLUDED)
    )


def is_public_ipv4(number: int) -> bool:
    address = ipaddress.IPv4Address(number)
    return address.is_global and not address.is_multicast
