"""Stores of the API, and what its processes share in Redis."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from penstock.adapters.sqlstore.stores import build_api_stores
from penstock.ports import Emit
from penstock.ports.database_watch import DatabaseWatch
from penstock.ports.rate_limits import SharedRateLimiter
from penstock.ports.record_access import ApiStores
from penstock.ports.response_cache import SharedCache
from penstock.settings import Settings
from penstock.wiring.databases import slow_reporter

# as metrics name its connections to the primary
API_POOL = "api"
# how long a query of a client may take
QUERY_TIMEOUT = timedelta(seconds=5)


@contextmanager
def open_api_stores(
    settings: Settings,
    emit: Emit,
    *,
    threads: int,
    watch: DatabaseWatch | None = None,
) -> Iterator[ApiStores]:
    """Open the stores of the API, with their own connections."""
    with ExitStack() as stack:
        if settings.sqlite_path is not None:
            from penstock.adapters.sqlite.database import SqliteDatabase

            database = SqliteDatabase(
                settings.sqlite_path,
                busy=QUERY_TIMEOUT,
                on_slow=slow_reporter(emit),
                observe=None if watch is None else watch.observe,
            )
            stack.callback(database.close)
            yield build_api_stores(database)
            return
        yield open_postgres_stores(settings, stack, emit, threads=threads, watch=watch)


def open_postgres_stores(
    settings: Settings,
    stack: ExitStack,
    emit: Emit,
    *,
    threads: int,
    watch: DatabaseWatch | None,
) -> ApiStores:
    from penstock.adapters.postgres.connection_pool import (
        CLIENT_SESSION,
        REPLICA_SESSION,
        SessionProfile,
    )
    from penstock.adapters.postgres.database import PostgresDatabase
    from penstock.adapters.postgres.replicas import Replica, ReplicatedDatabase

    def connect(
        url: str, name: str, profile: SessionProfile, *, pool: str
    ) -> PostgresDatabase:
        database = PostgresDatabase(
            url,
            place=name,
            schema=settings.schema,
            limit=QUERY_TIMEOUT,
            most_connections=threads,
            manner=profile,
            on_slow=slow_reporter(emit),
            observe=None if watch is None else watch.observe,
        )
        stack.callback(database.close)
        if watch is not None:
            watch.add_pool(pool, database.connections.use)
        return database

    primary = connect(
        settings.postgres_url or "", settings.place, CLIENT_SESSION, pool=API_POOL
    )
    if not settings.replicas:
        return build_api_stores(primary)
    names = [f"penstock.replicas[{index}]" for index in range(len(settings.replicas))]
    replicas = [
        Replica(connect(url, name, REPLICA_SESSION, pool=name))
        for name, url in zip(names, settings.replicas, strict=True)
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
