"""Stores of the API, and what its processes share in Redis."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from penstock.adapters.sqlstore.stores import build_api_stores
from penstock.ports import Emit
from penstock.ports.rate_limits import SharedRateLimiter
from penstock.ports.record_access import ApiStores
from penstock.ports.response_cache import SharedCache
from penstock.settings import Settings
from penstock.wiring.databases import slow_reporter

# how long a query of a client may take
QUERY_TIMEOUT = timedelta(seconds=5)


@contextmanager
def open_api_stores(
    settings: Settings, emit: Emit, *, threads: int
) -> Iterator[ApiStores]:
    """Open the stores of the API, with their own connections."""
    with ExitStack() as stack:
        if settings.sqlite_path is not None:
            from penstock.adapters.sqlite.database import SqliteDatabase

            database = SqliteDatabase(
                settings.sqlite_path, busy=QUERY_TIMEOUT, on_slow=slow_reporter(emit)
            )
            stack.callback(database.close)
            yield build_api_stores(database)
            return
        yield open_postgres_stores(settings, stack, emit, threads=threads)


def open_postgres_stores(
    settings: Settings, stack: ExitStack, emit: Emit, *, threads: int
) -> ApiStores:
    from penstock.adapters.postgres.connection_pool import (
        CLIENT_SESSION,
        REPLICA_SESSION,
        SessionProfile,
    )
    from penstock.adapters.postgres.database import PostgresDatabase
    from penstock.adapters.postgres.replicas import Replica, ReplicatedDatabase

    def connect(url: str, name: str, profile: SessionProfile) -> PostgresDatabase:
        database = PostgresDatabase(
            url,
            place=name,
            schema=settings.schema,
            limit=QUERY_TIMEOUT,
            most_connections=threads,
            manner=profile,
            on_slow=slow_reporter(emit),
        )
        stack.callback(database.close)
        return database

    primary = connect(settings.postgres_url or "", settings.place, CLIENT_SESSION)
    if not settings.replicas:
        return build_api_stores(primary)
    replicas = [
        Replica(connect(url, f"penstock.replicas[{index}]", REPLICA_SESSION))
        for index, url in enumerate(settings.replicas)
    ]
    database = ReplicatedDatabase(primary, replicas)
    return build_api_stores(
        database,
        primary=primary,
        on_news=database.raise_floor,
        on_lost=database.doubt,
        failure=database.failure,
        replicas=database.states,
    )


@contextmanager
def open_shared_cache(settings: Settings) -> Iterator[SharedCache | None]:
    """Open the response cache that API processes share, if Redis is configured."""
    if settings.redis is None:
        yield None
        return
    from penstock.adapters.redis.response_cache import (
        RedisResponseCache,
        connect_with_short_timeout,
    )

    client = connect_with_short_timeout(settings.redis)
    try:
        yield RedisResponseCache(client, namespace=settings.schema)
    finally:
        client.close()


@contextmanager
def open_shared_rate_limiter(settings: Settings) -> Iterator[SharedRateLimiter | None]:
    """Open the rate limiter that API processes share, if Redis is configured."""
    if settings.redis is None:
        yield None
        return
    from penstock.adapters.redis.rate_limiter import RedisRateLimiter
    from penstock.adapters.redis.response_cache import connect_with_short_timeout

    client = connect_with_short_timeout(settings.redis)
    try:
        yield RedisRateLimiter(client, namespace=settings.schema)
    finally:
        client.close()
