"""Take an address to listen at, or say in a sentence why it cannot be had."""

import errno
import ipaddress
import socket

from penstock.entrypoints.api.server import BACKLOG
from penstock.errors import Misconfigured

REMEDIES = {
    errno.EADDRINUSE: "somebody listens there already; choose another --port, or 0",
    errno.EACCES: "this user may not; choose a --port from 1024 on",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose another --host",
}


def listen(host: str, port: int, *, is_open: bool) -> socket.socket:
    """Listen at an address; only one that is open may be reached from elsewhere."""
    family, address = resolved(host, port)
    is_here = ipaddress.ip_address(address[0]).is_loopback
    if not is_here and not is_open:
        raise Misconfigured(
            f"--host {host}: without [auth] only this machine may ask; "
            "declare [auth] in penstock.toml, or listen at 127.0.0.1"
        )
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # not also every IPv4 address, which somebody else may have
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        reason = REMEDIES.get(error.errno or 0, error.strerror)
        raise Misconfigured(f"{shown(host, port)}: {reason}") from error
    listening.settimeout(0)
    return listening


def resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        told = "this is no address of this machine; write 127.0.0.1, or 0.0.0.0 for all"
        raise Misconfigured(f"--host {host}: {told}") from error
    # where a name has both, most clients come by IPv4
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, (str(address[0]), port)


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{shown(host, port)}"


def shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
