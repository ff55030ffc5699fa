"""Which databases and Redis servers the settings can name."""

import re
from collections.abc import Iterator, Mapping

from penstock.settings.addresses import (
    NO_HOST,
    WRONG_PORT,
    Address,
    is_port,
    passwords_in,
    read_address,
    scheme_of,
)
from penstock.settings.problems import KeyPath, Unfit, did_you_mean, nearest
from penstock.settings.server_options import (
    POSTGRES_OPTIONS,
    REDIS_OPTIONS,
    REFUSED_OPTIONS,
)

SQLITE = "sqlite:///penstock.db"
POSTGRES = "postgresql://user@host/db"
REDIS = "redis://127.0.0.1:6379/0"
SOCKET = "unix:///run/redis/redis.sock?db=0"

POSTGRES_SCHEMES = ("postgresql", "postgres")
DATABASE_NUMBER = re.compile(r"[0-9]{1,5}")

CERT_REQS = ("none", "optional", "required")


def as_database(value: object) -> str:
    if not isinstance(value, str):
        raise Unfit(f"must be text in quotes, such as '{SQLITE}'")
    if value.startswith("sqlite:"):
        check_sqlite(value)
    elif is_postgres(value):
        check_postgres(read_address(value, such_as=POSTGRES))
    else:
        raise Unfit(unknown_database(scheme_of(value)))
    return value


def as_replica(value: object) -> str:
    if not isinstance(value, str) or not is_postgres(value):
        raise Unfit(f"must be the address of a replica, such as '{POSTGRES}'")
    check_postgres(read_address(value, such_as=POSTGRES))
    return value


def is_postgres(database: str) -> bool:
    return scheme_of(database) in POSTGRES_SCHEMES


def unknown_database(scheme: str) -> str:
    remedy = f"write '{SQLITE}' or '{POSTGRES}'"
    if not scheme:
        return f"is not the address of a database; {remedy}"
    kind, plus, _ = scheme.lower().partition("+")
    if kind in POSTGRES_SCHEMES:
        told = "names a driver" if plus else "must be in small letters"
        return f"{scheme!r} {told}; write postgresql://"
    return f"{scheme}:// is not supported; {remedy}"


def check_sqlite(database: str) -> None:
    path = database.removeprefix("sqlite:///")
    if path == database or not path or ":memory:" in path:
        raise Unfit(f"must name a file that all workers share, as '{SQLITE}'")
    if "?" in path or "\x00" in path:
        raise Unfit("takes a file name only, without options")
    if path.endswith("/"):
        raise Unfit("names a folder, not a file")


def check_postgres(address: Address) -> None:
    """Refuse what libpq would refuse, and what it would guess."""
    hosts = [host.name for host in address.hosts]
    ports = [host.port for host in address.hosts]
    name = address.path.removeprefix("/")
    if "/" in name:
        raise Unfit("goes on behind the name of the database; write %2F for a plain /")
    if len(hosts) > 1 and not all(hosts):
        raise Unfit("has an empty host between its commas; name it or remove it")
    said = {
        "user": address.user,
        "password": address.password,
        "host": "".join(hosts),
        "port": "".join(ports),
        "dbname": name,
    }
    check_postgres_options(address, said)
    given = {option for option, value in (*said.items(), *address.options) if value}
    if given.isdisjoint({"host", "hostaddr", "service"}):
        socket = "postgresql:///db?host=/var/run/postgresql"
        raise Unfit(f"names no host; write '{POSTGRES}', or '{socket}' for a socket")
    if given.isdisjoint({"dbname", "service"}):
        raise Unfit(f"names no database behind the host; write '{POSTGRES}'")


def check_postgres_options(address: Address, said: Mapping[str, str]) -> None:
    for option, value in address.options:
        if option in REFUSED_OPTIONS:
            raise Unfit(f"option {option!r} {REFUSED_OPTIONS[option]}")
        if option not in POSTGRES_OPTIONS:
            guess = nearest(option, POSTGRES_OPTIONS)
            remedy = "remove it" if guess is None else f"did you mean {guess!r}?"
            raise Unfit(f"{option!r} is no option of PostgreSQL; {remedy}")
        if said.get(option):
            # libpq would take the option without a word
            raise Unfit(f"says {option} before and behind the '?'; keep one")
        if option == "port" and not all(map(is_port, value.split(","))):
            raise Unfit(WRONG_PORT)


def as_redis(value: object) -> str:
    if not isinstance(value, str):
        raise Unfit(f"must be text in quotes, such as '{REDIS}'")
    scheme = scheme_of(value)
    if scheme not in REDIS_OPTIONS:
        remedy = f"write '{REDIS}', rediss:// for TLS, or '{SOCKET}'"
        told = f"{scheme}:// is" if scheme else "is"
        raise Unfit(f"{told} not the address of a Redis server; {remedy}")
    address = read_address(value, such_as=REDIS)
    check_redis_options(address)
    if scheme == "unix":
        check_redis_socket(address)
    else:
        check_redis_host(address)
    if address.user and not address.password:
        # often it is the password: then it must be where passwords are hidden
        raise Unfit(f"has a user and no password; write {scheme}://user:password@…")
    return value


def check_redis_options(address: Address) -> None:
    known = REDIS_OPTIONS[address.scheme]
    for option, value in address.options:
        if not known:
            raise Unfit(f"takes no options; write '{REDIS}', or rediss:// for TLS")
        if option not in known:
            guess = did_you_mean(option, known)
            raise Unfit(f"{option!r} is no option of {address.scheme}://; {guess}")
        if option == "ssl_cert_reqs" and value not in CERT_REQS:
            raise Unfit(f"ssl_cert_reqs must be one of {', '.join(CERT_REQS)}")
        if option == "db" and DATABASE_NUMBER.fullmatch(value) is None:
            raise Unfit("db must be the number of a database, such as db=0")


def check_redis_socket(address: Address) -> None:
    is_path = len(address.path) > 1 and not address.path.endswith("/")
    if not is_path or address.hosts != (NO_HOST,):
        raise Unfit(f"must name a socket by its whole path, as '{SOCKET}'")


def check_redis_host(address: Address) -> None:
    if len(address.hosts) > 1:
        raise Unfit(f"must name one host; write '{REDIS}'")
    if not address.hosts[0].name:
        raise Unfit(f"names no host; write '{REDIS}'")
    number = address.path.removeprefix("/")
    if number and DATABASE_NUMBER.fullmatch(number) is None:
        raise Unfit(f"must end with the number of a database, as '{REDIS}'")


def as_schema(name: str) -> str:
    if name.startswith("pg_") or name == "information_schema":
        raise Unfit("is PostgreSQL's own; choose another, such as 'penstock'")
    return name


def shown_address(url: str) -> str:
    """Return a checked address as an operator may see it."""
    if url.startswith("sqlite:"):
        return url
    return read_address(url, such_as=POSTGRES).shown


def server_passwords(penstock: object) -> Iterator[tuple[KeyPath, str]]:
    """Yield the passwords in a table as written, whether it could be read or not."""
    if not isinstance(penstock, dict):
        return
    replicas = penstock.get("replicas")
    named: list[tuple[KeyPath, object]] = [
        (("penstock", key), penstock.get(key)) for key in ("database", "redis")
    ]
    if isinstance(replicas, list):
        named += [(("penstock", "replicas", n), url) for n, url in enumerate(replicas)]
    for at, url in named:
        if isinstance(url, str):
            for password in passwords_in(url):
                yield at, password
