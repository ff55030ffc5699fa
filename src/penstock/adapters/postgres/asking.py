"""Ask so that no plan is chosen which looks cheap and reads the whole table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import tuple_row

from penstock.adapters.postgres.connections import Connection

# a plan that is forbidden counts as so expensive that it would be compiled, and shared
# among processes; lists of rows have to stay exact, since a row of a vague one has to
# be folded to be judged
ALWAYS = {
    "enable_seqscan": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    # a plan for any words and any place, as a server makes it when it is asked often,
    # is good for none of them
    "plan_cache_mode": "force_custom_plan",
    "work_mem": "32MB",
}
# with words, an index of something else that gives rows one by one, to be judged until
# there are enough, looks cheap, and may have to give all of them
BY_WORDS = {**ALWAYS, "enable_indexscan": "off", "enable_indexonlyscan": "off"}
# without words, an index that is read to its end for the first few rows is as bad
ONE_BY_ONE = {**ALWAYS, "enable_bitmapscan": "off"}


@dataclass(frozen=True, slots=True)
class Asking:
    connection: Connection

    def __call__(
        self,
        statement: str,
        given: Mapping[str, Any],
        *,
        settings: Mapping[str, str] = ALWAYS,
    ) -> Sequence[tuple[Any, ...]]:
        chosen = ", ".join(
            f"set_config('{name}', '{value}', true)" for name, value in settings.items()
        )
        with (
            self.connection.transaction(),
            self.connection.cursor(row_factory=tuple_row) as cursor,
        ):
            cursor.execute(f"select {chosen}".encode())
            return cursor.execute(statement.encode(), given).fetchall()
