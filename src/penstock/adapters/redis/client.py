"""Connect to a Redis server, and translate its errors into Penstock's own."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from redis import BlockingConnectionPool, Redis, SSLConnection
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    MovedError,
    NoPermissionError,
    RedisError,
)
from redis.retry import Retry
from typing_extensions import override

from penstock.domain.dataset import Dataset
from penstock.domain.formats import EPOCH
from penstock.errors import Misconfigured, StoreUnavailable
from penstock.ports import Diagnostic, ServerDiagnostics

MIN_VERSION = (6, 2)

CONNECT_TIMEOUT = timedelta(seconds=2)
RESPONSE_TIMEOUT = timedelta(seconds=2)
# as many as the threads of a worker
MAX_CONNECTIONS = 64

REMEDIES = {
    "LOADING": "it loads its file; wait until it is ready",
    "READONLY": "it is a replica; give the address of the primary",
    "MASTERDOWN": "it is a replica that lost its primary; give the primary's address",
    "OOM": "its memory is full; raise maxmemory",
    "MISCONF": "it cannot write its file; check its log and its disk",
    "NOREPLICAS": "it has too few replicas to accept writes",
    "BUSY": "another script blocks it",
    "CLUSTERDOWN": "its cluster is down",
}
UNREACHABLE = "check that it runs and that penstock.redis is its address"


def connect(url: str) -> Redis:
    """Return a client for `redis://`, `rediss://` or `unix://`; nothing is sent yet.

    It never sends a command twice: a token whose response is lost stays taken.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=RESPONSE_TIMEOUT.total_seconds(),
            socket_connect_timeout=CONNECT_TIMEOUT.total_seconds(),
            socket_timeout=RESPONSE_TIMEOUT.total_seconds(),
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            protocol=2,
        )
    except ValueError:
        # neither the URL nor the reason is shown: they may contain a password
        raise Misconfigured(
            "penstock.redis: this is not an address of a Redis server; write "
            "redis://[user:password@]host:port/number, rediss:// for TLS, or "
            "unix:///path; a password needs its special characters as %XX"
        ) from None
    # unlike a pool passed to the constructor, it is closed with its client
    return Redis.from_pool(pool)


def server_url(client: Redis) -> str:
    """Return the URL of the server without its password."""
    options = client.connection_pool.connection_kwargs
    number = options.get("db") or 0
    if path := options.get("path"):
        return f"unix://{path}?db={number}"
    is_tls = issubclass(client.connection_pool.connection_class, SSLConnection)
    host, port = options.get("host", "localhost"), options.get("port", 6379)
    return f"{'rediss' if is_tls else 'redis'}://{host}:{port}/{number}"


@contextmanager
def translate_errors(client: Redis) -> Iterator[None]:
    """Translate the driver's errors, with the server and a remedy."""
    try:
        yield
    except RedisError as error:
        raise translate_error(error, server_url(client)) from error


def translate_error(error: RedisError, server: str) -> Misconfigured | StoreUnavailable:
    """Return whether an operator has to act, or whether it is transient."""
    message = str(error).strip() or type(error).__name__
    if isinstance(error, AuthenticationError | AuthorizationError):
        return Misconfigured(
            f"{server}: {message}; put the right user and password into penstock.redis"
        )
    if isinstance(error, NoPermissionError) or lacks_permission(message):
        return Misconfigured(
            f"{server}: {message}; allow this user hash commands, scripts, INFO and "
            "TIME on keys that begin with penstock:"
        )
    if isinstance(error, MovedError):
        return Misconfigured(
            f"{server}: this node of a cluster does not hold the budgets; "
            "give a server that holds all keys"
        )
    if "DB index" in message or "Invalid Database" in message:
        return Misconfigured(
            f"{server}: {message}; give the number of a database that it has"
        )
    code = error.status_code or message.split(" ", 1)[0]
    return StoreUnavailable(f"{server}: {message}; {REMEDIES.get(code, UNREACHABLE)}")


def lacks_permission(message: str) -> bool:
    """Return whether a script lacks permission; the wording differs by version."""
    return "ACL failure" in message or "user executing the script" in message


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The version and the clock of a server."""

    version: str
    now: datetime


def describe(client: Redis) -> ServerFacts:
    """Return the version and the clock of a server; refuse one that is too old."""
    with translate_errors(client):
        version = str(client.info("server")["redis_version"])
        seconds, microseconds = client.time()
    refuse_old(version, server_url(client))
    now = EPOCH + timedelta(seconds=seconds, microseconds=microseconds)
    return ServerFacts(version=version, now=now)


def refuse_old(version: str, server: str) -> None:
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if parts < MIN_VERSION:
        minimum = ".".join(map(str, MIN_VERSION))
        raise Misconfigured(
            f"{server}: the server is version {version}; "
            f"Penstock needs {minimum} or newer"
        )


class RedisDiagnostics(ServerDiagnostics):
    def __init__(self, url: str) -> None:
        self._url = url

    @property
    @override
    def server(self) -> str:
        return "redis"

    @override
    def about(
        self, datasets: Iterable[Dataset], *, threads: int
    ) -> Iterator[Diagnostic]:
        with connect(self._url) as client:
            message = f"Redis {describe(client).version} at {server_url(client)}"
        yield Diagnostic(what="redis", is_ok=True, message=message)

    @override
    def now(self) -> datetime:
        with connect(self._url) as client:
            return describe(client).now
