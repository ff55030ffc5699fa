"""Bind the listening socket, with a readable error if that fails."""

import errno
import ipaddress
import socket

from penstock.entrypoints.api.server.uvicorn_server import BACKLOG
from penstock.errors import Misconfigured

REMEDIES = {
    errno.EADDRINUSE: "the address is already in use; choose another --port, or 0",
    errno.EACCES: "permission denied; choose a --port from 1024 on",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose another --host",
}


def listen(host: str, port: int, *, is_open: bool) -> socket.socket:
    """Listen at an address; unless `is_open` it must be a loopback address."""
    family, address = resolve(host, port)
    is_loopback = ipaddress.ip_address(address[0]).is_loopback
    if not is_loopback and not is_open:
        raise Misconfigured(
            f"--host {host}: without [auth] only this machine may connect; "
            "declare [auth] in penstock.toml, or listen at 127.0.0.1"
        )
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # not also all IPv4 addresses, where another process may listen
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        reason = REMEDIES.get(error.errno or 0, error.strerror)
        raise Misconfigured(f"{format_address(host, port)}: {reason}") from error
    listening.settimeout(0)
    return listening


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        text = "this is no address of this machine; write 127.0.0.1, or 0.0.0.0 for all"
        raise Misconfigured(f"--host {host}: {text}") from error
    # if a name has both families, most clients use IPv4
    family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    return family, (str(address[0]), port)


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{format_address(host, port)}"


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
