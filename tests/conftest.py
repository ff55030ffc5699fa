"""What every test shares: readable assertions, one Hypothesis profile, real servers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

from tests.services.databases import new_database
from tests.services.private import PrivatePostgres, PrivateRedis, PrivateStandby
from tests.services.shared import BrokeredServers, OwnedServers, Servers

pytest.register_assert_rewrite("tests.contracts", "tests.support.builders")

# a busy machine is slow, which is no failure
settings.register_profile(
    "penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("penstock")

SERVERS = pytest.StashKey[Servers]()
# what pytest-xdist tells its processes, and we through it
BROKER = "penstock_servers"

StartPostgres = Callable[..., PrivatePostgres]
StartRedis = Callable[[], PrivateRedis]
StartStandby = Callable[..., PrivateStandby]


def pytest_configure(config: pytest.Config) -> None:
    result = worker_input(config)
    config.stash[SERVERS] = (
        BrokeredServers(result[BROKER]) if result else OwnedServers()
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    servers = node.config.stash[SERVERS]
    node.workerinput[BROKER] = servers.open_broker()


def pytest_unconfigure(config: pytest.Config) -> None:
    servers = config.stash.get(SERVERS, None)
    if isinstance(servers, OwnedServers):
        servers.close()


def worker_input(config: pytest.Config) -> dict[str, Any]:
    """Tell what pytest-xdist gave this process; nothing where it is the only one."""
    return getattr(config, "workerinput", {})


@pytest.fixture(scope="session")
def postgres_url(pytestconfig: pytest.Config) -> str:
    """Name a database from which others may be created; it is shared by all tests."""
    return pytestconfig.stash[SERVERS].postgres_url()


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """Create an empty database for this test alone."""
    with new_database(postgres_url) as url:
        yield url


@pytest.fixture
def redis_url(pytestconfig: pytest.Config) -> str:
    """Name an empty database that no test which runs meanwhile uses.

    On a server of the caller's own, that is the database its URL names for the first
    process, the next one for the second, and so on: all of them are flushed.
    """
    import redis

    server = urlsplit(pytestconfig.stash[SERVERS].redis_url())
    process = int(worker_input(pytestconfig).get("workerid", "gw0").removeprefix("gw"))
    number = int(server.path.strip("/") or 0) + process
    url = server._replace(path=f"/{number}").geturl()
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture
def rabbit_url(pytestconfig: pytest.Config) -> str:
    """Name a broker that all tests share: each needs queues of its own."""
    return pytestconfig.stash[SERVERS].rabbit_url()


@pytest.fixture
def own_postgres() -> Iterator[StartPostgres]:
    """Start servers that the test may stop and restart, with settings of its own."""
    with ExitStack() as running:

        def start(*, fsync: bool = False, **settings: str) -> PrivatePostgres:
            return running.enter_context(PrivatePostgres(fsync=fsync, **settings))

        yield start


@pytest.fixture
def own_standby() -> Iterator[StartStandby]:
    """Start replicas of a server of the test's own."""
    with ExitStack() as running:

        def start(primary: PrivatePostgres, **settings: str) -> PrivateStandby:
            return running.enter_context(PrivateStandby(primary, **settings))

        yield start


@pytest.fixture
def own_redis() -> Iterator[StartRedis]:
    """Start servers that the test may kill and start again."""
    with ExitStack() as running:
        yield lambda: running.enter_context(PrivateRedis())
