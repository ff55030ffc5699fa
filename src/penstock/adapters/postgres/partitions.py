"""List partitions, created as their values appear in the data.

PostgreSQL enforces unique keys within a partition only, and cannot upsert by a key that
lacks the partition's column. So writers of a partitioned dataset (a page, a replay, a
client) take a lock of the dataset and run one at a time: a key is looked up in all
partitions, a row whose partition value has changed is moved by a plain update, and no
key is ever stored twice. Fetching and mapping still run in parallel.

The lock is taken before any row of the dataset is read or locked. Otherwise two writers
could both find a key to be new, or one could lock a row that the other, which has the
lock of the dataset, waits for.
"""

from collections.abc import Iterable
from hashlib import blake2b

from psycopg import sql

from penstock.adapters.postgres.connection_pool import Connection
from penstock.adapters.postgres.identifiers import lock_number, own_name
from penstock.adapters.postgres.table_sql import FILL_FACTOR
from penstock.domain.dataset import Dataset
from penstock.domain.mapping.columnar import ColumnarRecords

# the rows of any further values share one default partition
MAX_PARTITIONS = 256
DEFAULT_PARTITION = "others"


def lock_merges(connection: Connection, dataset: Dataset) -> None:
    """Lock a partitioned dataset against other writers until the commit."""
    if dataset.partition is not None:
        connection.execute(
            "select pg_advisory_xact_lock(hashtextextended(current_schema(), %s))",
            (lock_number(f"merge:{dataset.name}"),),
        )


def ensure_partitions(
    connection: Connection, dataset: Dataset, columnar: ColumnarRecords
) -> None:
    """Create the partitions that these rows need; the caller has locked the merges."""
    if dataset.partition is None:
        return
    values = set(columnar.columns[dataset.column(dataset.partition)])
    existing = stored_partitions(connection, dataset.name)
    missing = {
        name: value
        for name, value in partition_names(dataset.name, values)
        if name not in existing
    }
    others = own_name(dataset.name, DEFAULT_PARTITION)
    for name, value in sorted(missing.items()):
        if others in existing:
            return
        if len(existing) >= MAX_PARTITIONS:
            attach(connection, dataset.name, others, sql.SQL("default"))
            existing.add(others)
            return
        bound = sql.SQL("for values in ({})").format(sql.Literal(value))
        attach(connection, dataset.name, name, bound)
        existing.add(name)


def partition_names(
    dataset: str, values: Iterable[object]
) -> Iterable[tuple[str, object]]:
    for value in values:
        # two values may look the same once they are shortened to letters and digits
        digest = blake2b(repr(value).encode(), digest_size=5).hexdigest()
        label = "".join(c if c.isalnum() else "_" for c in str(value))[:20].lower()
        yield own_name(dataset, f"{label}_{digest}"), value


def stored_partitions(connection: Connection, dataset: str) -> set[str]:
    found = connection.execute(
        "select child.relname from pg_inherits "
        "join pg_class as child on child.oid = inhrelid "
        "where inhparent = to_regclass(quote_ident(current_schema()) || '.' "
        "|| quote_ident(%s))",
        (dataset,),
    )
    return {row["relname"] for row in found.fetchall()}


def attach(
    connection: Connection, dataset: str, name: str, bound: sql.Composable
) -> None:
    """Create a partition without blocking readers and writers of the others."""
    parent, child = sql.Identifier(dataset), sql.Identifier(name)
    connection.execute(
        sql.SQL(
            "create table {} (like {} including defaults including constraints) "
            "with (fillfactor = {})"
        ).format(child, parent, sql.Literal(FILL_FACTOR))
    )
    connection.execute(
        sql.SQL("alter table {} attach partition {} {}").format(parent, child, bound)
    )
