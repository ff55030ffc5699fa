"""Run queries with planner settings that prevent plans which read the whole table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import tuple_row

from penstock.adapters.postgres.connection_pool import Connection

# a plan that is switched off counts as so expensive that JIT and parallel workers would
# seem worth it; bitmaps have to stay exact, since each row of a lossy page would have
# to be folded and checked
DEFAULT_SETTINGS = {
    "enable_seqscan": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    # a generic plan fits no particular words and location
    "plan_cache_mode": "force_custom_plan",
    "work_mem": "32MB",
}
# with words: a scan of another index that checks rows until there are enough looks
# cheap, but may have to check all of them
BITMAP_SETTINGS = {
    **DEFAULT_SETTINGS,
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
}
# without words: a bitmap, which reads an index to its end for the first few rows, is
# as bad
INDEX_SCAN_SETTINGS = {**DEFAULT_SETTINGS, "enable_bitmapscan": "off"}


@dataclass(frozen=True, slots=True)
class SearchSession:
    connection: Connection

    def __call__(
        self,
        statement: str,
        parameters: Mapping[str, Any],
        *,
        settings: Mapping[str, str] = DEFAULT_SETTINGS,
    ) -> Sequence[tuple[Any, ...]]:
        assignments = ", ".join(
            f"set_config('{name}', '{value}', true)" for name, value in settings.items()
        )
        with (
            self.connection.transaction(),
            self.connection.cursor(row_factory=tuple_row) as cursor,
        ):
            cursor.execute(f"select {assignments}".encode())
            return cursor.execute(statement.encode(), parameters).fetchall()
