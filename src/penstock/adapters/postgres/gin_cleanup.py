"""Keep the pending lists of GIN indexes short: every search has to read all of them.

A GIN index appends new rows to a pending list, which makes writing fast, and merges
them sooner or later. By default that is done by the writer that finds the list full, in
the middle of a page. So a process that has written many rows merges them between two
pages.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import psycopg

from penstock.adapters.postgres.connection_pool import Connection, ConnectionPool
from penstock.adapters.postgres.table_sql import PostgresTableSql

# rows that a process changes before it merges the pending list
CLEANUP_ROW_THRESHOLD = 5_000

# selects nothing for an index that is missing or still being built
CLEAN_PENDING_LIST = """
select gin_clean_pending_list(indexrelid)
from pg_index
join pg_class on pg_class.oid = indexrelid
cross join (
    select to_regclass(quote_ident(current_schema()) || '.' || quote_ident(%s)) as id
) as named
where indisvalid and relkind = 'i'
    and (
        indexrelid = named.id
        or indexrelid in (select relid from pg_partition_tree(named.id))
    )
"""


class GinCleanup:
    """Counts the rows that a process has written since its last cleanup."""

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._changed: Counter[str] = Counter()

    def count(self, changes: Mapping[PostgresTableSql, int]) -> None:
        """Count committed changes, and clean the pending list once they are many.

        An error here is ignored, since the changes are committed; a later cleanup does
        the work.
        """
        for table, rows in changes.items():
            if table.dataset.search and self._is_due(table.words_index, rows):
                with suppress(psycopg.Error), self._connections.one() as connection:
                    clean_pending_list(connection, table)

    def _is_due(self, index: str, rows: int) -> bool:
        with self._lock:
            self._changed[index] += rows
            if self._changed[index] < CLEANUP_ROW_THRESHOLD:
                return False
            self._changed[index] = 0
            return True


def clean_pending_list(connection: Connection, table: PostgresTableSql) -> None:
    connection.execute(CLEAN_PENDING_LIST, (table.words_index,))
