"""Parse, resolve and compare the URLs of a provider."""

import re
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, quote, urldefrag, urljoin, urlsplit

from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

# characters that are legal in a query and more readable unescaped
READABLE = ",:()"

# RFC 8288: <url>; name="value"; name=value, <url> …
LINK = re.compile(
    r'<([^<>]*)>((?:\s*;\s*[^\s;,="]+(?:\s*=\s*(?:"[^"]*"|[^\s;,"]*))?)*)'
)
# a longer header is not a list of links but an attack
MAX_HEADER_LENGTH = 16_384
RELATION = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]*))', re.IGNORECASE)

# a backslash, a blank or a control character, or a user name before the host
AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\\\]|^[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*@")

DEFAULT_PORTS = {"http": 80, "https": 443}


def next_link(header: str | None) -> str | None:
    """Return the URL with relation `next` of a Link header."""
    for url, attributes in LINK.findall((header or "")[:MAX_HEADER_LENGTH]):
        for quoted, bare in RELATION.findall(attributes):
            if "next" in (quoted or bare).lower().split():
                return str(url)
    return None


def resolve(base: str, url: str) -> str:
    """Resolve a URL against a base; raise `ValueError` if it is invalid."""
    return urldefrag(urljoin(base, url.strip())).url


def is_same_origin(base: str, url: str) -> bool:
    """Return whether a URL has the origin of the base, and may get its headers."""
    try:
        base_origin, url_origin = origin_of(base), origin_of(url)
    except (ValueError, LocationParseError):
        return False
    # an upgrade of the same host to TLS is allowed
    return url_origin in (base_origin, upgrade_to_tls(base_origin))


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return the origin of a URL, as parsed by the library that will connect.

    A URL that parsers read differently is refused: a provider could have the key sent
    to another host.
    """
    if AMBIGUOUS.search(url):
        raise ValueError("the URL is ambiguous")
    parts = parse_url(url)
    scheme = (parts.scheme or "").lower()
    port = parts.port or DEFAULT_PORTS.get(scheme)
    return scheme, (parts.host or "").lower(), port


def upgrade_to_tls(found: tuple[str, str, int | None]) -> tuple[str, str, int | None]:
    scheme, host, port = found
    if (scheme, port) == ("http", DEFAULT_PORTS["http"]):
        return "https", host, DEFAULT_PORTS["https"]
    return found


def host_of(url: str) -> str:
    """Return the host of a URL, which may be shown."""
    try:
        return urlsplit(url).hostname or "(none)"
    except ValueError:
        return "(none)"


def server_of(url: str) -> str:
    """Return the host of a URL, with its port if it has one."""
    host = host_of(url)
    try:
        port = urlsplit(url).port
    except ValueError:
        port = None
    if port is None:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def port_of(url: str) -> int | None:
    """Return the port that a URL connects to; None if it has none."""
    try:
        parts = urlsplit(url)
        return parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None


def with_query(url: str, parameters: Mapping[str, str]) -> str:
    """Add parameters to a URL that may have some."""
    if not parameters:
        return url
    query = "&".join(
        f"{quote_parameter(name)}={quote_parameter(parameters[name])}"
        for name in parameters
    )
    return f"{url}{'&' if '?' in url else '?'}{query}"


def quote_parameter(text: str) -> str:
    return quote(text, safe=READABLE)


def without_parameters(url: str, names: Collection[str]) -> str:
    """Remove parameters from a URL; the others stay byte for byte."""
    base, separator, query = url.partition("?")
    pairs = [pair for pair in query.split("&") if parameter_name(pair) not in names]
    return base + separator + "&".join(pairs) if pairs and query else base


def with_missing_parameters(url: str, parameters: Mapping[str, str]) -> str:
    """Add the parameters that a URL does not have yet."""
    present = {parameter_name(pair) for pair in url.partition("?")[2].split("&")}
    absent = {name: parameters[name] for name in parameters if name not in present}
    return with_query(url, absent)


def parameter_name(pair: str) -> str:
    pairs = parse_qsl(pair, keep_blank_values=True)
    return pairs[0][0] if pairs else ""
