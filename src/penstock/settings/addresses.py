"""Read the address of a server, and say it without what is secret.

What is accepted here means the same to libpq and to redis-py, which read addresses
in two ways of their own: where they would differ, percent-encoding is demanded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import TypeAlias
from urllib.parse import unquote, unquote_plus

from penstock.settings.problems import Unfit

Option: TypeAlias = tuple[str, str]

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
ADDRESS = re.compile(
    r"(?:(?P<user>[^:@/?\[\]]*)(?::(?P<password>[^@/?\[\]]*))?@)?"
    r"(?P<hosts>[^@/?]*)(?P<path>/[^@?]*)?(?:\?(?P<options>[^@]*))?"
)
HOST = re.compile(r"(?P<name>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?")
PORT = re.compile(r"[0-9]{1,5}")
OPTION = re.compile(r"(?P<name>[A-Za-z_]{1,40})=(?P<value>[^=]*)")
UNWRITABLE = re.compile(r"[^!-~]")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")

LAST_PORT = 65_535
WRONG_PORT = f"has a port that is no number from 1 to {LAST_PORT}; correct it"
SECRET_OPTIONS = frozenset(
    {
        "password",
        "sslpassword",
        "ssl_password",
        "oauth_client_secret",
        "scram_client_key",
        "scram_server_key",
    }
)
# words that stand in our own messages: a mark in their place would only confuse
OWN_WORDS = frozenset({"penstock"})

# the sentences never quote an address: what is wrong with it may be its password
ENCODE = "percent-encode its user and password (@ is %40, / is %2F, ? is %3F)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    name: str
    port: str


NO_HOST = Host(name="", port="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The parts of an address as they are written, escapes and all."""

    scheme: str
    user: str
    password: str
    hosts: tuple[Host, ...]
    path: str
    options: tuple[Option, ...]

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    @property
    def shown(self) -> str:
        """The address without passwords."""
        user = f"{self.user}@" if self.user else ""
        hosts = ",".join(
            f"{each.name}:{each.port}" if each.port else each.name
            for each in self.hosts
        )
        open_options = "&".join(
            f"{name}={value}"
            for name, value in self.options
            if name not in SECRET_OPTIONS
        )
        options = f"?{open_options}" if open_options else ""
        return f"{self.scheme}://{user}{hosts}{self.path}{options}"


def scheme_of(url: str) -> str:
    found = SCHEME.match(url)
    return "" if found is None else found[1]


def read_address(url: str, *, such_as: str) -> Address:
    """Take an address apart, or raise `Unfit` without a word of it."""
    check_characters(url)
    scheme = scheme_of(url)
    found = ADDRESS.fullmatch(url.removeprefix(f"{scheme}://"))
    if found is None:
        raise Unfit(f"is not an address such as '{such_as}'; {ENCODE}")
    return Address(
        scheme=scheme,
        user=found["user"] or "",
        password=found["password"] or "",
        hosts=tuple(read_host(each) for each in found["hosts"].split(",")),
        path=found["path"] or "",
        options=tuple(read_options(found["options"] or "")),
    )


def check_characters(url: str) -> None:
    if UNWRITABLE.search(url):
        # the variable of a secret that was read from a file often ends in a newline
        raise Unfit(
            "holds a space, a line break or a character outside ASCII; "
            "remove it, or percent-encode it"
        )
    if "#" in url:
        raise Unfit("must have no fragment; write %23 for a # in the password")
    if NO_ESCAPE.search(url):
        raise Unfit("holds a % that begins no escape; write %25 for a plain %")
    try:
        decoded = unquote(url, errors="strict")
    except UnicodeDecodeError:
        raise Unfit("holds escapes that are not UTF-8 text; encode it anew") from None
    if CONTROL.search(decoded):
        raise Unfit("holds the escape of a control character; remove it")


def read_host(text: str) -> Host:
    found = HOST.fullmatch(text)
    name = "" if found is None else found["name"]
    if found is None or (name.startswith("[") and not is_ipv6(name)):
        raise Unfit("has brackets around what is no IPv6 address; write [::1]")
    port = found["port"]
    if port is not None and not is_port(port):
        raise Unfit(WRONG_PORT)
    return Host(name=name, port=port or "")


def is_ipv6(name: str) -> bool:
    try:
        IPv6Address(name[1:-1])
    except AddressValueError:
        return False
    return True


def is_port(text: str) -> bool:
    return PORT.fullmatch(text) is not None and 1 <= int(text) <= LAST_PORT


def read_options(text: str) -> Iterator[Option]:
    names = set[str]()
    for each in text.split("&") if text else ():
        found = OPTION.fullmatch(each)
        if found is None:
            raise Unfit("has options that are not written as name=value&name=value")
        name = found["name"]
        if name in names:
            raise Unfit(f"gives option {name!r} twice; keep one")
        names.add(name)
        yield name, found["value"]


def passwords_in(url: str) -> Iterator[str]:
    """Yield what is secret, as written and decoded, even of an address refused."""
    rest, _, options = url.partition("://")[2].partition("?")
    login, at, behind = rest.rpartition("@")
    user, _, password = login.partition(":")
    # a password that stands there openly as well cannot be hidden: a mark in the
    # place of the user's name would tell that they are the same
    shown = {unquote(each) for each in (user, *re.split("[/:,]", behind))}
    written = [password] if at else []
    for each in options.split("&"):
        name, _, value = each.partition("=")
        if unquote(name) in SECRET_OPTIONS:
            written.append(value)
    for each in written:
        if each and unquote(each) not in shown | OWN_WORDS:
            yield from dict.fromkeys((each, unquote(each), unquote_plus(each)))
