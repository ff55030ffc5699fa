"""Keep a dataset's table fast: build its indexes when they are due, and keep them tidy.

Indexes are most of the cost of storing rows, so an empty table has none but its key's,
and gets them when its first import has ended, or ten minutes after that began,
whichever comes first. An index that a declaration gains later is built at once. Both
are built by one process at a time, while others go on reading and, but for a moment and
for partitioned tables, writing. Where many rows are deleted, another index gives those
that are not in the order of their key.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from psycopg import errors as postgres

from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.database import Database, Transaction
from penstock.adapters.postgres.locks import lock_number
from penstock.adapters.postgres.tables import Table
from penstock.adapters.postgres.tidying import sort_in
from penstock.adapters.postgres.vocabulary import learn
from penstock.adapters.sql.keys import quoted
from penstock.domain.dataset import Dataset
from penstock.errors import PenstockError

# bytes of a table of which an index of values is built so soon that writers can wait
SMALL_TABLE = 256 * 1024 * 1024
# milliseconds that they wait before it is begun
LONGEST_WAIT = 500
# how an index of words or places is written, which takes longer
USING = " using "
# what is sorted at once for an index of words that memory holds as a whole: the caches
# of a processor hold it, too
SORTED_AT_ONCE = "16MB"


class Tending:
    def __init__(self, database: Database) -> None:
        self._database = database

    def __call__(self, dataset: Dataset) -> list[str]:
        # asked each time: others may have dropped the table, and made it again
        missing = self._missing(dataset)
        if missing is None or (missing and self._is_being_loaded(dataset)):
            return []
        is_due = missing or self._has_leftovers(dataset)
        done = told(self._build(dataset)) if is_due else []
        if missing and not done:
            return []
        if dataset.search:
            self._tidy(dataset)
            learn(self._database, dataset)
        return done

    def due(self, dataset: Dataset) -> list[str]:
        missing = self._missing(dataset)
        return told(missing) if missing and not self._is_being_loaded(dataset) else []

    def _missing(self, dataset: Dataset) -> list[str] | None:
        """Return the declared indexes that are not there; None without a table."""

        def work(look: Transaction) -> list[str] | None:
            table = look.table(dataset).of
            if not exists(look.connection, dataset.name):
                return None
            return missing_indexes(look.connection, table)

        return self._database.read(work)

    def _has_leftovers(self, dataset: Dataset) -> bool:
        """Say whether there are indexes that nobody needs once all others are there."""

        def work(look: Transaction) -> bool:
            table = look.table(dataset).of
            names = [table.new_index, table.replaced_index, *table.old_indexes]
            return exists(look.connection, *names)

        return self._database.read(work)

    def _tidy(self, dataset: Dataset) -> None:
        """Sort in what an import has left behind that is over, and its workers gone."""

        def work(look: Transaction) -> None:
            row = look.one("is_at_rest", dataset=dataset.name)
            if row is not None and row["is_at_rest"]:
                sort_in(look.connection, look.table(dataset).of)

        # whoever owns the index will do it, or the server itself
        with suppress(PenstockError):
            self._database.read(work)

    def _is_being_loaded(self, dataset: Dataset) -> bool:
        def work(transaction: Transaction) -> bool:
            if transaction.table(dataset).is_empty():
                return True
            row = transaction.one("is_being_loaded", dataset=dataset.name)
            return row is not None and bool(row["is_loading"])

        return self._database.read(work)

    def _build(self, dataset: Dataset) -> list[str]:
        # who waits for the thread no longer holds a connection that it may need
        with ThreadPoolExecutor(1) as beside, self._database.alone() as connection:
            number = lock_number(f"index:{self._database.schema}:{dataset.name}")
            row = connection.execute(
                "select pg_try_advisory_lock(%s) as is_ours", (number,)
            ).fetchone()
            if row is None or not row["is_ours"]:
                # another process is at it
                return []
            if dataset.search:
                # on another core of the server; what fails there is done again later
                beside.submit(learn, self._database, dataset)
            try:
                return build(connection, self._database.table(dataset))
            finally:
                if not connection.closed:
                    connection.execute("select pg_advisory_unlock(%s)", (number,))


def told(indexes: list[str]) -> list[str]:
    return [f"build index {name}" for name in indexes]


def missing_indexes(connection: Connection, table: Table) -> list[str]:
    """Return the indexes that are not there, or were not built to the end.

    Nor are those of use that hold deleted rows, too, as they once did.
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
        row = connection.execute(table.is_deep.encode()).fetchone()
        missing += [] if row is None else [table.live_index]
    return missing


