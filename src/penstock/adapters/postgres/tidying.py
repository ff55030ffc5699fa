"""Keep the unsorted part of search indexes small: every search has to read all of it.

A search index takes new rows unsorted, which makes writing fast, and somebody has to
sort them in sooner or later. Left to itself, that is the writer who finds the list
full, in the middle of a page. So whoever has written many rows sorts them in between
two pages.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import psycopg

from penstock.adapters.postgres.connections import Connection, Connections
from penstock.adapters.postgres.tables import Table

# rows that a process changes before it tidies up
MANY = 5_000

# an index that is missing, or still being built, has no rows here
SORT_IN = """
select gin_clean_pending_list(indexrelid)
from pg_index
join pg_class on pg_class.oid = indexrelid
cross join (
    select to_regclass(quote_ident(current_schema()) || '.' || quote_ident(%s)) as whole
) as named
where indisvalid and relkind = 'i'
    and (
        indexrelid = whole
        or indexrelid in (select relid from pg_partition_tree(whole))
    )
"""


class Tidying:
    """Counts the rows that a process has written since it last tidied up."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._changed: Counter[str] = Counter()

    def note(self, changes: Mapping[Table, int]) -> None:
        """Count what was committed, and sort it in once it is much.

        It is no part of what was committed: what fails here fails in silence, and the
        next one tries again.
        """
        for table, rows in changes.items():
            if table.dataset.search and self._is_due(table.words_index, rows):
                with suppress(psycopg.Error), self._connections.one() as connection:
                    sort_in(connection, table)

    def _is_due(self, index: str, rows: int) -> bool:
        with self._lock:
            self._changed[index] += rows
            if self._changed[index] < MANY:
                return False
            self._changed[index] = 0
            return True


def sort_in(connection: Connection, table: Table) -> None:
    connection.execute(SORT_IN, (table.words_index,))
