"""Read, resolve and compare the addresses that a provider names."""

import re
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, quote, urldefrag, urljoin, urlsplit

from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from penstock.adapters.http.hiding import READABLE

# RFC 8288: <address>; name="value"; name=value, <address> …
LINK = re.compile(
    r'<([^<>]*)>((?:\s*;\s*[^\s;,="]+(?:\s*=\s*(?:"[^"]*"|[^\s;,"]*))?)*)'
)
# a longer header is no list of links but an attempt to keep us busy
LONGEST_HEADER = 16_384
RELATION = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]*))', re.IGNORECASE)

# a backslash, a blank or a control character, or somebody's name before the host
AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\\\]|^[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*@")

DEFAULT_PORTS = {"http": 80, "https": 443}


def next_link(header: str | None) -> str | None:
    """Return the address that a Link header calls next."""
    for address, about in LINK.findall((header or "")[:LONGEST_HEADER]):
        for quoted, bare in RELATION.findall(about):
            if "next" in (quoted or bare).lower().split():
                return str(address)
    return None


def resolve(base: str, address: str) -> str:
    """Return an address as seen from another; raise `ValueError` if it is none."""
    return urldefrag(urljoin(base, address.strip())).url


def is_same_place(base: str, address: str) -> bool:
    """Tell whether an address may be sent what is meant for the first one."""
    try:
        ours, theirs = place(base), place(address)
    except (ValueError, LocationParseError):
        return False
    # the same host by TLS is safer, not another place
    return theirs in (ours, upgraded(ours))


def place(address: str) -> tuple[str, str, int | None]:
    """Return where an address leads, as read by the parser that will connect.

    Others read some addresses differently, and what two read differently is no
    address: a provider could have the key sent to a stranger.
    """
    if AMBIGUOUS.search(address):
        raise ValueError("the address can be read in two ways")
    parts = parse_url(address)
    scheme = (parts.scheme or "").lower()
    port = parts.port or DEFAULT_PORTS.get(scheme)
    return scheme, (parts.host or "").lower(), port


def upgraded(there: tuple[str, str, int | None]) -> tuple[str, str, int | None]:
    scheme, host, port = there
    if (scheme, port) == ("http", DEFAULT_PORTS["http"]):
        return "https", host, DEFAULT_PORTS["https"]
    return there


def host_of(address: str) -> str:
    """Return the host of an address, which may be shown."""
    try:
        return urlsplit(address).hostname or "(none)"
    except ValueError:
        return "(none)"


def server_of(address: str) -> str:
    """Return the host of an address, with its port where one is written."""
    host = host_of(address)
    try:
        port = urlsplit(address).port
    except ValueError:
        port = None
    if port is None:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def with_query(address: str, parameters: Mapping[str, str]) -> str:
    """Add parameters to an address that may have some."""
    if not parameters:
        return address
    told = "&".join(f"{encode(name)}={encode(parameters[name])}" for name in parameters)
    return f"{address}{'&' if '?' in address else '?'}{told}"


def encode(text: str) -> str:
    return quote(text, safe=READABLE)


def without(address: str, names: Collection[str]) -> str:
    """Leave parameters out of an address; the others stay byte for byte."""
    base, mark, query = address.partition("?")
    kept = [each for each in query.split("&") if name_of(each) not in names]
    return base + mark + "&".join(kept) if kept and query else base


def with_missing(address: str, parameters: Mapping[str, str]) -> str:
    """Add the parameters that an address does not have yet."""
    known = {name_of(each) for each in address.partition("?")[2].split("&")}
    absent = {name: parameters[name] for name in parameters if name not in known}
    return with_query(address, absent)


def name_of(pair: str) -> str:
    pairs = parse_qsl(pair, keep_blank_values=True)
    return pairs[0][0] if pairs else ""
