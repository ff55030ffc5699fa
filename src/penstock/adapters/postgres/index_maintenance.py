"""Keep a dataset's table fast: build its indexes when they are due, and maintain them.

Indexes are most of the cost of storing rows, so an empty table has only its primary
key, and gets the others when its first import has ended, or ten minutes after it began,
whichever comes first. An index that a declaration gains later is built at once. One
process at a time builds, while others continue to read and, except for a moment and for
partitioned tables, to write. Where many rows are deleted, another index has the live
ones in the order of their key.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from psycopg import errors as postgres

from penstock.adapters.postgres.connection_pool import Connection
from penstock.adapters.postgres.database import PostgresDatabase, PostgresTransaction
from penstock.adapters.postgres.gin_cleanup import clean_pending_list
from penstock.adapters.postgres.identifiers import lock_number
from penstock.adapters.postgres.search.term_dictionary import update_terms
from penstock.adapters.postgres.table_sql import PostgresTableSql
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.domain.dataset import Dataset
from penstock.errors import PenstockError

# bytes of a table whose B-tree indexes are built so fast that writers can wait
MAX_BLOCKING_BUILD = 256 * 1024 * 1024
# milliseconds
LOCK_TIMEOUT = 500
# in the definition of a GIN or GiST index, which takes longer to build
USING = " using "
# for a GIN index that fits in memory as a whole: so little fits in the CPU's caches
GIN_BUILD_MEMORY = "16MB"


class IndexMaintenance:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def maintain(self, dataset: Dataset) -> list[str]:
        # read each time: others may have dropped and recreated the table
        missing = self._missing(dataset)
        if missing is None or (missing and self._is_being_loaded(dataset)):
            return []
        is_due = missing or self._has_leftovers(dataset)
        built = describe(self._build(dataset)) if is_due else []
        if missing and not built:
            return []
        if dataset.search:
            self._clean_up(dataset)
            update_terms(self._database, dataset)
        return built

    def due(self, dataset: Dataset) -> list[str]:
        missing = self._missing(dataset)
        if not missing or self._is_being_loaded(dataset):
            return []
        return describe(missing)

    def _missing(self, dataset: Dataset) -> list[str] | None:
        """Return the declared indexes that are missing; None without a table."""

        def work(transaction: PostgresTransaction) -> list[str] | None:
            if not exists(transaction.connection, dataset.name):
                return None
            table = transaction.table(dataset).of
            return missing_indexes(transaction.connection, table)

        return self._database.read(work)

    def _has_leftovers(self, dataset: Dataset) -> bool:
        """Return whether there are indexes of an unfinished build or an old version."""

        def work(transaction: PostgresTransaction) -> bool:
            table = transaction.table(dataset).of
            names = [table.new_index, table.replaced_index, *table.old_indexes]
            return exists(transaction.connection, *names)

        return self._database.read(work)

    def _clean_up(self, dataset: Dataset) -> None:
        """Merge what an import that has ended left in the pending list."""

        def work(transaction: PostgresTransaction) -> None:
            row = transaction.one("is_at_rest", dataset=dataset.name)
            if row is not None and row["is_at_rest"]:
                clean_pending_list(
                    transaction.connection, transaction.table(dataset).of
                )

        # if this user may not, the owner of the index will do it, or the server
        with suppress(PenstockError):
            self._database.read(work)

    def _is_being_loaded(self, dataset: Dataset) -> bool:
        def work(transaction: PostgresTransaction) -> bool:
            if transaction.table(dataset).is_empty():
                return True
            row = transaction.one("is_being_loaded", dataset=dataset.name)
            return row is not None and bool(row["is_loading"])

        return self._database.read(work)

    def _build(self, dataset: Dataset) -> list[str]:
        # the connection is returned before the thread is joined, which may need it
        with (
            ThreadPoolExecutor(1) as background,
            self._database.maintenance_connection() as connection,
        ):
            number = lock_number(f"index:{self._database.schema}:{dataset.name}")
            row = connection.execute(
                "select pg_try_advisory_lock(%s) as is_locked", (number,)
            ).fetchone()
            if row is None or not row["is_locked"]:
                # another process builds
                return []
            if dataset.search:
                # on another core of the server; an error there is ignored, since the
                # next call tries again
                background.submit(update_terms, self._database, dataset)
            try:
                return build(connection, self._database.table(dataset))
            finally:
                if not connection.closed:
                    connection.execute("select pg_advisory_unlock(%s)", (number,))


def describe(indexes: list[str]) -> list[str]:
    return [f"build index {name}" for name in indexes]


def missing_indexes(connection: Connection, table: PostgresTableSql) -> list[str]:
    """Return the indexes that do not exist or are invalid.

    Also those of older versions, which include the deleted rows.
    """
    found = connection.execute(
        "select relname from pg_index join pg_class on pg_class.oid = indexrelid "
        "where indisvalid and pg_get_expr(indpred, indrelid) ~ '_deleted_at IS ' "
        "and indrelid = to_regclass(quote_ident(current_schema()) "
        "|| '.' || quote_ident(%s))",
        (table.dataset.name,),
    )
    valid = {row["relname"] for row in found.fetchall()}
    missing = [name for name in table.indexes if name not in valid]
    if table.live_index not in valid and table.deleted_index in valid:
        row = connection.execute(table.find_many_deleted.encode()).fetchone()
        missing += [] if row is None else [table.live_index]
    return missing


def build(connection: Connection, table: PostgresTableSql) -> list[str]:
    built: list[str] = []
    # read again after each, because whether many rows are deleted is found out by an
    # index that may be missing itself; what was replaced, or left by an unfinished
    # build, is dropped first, because its name is needed
    while drop_indexes(connection, table, table.new_index, table.replaced_index):
        missing = [
            name for name in missing_indexes(connection, table) if name not in built
        ]
        if not missing:
            drop_indexes(connection, table, *table.old_indexes)
            break
        name = missing[0]
        if not build_blocking(connection, table, name):
            build_concurrently(connection, table, name)
        replace_by_new(connection, table, name)
        built.append(name)
    if built:
        connection.execute(f"analyze {table.name}".encode())
    return built


def build_blocking(connection: Connection, table: PostgresTableSql, name: str) -> bool:
    """Build the index of a small table in half the time, while writers wait.

    Returns False where it is not built, because that would block them for too long.
    """
    definition = table.definition(name)
    if table.dataset.partition is not None or USING in definition:
        return False
    row = connection.execute(
        "select pg_relation_size(%s::regclass) as size", (table.name,)
    ).fetchone()
    if row is None or row["size"] > MAX_BLOCKING_BUILD:
        return False
    try:
        with connection.transaction():
            # writers queue behind this lock even while it is not granted
            limit_lock_wait(connection)
            new = quote(table.new_index)
            connection.execute(f"create index {new} on {definition}".encode())
    except postgres.LockNotAvailable:
        return False
    return True


def build_concurrently(
    connection: Connection, table: PostgresTableSql, name: str
) -> None:
    """Build an index while writers continue."""
    concurrently, new = concurrent_option(table), quote(table.new_index)
    definition = table.definition(name)
    if f"{USING}gin" in definition and fits_in_memory(connection, table):
        memory = f"set maintenance_work_mem = '{GIN_BUILD_MEMORY}'"
        connection.execute(memory.encode())
    try:
        connection.execute(
            f"create index {concurrently} {new} on {definition}".encode()
        )
    finally:
        if not connection.closed:
            connection.execute("reset maintenance_work_mem")


def fits_in_memory(connection: Connection, table: PostgresTableSql) -> bool:
    """Return whether the server's buffers can hold all rows, and so any index."""
    row = connection.execute(
        "select coalesce("
        "(select sum(pg_relation_size(relid)) from pg_partition_tree(named.id)), "
        "pg_relation_size(named.id)"
        ") < pg_size_bytes(current_setting('shared_buffers')) as fits "
        "from (select %s::regclass as id) as named",
        (table.name,),
    ).fetchone()
    return row is not None and bool(row["fits"])


