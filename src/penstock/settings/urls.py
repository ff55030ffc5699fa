"""Parse, check and redact the URLs of databases and Redis servers."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import TypeAlias
from urllib.parse import unquote, unquote_plus

from penstock.settings.validation_errors import (
    InvalidValue,
    KeyPath,
    closest_match,
    did_you_mean,
)

# the options of libpq; querying libpq would load the driver before it is needed
POSTGRES_OPTIONS = frozenset(
    {
        "channel_binding",
        "connect_timeout",
        "dbname",
        "gssdelegation",
        "gssencmode",
        "gsslib",
        "host",
        "hostaddr",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "krbsrvname",
        "load_balance_hosts",
        "max_protocol_version",
        "min_protocol_version",
        "oauth_client_id",
        "oauth_client_secret",
        "oauth_issuer",
        "oauth_scope",
        "passfile",
        "password",
        "port",
        "require_auth",
        "requirepeer",
        "scram_client_key",
        "scram_server_key",
        "service",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "sslcert",
        "sslcertmode",
        "sslcompression",
        "sslcrl",
        "sslcrldir",
        "sslkey",
        "sslkeylogfile",
        "sslmode",
        "sslnegotiation",
        "sslpassword",
        "sslrootcert",
        "sslsni",
        "target_session_attrs",
        "tcp_user_timeout",
        "user",
    }
)
SET_BY_PENSTOCK = "is set by Penstock itself; remove it"
REFUSED_OPTIONS = {
    "application_name": SET_BY_PENSTOCK,
    "client_encoding": SET_BY_PENSTOCK,
    "fallback_application_name": SET_BY_PENSTOCK,
    "options": f"{SET_BY_PENSTOCK}, and set it for the role: alter role … set …",
    "replication": "opens no session that can import; remove it",
    "ssl": "is another driver's; write sslmode=require",
}

TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
    "ssl_password",
)
REDIS_BROKER_SCHEMES = ("redis", "rediss")
AMQP_SCHEMES = ("amqp", "amqps")
REDIS_OPTIONS = {"redis": (), "rediss": TLS_OPTIONS, "unix": ("db",)}


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
# passwords that are words of our own messages are not redacted
MESSAGE_WORDS = frozenset({"penstock"})

# no message quotes a URL: the wrong part may be its password
ENCODE = "percent-encode its user and password (@ is %40, / is %2F, ? is %3F)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHost:
    name: str
    port: str


NO_HOST = ServerHost(name="", port="")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The parts of a URL as written, with percent-encoding."""

    scheme: str
    user: str
    password: str
    hosts: tuple[ServerHost, ...]
    path: str
    options: tuple[Option, ...]

    def __repr__(self) -> str:
        return f"ServerAddress({self.shown!r})"

    @property
    def shown(self) -> str:
        """The URL without passwords."""
        user = f"{self.user}@" if self.user else ""
        hosts = ",".join(
            f"{host.name}:{host.port}" if host.port else host.name
            for host in self.hosts
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


def read_address(url: str, *, such_as: str) -> ServerAddress:
    """Parse a URL, or raise `InvalidValue` with no part of it."""
    check_characters(url)
    scheme = scheme_of(url)
    found = ADDRESS.fullmatch(url.removeprefix(f"{scheme}://"))
    if found is None:
        raise InvalidValue(f"is not an address such as '{such_as}'; {ENCODE}")
    return ServerAddress(
        scheme=scheme,
        user=found["user"] or "",
        password=found["password"] or "",
        hosts=tuple(read_host(host) for host in found["hosts"].split(",")),
        path=found["path"] or "",
        options=tuple(read_options(found["options"] or "")),
    )


def check_characters(url: str) -> None:
    if UNWRITABLE.search(url):
        # a secret that was read from a file often ends in a newline
        raise InvalidValue(
            "holds a space, a line break or a character outside ASCII; "
            "remove it, or percent-encode it"
        )
    if "#" in url:
        raise InvalidValue("must have no fragment; write %23 for a # in the password")
    if NO_ESCAPE.search(url):
        raise InvalidValue("holds a % that begins no escape; write %25 for a plain %")
    try:
        decoded = unquote(url, errors="strict")
    except UnicodeDecodeError:
        raise InvalidValue(
            "holds escapes that are not UTF-8 text; encode it anew"
        ) from None
    if CONTROL.search(decoded):
        raise InvalidValue("holds the escape of a control character; remove it")


def read_host(text: str) -> ServerHost:
    found = HOST.fullmatch(text)
    name = "" if found is None else found["name"]
    if found is None or (name.startswith("[") and not is_ipv6(name)):
        raise InvalidValue("has brackets around what is no IPv6 address; write [::1]")
    port = found["port"]
    if port is not None and not is_port(port):
        raise InvalidValue(WRONG_PORT)
    return ServerHost(name=name, port=port or "")


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
    for option in text.split("&") if text else ():
        found = OPTION.fullmatch(option)
        if found is None:
            raise InvalidValue(
                "has options that are not written as name=value&name=value"
            )
        name = found["name"]
        if name in names:
            raise InvalidValue(f"gives option {name!r} twice; keep one")
        names.add(name)
        yield name, found["value"]


def find_passwords(url: str) -> Iterator[str]:
    """Yield the secrets of a URL, as written and decoded, even of an invalid one."""
    rest, _, options = url.partition("://")[2].partition("?")
    login, at_sign, after_login = rest.rpartition("@")
    user, _, password = login.partition(":")
    # a password that equals a visible part is not redacted: that would reveal that
    # they are the same
    shown = {unquote(part) for part in (user, *re.split("[/:,]", after_login))}
    secrets = [password] if at_sign else []
    for part in options.split("&"):
        name, _, value = part.partition("=")
        if unquote(name) in SECRET_OPTIONS:
            secrets.append(value)
    for part in secrets:
        if part and unquote(part) not in shown | MESSAGE_WORDS:
            yield from dict.fromkeys((part, unquote(part), unquote_plus(part)))


SQLITE = "sqlite:///penstock.db"
POSTGRES = "postgresql://user@host/db"
REDIS = "redis://127.0.0.1:6379/0"
AMQP = "amqp://user:password@host:5672/vhost"
SOCKET = "unix:///run/redis/redis.sock?db=0"

POSTGRES_SCHEMES = ("postgresql", "postgres")
DATABASE_NUMBER = re.compile(r"[0-9]{1,5}")

CERT_REQS = ("none", "optional", "required")


def as_database(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"must be text in quotes, such as '{SQLITE}'")
    if value.startswith("sqlite:"):
        check_sqlite(value)
    elif is_postgres(value):
        check_postgres(read_address(value, such_as=POSTGRES))
    else:
        raise InvalidValue(describe_unknown_database(scheme_of(value)))
    return value


def as_replica(value: object) -> str:
    if not isinstance(value, str) or not is_postgres(value):
        raise InvalidValue(f"must be the address of a replica, such as '{POSTGRES}'")
    check_postgres(read_address(value, such_as=POSTGRES))
    return value


def is_postgres(database: str) -> bool:
    return scheme_of(database) in POSTGRES_SCHEMES


def describe_unknown_database(scheme: str) -> str:
    remedy = f"write '{SQLITE}' or '{POSTGRES}'"
    if not scheme:
        return f"is not the address of a database; {remedy}"
    kind, plus, _ = scheme.lower().partition("+")
    if kind in POSTGRES_SCHEMES:
        message = "names a driver" if plus else "must be in small letters"
        return f"{scheme!r} {message}; write postgresql://"
    return f"{scheme}:// is not supported; {remedy}"


def check_sqlite(database: str) -> None:
    path = database.removeprefix("sqlite:///")
    if path == database or not path or ":memory:" in path:
        raise InvalidValue(f"must name a file that all workers share, as '{SQLITE}'")
    if "?" in path or "\x00" in path:
        raise InvalidValue("takes a file name only, without options")
    if path.endswith("/"):
        raise InvalidValue("names a folder, not a file")


def check_postgres(address: ServerAddress) -> None:
    """Refuse what libpq would refuse, and what it would fill with defaults."""
    hosts = [host.name for host in address.hosts]
    ports = [host.port for host in address.hosts]
    name = address.path.removeprefix("/")
    if "/" in name:
        raise InvalidValue(
            "goes on behind the name of the database; write %2F for a plain /"
        )
    if len(hosts) > 1 and not all(hosts):
        raise InvalidValue("has an empty host between its commas; name it or remove it")
    given_parts = {
        "user": address.user,
        "password": address.password,
        "host": "".join(hosts),
        "port": "".join(ports),
        "dbname": name,
    }
    check_postgres_options(address, given_parts)
    present = {
        option for option, value in (*given_parts.items(), *address.options) if value
    }
    if present.isdisjoint({"host", "hostaddr", "service"}):
        socket = "postgresql:///db?host=/var/run/postgresql"
        raise InvalidValue(
            f"names no host; write '{POSTGRES}', or '{socket}' for a socket"
        )
    if present.isdisjoint({"dbname", "service"}):
        raise InvalidValue(f"names no database behind the host; write '{POSTGRES}'")


def check_postgres_options(
    address: ServerAddress, given_parts: Mapping[str, str]
) -> None:
    for option, value in address.options:
        if option in REFUSED_OPTIONS:
            raise InvalidValue(f"option {option!r} {REFUSED_OPTIONS[option]}")
        if option not in POSTGRES_OPTIONS:
            guess = closest_match(option, POSTGRES_OPTIONS)
            remedy = "remove it" if guess is None else f"did you mean {guess!r}?"
            raise InvalidValue(f"{option!r} is no option of PostgreSQL; {remedy}")
        if given_parts.get(option):
            # libpq would silently prefer the option
            raise InvalidValue(f"says {option} before and behind the '?'; keep one")
        if option == "port" and not all(map(is_port, value.split(","))):
            raise InvalidValue(WRONG_PORT)


def as_redis(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"must be text in quotes, such as '{REDIS}'")
    scheme = scheme_of(value)
    if scheme not in REDIS_OPTIONS:
        remedy = f"write '{REDIS}', rediss:// for TLS, or '{SOCKET}'"
        message = f"{scheme}:// is" if scheme else "is"
        raise InvalidValue(f"{message} not the address of a Redis server; {remedy}")
    address = read_address(value, such_as=REDIS)
    check_redis_options(address)
    if scheme == "unix":
        check_redis_socket(address)
    else:
        check_redis_host(address)
    if address.user and not address.password:
        # often the user is meant as the password, which would not be redacted
        raise InvalidValue(
            f"has a user and no password; write {scheme}://user:password@…"
        )
    return value


def as_broker(value: object) -> str:
    scheme = scheme_of(value) if isinstance(value, str) else ""
    if scheme in AMQP_SCHEMES:
        return as_amqp(str(value))
    if scheme not in REDIS_BROKER_SCHEMES:
        message = f"{scheme}:// is" if scheme else "is"
        raise InvalidValue(
            f"{message} not the address of a broker that this version works with; "
            f"write '{REDIS}' or '{AMQP}', or rediss:// and amqps:// for TLS"
        )
    return as_redis(value)


def as_amqp(value: str) -> str:
    address = read_address(value, such_as=AMQP)
    if len(address.hosts) > 1 or not address.hosts[0].name:
        raise InvalidValue(f"must name one host; write '{AMQP}'")
    if address.options:
        raise InvalidValue(f"takes no options; write '{AMQP}', or amqps:// for TLS")
    if address.user and not address.password:
        # often the user is meant as the password, which would not be redacted
        raise InvalidValue(
            f"has a user and no password; write {address.scheme}://user:password@…"
        )
    return value


def check_redis_options(address: ServerAddress) -> None:
    allowed = REDIS_OPTIONS[address.scheme]
    for option, value in address.options:
        if not allowed:
            raise InvalidValue(
                f"takes no options; write '{REDIS}', or rediss:// for TLS"
            )
        if option not in allowed:
            guess = did_you_mean(option, allowed)
            raise InvalidValue(
                f"{option!r} is no option of {address.scheme}://; {guess}"
            )
        if option == "ssl_cert_reqs" and value not in CERT_REQS:
            raise InvalidValue(f"ssl_cert_reqs must be one of {', '.join(CERT_REQS)}")
        if option == "db" and DATABASE_NUMBER.fullmatch(value) is None:
            raise InvalidValue("db must be the number of a database, such as db=0")


def check_redis_socket(address: ServerAddress) -> None:
    is_path = len(address.path) > 1 and not address.path.endswith("/")
    if not is_path or address.hosts != (NO_HOST,):
        raise InvalidValue(f"must name a socket by its whole path, as '{SOCKET}'")


def check_redis_host(address: ServerAddress) -> None:
    if len(address.hosts) > 1:
        raise InvalidValue(f"must name one host; write '{REDIS}'")
    if not address.hosts[0].name:
        raise InvalidValue(f"names no host; write '{REDIS}'")
    number = address.path.removeprefix("/")
    if number and DATABASE_NUMBER.fullmatch(number) is None:
        raise InvalidValue(f"must end with the number of a database, as '{REDIS}'")


def as_schema(name: str) -> str:
    if name.startswith("pg_") or name == "information_schema":
        raise InvalidValue("is PostgreSQL's own; choose another, such as 'penstock'")
    return name


def redact_url(url: str) -> str:
    """Return a checked URL without passwords."""
    if url.startswith("sqlite:"):
        return url
    return read_address(url, such_as=POSTGRES).shown


def server_passwords(penstock: object) -> Iterator[tuple[KeyPath, str]]:
    """Yield the passwords of a table as written, whether it is valid or not."""
    if not isinstance(penstock, dict):
        return
    replicas = penstock.get("replicas")
    urls: list[tuple[KeyPath, object]] = [
        (("penstock", key), penstock.get(key))
        for key in ("database", "redis", "broker")
    ]
    if isinstance(replicas, list):
        urls += [
            (("penstock", "replicas", index), url) for index, url in enumerate(replicas)
        ]
    for at, url in urls:
        if isinstance(url, str):
            for password in find_passwords(url):
                yield at, password
