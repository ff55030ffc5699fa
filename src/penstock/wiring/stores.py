"""Where the ledger, the records and the budgets are kept."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from penstock.adapters.sql.stores import Limiter, stores_of
from penstock.errors import Misconfigured
from penstock.ports import Emit, Facts, Stores
from penstock.settings import Settings
from penstock.wiring.penstock import Penstock

# SQLite's own name for a database without a file
IN_MEMORY = Path(":memory:")
# how long somebody who only looks waits for a server that does not answer
LONGEST_LOOK = timedelta(seconds=3)


@contextmanager
def opened(
    settings: Settings, emit: Emit, *, scratch: bool = False, threads: int = 1
) -> Iterator[Penstock]:
    """Connect what the settings name, and close it again.

    A scratch one keeps everything in memory, for those who only look.
    """
    with ExitStack() as stack:
        if scratch:
            stores = sqlite_stores(IN_MEMORY, settings, stack)
        elif settings.sqlite_path is not None:
            stores = sqlite_stores(settings.sqlite_path, settings, stack)
        else:
            stores = postgres_stores(settings, stack, threads=threads)
        yield Penstock(settings=settings, stores=stores, emit=emit)


def sqlite_stores(path: Path, settings: Settings, stack: ExitStack) -> Stores:
    from penstock.adapters.sqlite.bell import Silence
    from penstock.adapters.sqlite.database import Database
    from penstock.adapters.sqlite.ledger import SqliteLedger
    from penstock.adapters.sqlite.schema import SqliteSchema

    database = Database(path, busy=settings.commit_timeout)
    stack.callback(database.close)
    return stores_of(
        database,
        schema=SqliteSchema(database),
        ledger=SqliteLedger(database, lease=settings.lease),
        bell=Silence(),
        limiter=None if path is IN_MEMORY else redis_limiter(settings, stack),
    )


def postgres_stores(settings: Settings, stack: ExitStack, *, threads: int) -> Stores:
    from penstock.adapters.postgres.bell import ListeningBell
    from penstock.adapters.postgres.database import Database
    from penstock.adapters.postgres.ledger import PostgresLedger
    from penstock.adapters.postgres.schema import PostgresSchema

    if settings.postgres_url is None:
        raise Misconfigured("penstock.database: names neither SQLite nor PostgreSQL")
    database = Database(
        settings.postgres_url,
        place=settings.place,
        schema=settings.schema,
        limit=settings.commit_timeout,
        # one for each thread that works, and one for whoever watches them
        most_connections=threads + 1,
    )
    stack.callback(database.close)
    bell = ListeningBell(database.connections.open_one, schema=settings.schema)
    stack.callback(bell.close)
    return stores_of(
        database,
        schema=PostgresSchema(database),
        ledger=PostgresLedger(database, lease=settings.lease),
        bell=bell,
        limiter=redis_limiter(settings, stack),
    )


def redis_limiter(settings: Settings, stack: ExitStack) -> Limiter | None:
    """Return what keeps the budgets in Redis, if the settings name one."""
    if settings.redis is None:
        return None
    from penstock.adapters.redis.budgets import RedisBudgets
    from penstock.adapters.redis.client import connect

    client = connect(settings.redis)
    stack.callback(client.close)
    return lambda lasting: RedisBudgets(client, lasting, namespace=settings.schema)


def facts(settings: Settings, stack: ExitStack) -> Iterator[Facts]:
    """Yield the servers that the settings name, each to be asked about itself."""
    if settings.postgres_url is not None:
        from penstock.adapters.postgres.database import Database
        from penstock.adapters.postgres.facts import PostgresFacts

        database = Database(
            settings.postgres_url,
            place=settings.place,
            schema=settings.schema,
            limit=min(LONGEST_LOOK, settings.commit_timeout),
            most_connections=1,
        )
        stack.callback(database.close)
        yield PostgresFacts(database)
    if settings.redis is not None:
        from penstock.adapters.redis.facts import RedisFacts

        yield RedisFacts(settings.redis)