def build(connection: Connection, table: Table) -> list[str]:
    done: list[str] = []
    # whether many rows are deleted is only known by an index that may be missing, too
    # what was replaced, or left behind by somebody who did not come to the end, goes
    # first: its name is needed
    while drop_beside(connection, table, table.new_index, table.replaced_index):
        missing = [
            name for name in missing_indexes(connection, table) if name not in done
        ]
        if not missing:
            drop_beside(connection, table, *table.old_indexes)
            break
        name = missing[0]
        if not built_at_once(connection, table, name):
            build_beside(connection, table, name)
        replace_by_new(connection, table, name)
        done.append(name)
    if done:
        connection.execute(f"analyze {table.name}".encode())
    return done


def built_at_once(connection: Connection, table: Table, name: str) -> bool:
    """Build an index in half the time, while writers wait, if that is a moment only."""
    index = table.definition(name)
    if table.dataset.partition is not None or USING in index:
        return False
    row = connection.execute(
        "select pg_relation_size(%s::regclass) as size", (table.name,)
    ).fetchone()
    if row is None or row["size"] > SMALL_TABLE:
        return False
    try:
        with connection.transaction():
            # whoever comes to write waits behind us, also while we wait for others
            limit_lock_wait(connection)
            new = quoted(table.new_index)
            connection.execute(f"create index {new} on {index}".encode())
    except postgres.LockNotAvailable:
        return False
    return True


def build_beside(connection: Connection, table: Table, name: str) -> None:
    """Build an index while writers go on."""
    beside, new = beside_writers(table), quoted(table.new_index)
    definition = table.definition(name)
    if f"{USING}gin" in definition and fits_in_memory(connection, table):
        memory = f"set maintenance_work_mem = '{SORTED_AT_ONCE}'"
        connection.execute(memory.encode())
    try:
        connection.execute(f"create index {beside} {new} on {definition}".encode())
    finally:
        if not connection.closed:
            connection.execute("reset maintenance_work_mem")


def fits_in_memory(connection: Connection, table: Table) -> bool:
    """Say whether the server can hold all rows, and so surely an index of them."""
    row = connection.execute(
        "select coalesce("
        "(select sum(pg_relation_size(relid)) from pg_partition_tree(named.id)), "
        "pg_relation_size(named.id)"
        ") < pg_size_bytes(current_setting('shared_buffers')) as fits "
        "from (select %s::regclass as id) as named",
        (table.name,),
    ).fetchone()
    return row is not None and bool(row["fits"])


def replace_by_new(connection: Connection, table: Table, name: str) -> None:
    """Give a new index its name; readers have the one before until then."""
    with connection.transaction():
        for old, new in ((name, table.replaced_index), (table.new_index, name)):
            connection.execute(
                f"alter index if exists {quoted(old)} rename to {quoted(new)}".encode()
            )


def drop_beside(connection: Connection, table: Table, *names: str) -> bool:
    """Drop indexes while others go on; say whether none of them is there any more.

    That of a partitioned table goes only where nobody reads for a moment: whoever comes
    to read waits behind us, so we do not wait for long.
    """
    beside = beside_writers(table)
    for name in names:
        if not exists(connection, name):
            continue
        drop = f"drop index {beside} if exists {quoted(name)}".encode()
        if beside:
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
    """Give up a transaction that waits for others: yet others wait behind it."""
    connection.execute(f"set local lock_timeout = {LONGEST_WAIT:d}".encode())


def exists(connection: Connection, *names: str) -> bool:
    """Say whether our schema has a table or an index of one of these names."""
    row = connection.execute(
        "select 1 from pg_class where relname = any(%s) "
        "and relnamespace = current_schema()::regnamespace limit 1",
        ([*names],),
    ).fetchone()
    return row is not None


def beside_writers(table: Table) -> str:
    # PostgreSQL cannot build the index of a partitioned table so
    return "" if table.dataset.partition is not None else "concurrently"
