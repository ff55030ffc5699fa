"""List partitions, made from the data as it comes.

PostgreSQL keeps keys unique within a partition only, and cannot upsert by a key that
lacks the partition's column. So whoever stores rows of a partitioned dataset, be it a
page, a replay or a client, does so one at a time, under a lock of the dataset: a key is
looked for in all partitions, a row whose value has changed is moved by a plain update,
and no key is ever stored twice. Fetching and mapping still go on side by side.

The lock comes before any row of the dataset is looked at or held. Else two would find
that a key is new, or one would hold a row that the other, who has the lock, waits for.
"""

from collections.abc import Iterable
from hashlib import blake2b

from psycopg import sql

from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.locks import lock_number
from penstock.adapters.postgres.names import own_name
from penstock.adapters.postgres.tables import FILL
from penstock.domain.dataset import Dataset
from penstock.domain.sheet import Sheet

# beyond so many, the rows of further values share one partition
MOST = 256
OTHERS = "others"


def hold_merges(connection: Connection, dataset: Dataset) -> None:
    """Let nobody else store rows of a partitioned dataset until the commit."""
    if dataset.partition is not None:
        connection.execute(
            "select pg_advisory_xact_lock(hashtextextended(current_schema(), %s))",
            (lock_number(f"merge:{dataset.name}"),),
        )


def ensure_partitions(connection: Connection, dataset: Dataset, sheet: Sheet) -> None:
    """Make the partitions that these rows need; whoever asks holds the merges."""
    if dataset.partition is None:
        return
    at = dataset.column(dataset.partition)
    wanted = set(sheet.columns[at])
    known = stored_partitions(connection, dataset.name)
    missing = {
        name: value for name, value in named(dataset.name, wanted) if name not in known
    }
    others = own_name(dataset.name, OTHERS)
    for name, value in sorted(missing.items()):
        if others in known:
            return
        if len(known) >= MOST:
            attach(connection, dataset.name, others, sql.SQL("default"))
            known.add(others)
            return
        bound = sql.SQL("for values in ({})").format(sql.Literal(value))
        attach(connection, dataset.name, name, bound)
        known.add(name)


def named(dataset: str, values: Iterable[object]) -> Iterable[tuple[str, object]]:
    for value in values:
        # what a value looks like must not decide whether two names differ
        digest = blake2b(repr(value).encode(), digest_size=5).hexdigest()
        shown = "".join(c if c.isalnum() else "_" for c in str(value))[:20].lower()
        yield own_name(dataset, f"{shown}_{digest}"), value


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
    """Make a partition without stopping those who read or write the others."""
    parent, child = sql.Identifier(dataset), sql.Identifier(name)
    connection.execute(
        sql.SQL(
            "create table {} (like {} including defaults including constraints) "
            "with (fillfactor = {})"
        ).format(child, parent, sql.Literal(FILL))
    )
    connection.execute(
        sql.SQL("alter table {} attach partition {} {}").format(parent, child, bound)
    )
