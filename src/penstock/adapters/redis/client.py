"""Connect to a Redis server, and turn its errors into ours."""

from collections.abc import Iterator
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

from penstock.domain.times import EPOCH
from penstock.errors import Misconfigured, StoreUnavailable

OLDEST = (6, 2)

CONNECT_TIMEOUT = timedelta(seconds=2)
ANSWER_TIMEOUT = timedelta(seconds=2)
# as many as a worker may have threads
MOST_CONNECTIONS = 64

REMEDIES = {
    "LOADING": "it reads its file; wait until it is ready",
    "READONLY": "it is a replica; give the address of the primary",
    "MASTERDOWN": "it is a replica that lost its primary; give the primary's address",
    "OOM": "its memory is full; raise maxmemory",
    "MISCONF": "it cannot write its file; look at its log and its disk",
    "NOREPLICAS": "it has too few replicas to accept writes",
    "BUSY": "a script of somebody else blocks it",
    "CLUSTERDOWN": "its cluster is down",
}
UNREACHABLE = "check that it runs and that penstock.redis is its address"


def connect(url: str) -> Redis:
    """Return a client for `redis://`, `rediss://` or `unix://`; nothing is sent yet.

    It never sends a command twice: a token whose answer is lost stays taken.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MOST_CONNECTIONS,
            timeout=ANSWER_TIMEOUT.total_seconds(),
            socket_connect_timeout=CONNECT_TIMEOUT.total_seconds(),
            socket_timeout=ANSWER_TIMEOUT.total_seconds(),
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            protocol=2,
        )
    except ValueError:
        # neither the address nor the reason is told: they may hold a password
        raise Misconfigured(
            "penstock.redis: this is not an address of a Redis server; write "
            "redis://[user:password@]host:port/number, rediss:// for TLS, or "
            "unix:///path; a password needs its special characters as %XX"
        ) from None
    # unlike one that is handed to the constructor, it is closed with its client
    return Redis.from_pool(pool)


def place_of(client: Redis) -> str:
    """Name the server as an operator may see it: never with a password."""
    told = client.connection_pool.connection_kwargs
    number = told.get("db") or 0
    if path := told.get("path"):
        return f"unix://{path}?db={number}"
    is_tls = issubclass(client.connection_pool.connection_class, SSLConnection)
    host, port = told.get("host", "localhost"), told.get("port", 6379)
    return f"{'rediss' if is_tls else 'redis'}://{host}:{port}/{number}"


@contextmanager
def translated(client: Redis) -> Iterator[None]:
    """Turn the driver's errors into ours, with the place and the remedy."""
    try:
        yield
    except RedisError as error:
        raise translation(error, place_of(client)) from error


def translation(error: RedisError, place: str) -> Misconfigured | StoreUnavailable:
    """Say whether an operator has to act, or whether it may pass by itself."""
    told = str(error).strip() or type(error).__name__
    if isinstance(error, AuthenticationError | AuthorizationError):
        return Misconfigured(
            f"{place}: {told}; put the right user and password into penstock.redis"
        )
    if isinstance(error, NoPermissionError) or lacks_right(told):
        return Misconfigured(
            f"{place}: {told}; allow this user hash commands, scripts, INFO and TIME "
            "on keys that begin with penstock:"
        )
    if isinstance(error, MovedError):
        return Misconfigured(
            f"{place}: this node of a cluster does not hold the budgets; "
            "give a server that holds all keys"
        )
    if "DB index" in told or "Invalid Database" in told:
        return Misconfigured(
            f"{place}: {told}; give the number of a database that it has"
        )
    code = error.status_code or told.split(" ", 1)[0]
    return StoreUnavailable(f"{place}: {told}; {REMEDIES.get(code, UNREACHABLE)}")


def lacks_right(told: str) -> bool:
    """Say whether a command inside a script was refused; each version words it anew."""
    return "ACL failure" in told or "user executing the script" in told


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What is worth knowing of a server before it is relied on."""

    version: str
    now: datetime


def describe(client: Redis) -> ServerFacts:
    """Ask a server for its version and its clock; refuse one that is too old."""
    with translated(client):
        version = str(client.info("server")["redis_version"])
        seconds, microseconds = client.time()
    refuse_old(version, place_of(client))
    now = EPOCH + timedelta(seconds=seconds, microseconds=microseconds)
    return ServerFacts(version=version, now=now)


def refuse_old(version: str, place: str) -> None:
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if parts < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise Misconfigured(
            f"{place}: the server is version {version}; "
            f"Penstock needs {oldest} or newer"
        )