def replace_by_new(connection: Connection, table: PostgresTableSql, name: str) -> None:
    """Rename the new index to its final name; readers use the old one until then."""
    with connection.transaction():
        for old, new in ((name, table.replaced_index), (table.new_index, name)):
            connection.execute(
                f"alter index if exists {quote(old)} rename to {quote(new)}".encode()
            )


def drop_indexes(connection: Connection, table: PostgresTableSql, *names: str) -> bool:
    """Drop indexes while others continue; return whether none of them is left.

    That of a partitioned table can only be dropped while nobody reads: readers queue
    behind us, so we give up soon.
    """
    concurrently = concurrent_option(table)
    for name in names:
        if not exists(connection, name):
            continue
        drop = f"drop index {concurrently} if exists {quote(name)}".encode()
        if concurrently:
            connection.execute(drop)
            continue
        try:
            with connection.transaction():
                limit_lock_wait(connection)
                connection.execute(drop)
        except postgres.LockNotAvailable:
            return False
    return True


def limit_lock_wait(connection: Connection) -> None:
    """Limit how long a transaction waits for a lock, since others queue behind it."""
    connection.execute(f"set local lock_timeout = {LOCK_TIMEOUT:d}".encode())


def exists(connection: Connection, *names: str) -> bool:
    """Return whether our schema has a table or an index of one of these names."""
    row = connection.execute(
        "select 1 from pg_class where relname = any(%s) "
        "and relnamespace = current_schema()::regnamespace limit 1",
        ([*names],),
    ).fetchone()
    return row is not None


def concurrent_option(table: PostgresTableSql) -> str:
    # PostgreSQL does not support it for partitioned tables
    return "" if table.dataset.partition is not None else "concurrently"
