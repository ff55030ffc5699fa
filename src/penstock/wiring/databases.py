"""Open the databases of the ledger, the records and the budgets."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from penstock.adapters.sqlstore.slow_statements import OnSlow
from penstock.adapters.sqlstore.stores import Limiter, build_stores
from penstock.adapters.telemetry.samples import SampleCollector
from penstock.domain.events import StatementName, StatementWasSlow
from penstock.domain.hooks import find_subscribers
from penstock.errors import Misconfigured
from penstock.flow.flush_samples import FlushSamples
from penstock.ports import Emit, ServerDiagnostics, SqlStatement, Stores
from penstock.ports.database_watch import DatabaseWatch
from penstock.settings import Settings
from penstock.wiring.container import Container
from penstock.wiring.process_identity import new_worker_id
from penstock.wiring.telemetry import fan_out

# SQLite's own name for a database without a file
IN_MEMORY = Path(":memory:")
# as metrics name the connections of everything but the API
LEDGER_POOL = "ledger"
# how long a diagnostic waits for a server that does not respond
DIAGNOSTIC_TIMEOUT = timedelta(seconds=3)


@contextmanager
def open_container(
    settings: Settings,
    emit: Emit,
    *,
    scratch: bool = False,
    threads: int = 1,
    watch: DatabaseWatch | None = None,
) -> Iterator[Container]:
    """Open the stores of the settings, and close them at the end.

    With `scratch`, the stores are empty and in memory: for commands that only read.
    `watch` hears of each statement.
    """
    samples = SampleCollector()
    emit = fan_out(emit, samples)
    with ExitStack() as stack:
        if scratch:
            stores = sqlite_stores(IN_MEMORY, settings, stack, emit, watch)
        elif settings.sqlite_path is not None:
            stores = sqlite_stores(settings.sqlite_path, settings, stack, emit, watch)
        else:
            stores = postgres_stores(
                settings, stack, emit, threads=threads, watch=watch
            )
        flush = FlushSamples(samples.take, stores.rollups, process=new_worker_id())
        container = Container(
            settings=settings, stores=stores, emit=emit, flush_samples=flush
        )
        stack.callback(container.flush_traces)
        yield container


def slow_reporter(emit: Emit) -> OnSlow:
    """Return what emits an event for a slow statement."""

    def report(statement: StatementName, took: timedelta) -> None:
        emit(StatementWasSlow(statement=statement, took=took))

    return report


def sqlite_stores(
    path: Path,
    settings: Settings,
    stack: ExitStack,
    emit: Emit,
    watch: DatabaseWatch | None,
) -> Stores:
    from penstock.adapters.sqlite.database import SqliteDatabase
    from penstock.adapters.sqlite.ledger import NoNotifier, SqliteLedger
    from penstock.adapters.sqlite.schema import SqliteSchema

    database = SqliteDatabase(
        path,
        busy=settings.commit_timeout,
        on_slow=slow_reporter(emit),
        observe=None if watch is None else watch.observe,
    )
    stack.callback(database.close)
    subscribers = find_subscribers(settings.hooks.values())
    return build_stores(
        database,
        schema=SqliteSchema(database),
        ledger=SqliteLedger(database, lease=settings.lease, subscribers=subscribers),
        lease=settings.lease,
        notifier=NoNotifier(),
        limiter=None if path is IN_MEMORY else redis_limiter(settings, stack),
        subscribers=subscribers,
    )


def postgres_stores(
    settings: Settings,
    stack: ExitStack,
    emit: Emit,
    *,
    threads: int,
    watch: DatabaseWatch | None,
) -> Stores:
    from penstock.adapters.postgres.database import PostgresDatabase
    from penstock.adapters.postgres.ledger import PostgresLedger
    from penstock.adapters.postgres.notifications import ListenNotifier
    from penstock.adapters.postgres.schema import PostgresSchema

    if settings.postgres_url is None:
        raise Misconfigured("penstock.database: is neither SQLite nor PostgreSQL")
    database = PostgresDatabase(
        settings.postgres_url,
        place=settings.place,
        schema=settings.schema,
        limit=settings.commit_timeout,
        # one for each worker thread, one for the thread that watches them and for quick
        # maintenance, and one for slow maintenance
        most_connections=threads + 2,
        on_slow=slow_reporter(emit),
        observe=None if watch is None else watch.observe,
    )
    stack.callback(database.close)
    if watch is not None:
        watch.add_pool(LEDGER_POOL, database.connections.use)
    bell = ListenNotifier(database.connections.open_connection, schema=settings.schema)
    stack.callback(bell.close)
    subscribers = find_subscribers(settings.hooks.values())
    return build_stores(
        database,
        schema=PostgresSchema(database),
        ledger=PostgresLedger(database, lease=settings.lease, subscribers=subscribers),
        lease=settings.lease,
        notifier=bell,
        limiter=redis_limiter(settings, stack),
        subscribers=subscribers,
    )


def list_statements(settings: Settings, dataset: str) -> Sequence[SqlStatement]:
    """Return the statements that are composed for a dataset; opens no database."""
    declared = settings.dataset(dataset)
    if settings.sqlite_path is not None:
        from penstock.adapters.sqlite import table_sql

        return [*table_sql.list_statements(declared)]
    from penstock.adapters.postgres import statement_list

    return [*statement_list.list_statements(declared)]


def redis_limiter(settings: Settings, stack: ExitStack) -> Limiter | None:
    """Return a factory of budgets in Redis, if it is configured."""
    if settings.redis is None:
        return None
    from penstock.adapters.redis.budgets import RedisBudgets
    from penstock.adapters.redis.client import connect

    client = connect(settings.redis)
    stack.callback(client.close)
    return lambda lasting: RedisBudgets(client, lasting, namespace=settings.schema)


def server_diagnostics(
    settings: Settings, stack: ExitStack
) -> Iterator[ServerDiagnostics]:
    """Yield the diagnostics of each configured server."""
    if settings.postgres_url is not None:
        from penstock.adapters.postgres.database import PostgresDatabase
        from penstock.adapters.postgres.diagnostics import PostgresDiagnostics

        database = PostgresDatabase(
            settings.postgres_url,
            place=settings.place,
            schema=settings.schema,
            limit=min(DIAGNOSTIC_TIMEOUT, settings.commit_timeout),
            most_connections=1,
        )
        stack.callback(database.close)
        yield PostgresDiagnostics(database)
    if settings.redis is not None:
        from penstock.adapters.redis.client import RedisDiagnostics

        yield RedisDiagnostics(settings.redis)
