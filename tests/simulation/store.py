"""The real SQLite database in memory, with places where it can be torn."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from penstock.adapters.sqlite.database import SqliteDatabase, SqliteTransaction
from penstock.adapters.sqlstore.database import Outcome
from tests.simulation.world import World

BOUNDS = ("begin", "commit", "rollback")


class TearableConnection(sqlite3.Connection):
    """A connection on which a transaction can break off at any statement."""

    # how many more statements of transactions go well, and what happens then
    fuse: int | None = None
    blow: Callable[[], None] | None = None
    # false: every statement is a transaction of its own, for proofs that it matters
    has_transactions = True

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if not self.has_transactions and sql.startswith(BOUNDS):
            return super().execute("select 1")
        if sql != "rollback":
            self._burn()
        return super().execute(sql, *parameters)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        self._burn()
        return super().executemany(sql, rows)

    def _burn(self) -> None:
        if self.fuse is None or (self.has_transactions and not self.in_transaction):
            return
        self.fuse -= 1
        if self.fuse <= 0 and self.blow is not None:
            self.fuse = None
            self.blow()


class SimulatedDatabase(SqliteDatabase):
    """One connection for all actors, since only one of them runs at a time.

    Others may act between the transactions of one call, never inside one: SQLite lets
    no second writer in, and readers see the state before.
    """

    def __init__(self, world: World, edits: Mapping[str, tuple[str, str]]) -> None:
        super().__init__(Path(":memory:"), clock=world.clock)
        self._world = world
        self._statements = edited(self._statements, edits)
        self.connection = sqlite3.connect(
            ":memory:",
            isolation_level=None,
            check_same_thread=False,
            factory=TearableConnection,
        )
        self.connection.row_factory = sqlite3.Row
        self.connection.execute("pragma foreign_keys = on")
        self._between = False

    @override
    def write(
        self, work: Callable[[SqliteTransaction], Outcome], *, slow: bool = False
    ) -> Outcome:
        self._let_others()
        return super().write(work, slow=slow)

    @override
    @contextmanager
    def stream(self) -> Iterator[SqliteTransaction]:
        self._let_others()
        with super().stream() as transaction:
            yield transaction

    def begin_call(self) -> None:
        """Note that the next transaction is the first one of a call."""
        self._between = False

    def _let_others(self) -> None:
        if self._between and self._world.running is not None:
            # the fuse is meant for this actor, not for those who act meanwhile
            fuse, self.connection.fuse = self.connection.fuse, None
            self._world.sleep(self._world.random.randrange(1000))
            self.connection.fuse = fuse
        self._between = True

    @override
    def _connection(self) -> sqlite3.Connection:
        return self.connection

    @override
    def close(self) -> None:
        self.connection.close()


def edited(
    statements: Mapping[str, str], edits: Mapping[str, tuple[str, str]]
) -> Mapping[str, str]:
    """Replace a text in some statements; an edit that changes nothing is an error."""
    changed = dict(statements)
    for name, (old, new) in edits.items():
        if old not in changed[name]:
            raise ValueError(f"statement {name!r} has no {old!r} any more")
        changed[name] = changed[name].replace(old, new)
    return changed
