"""The log of what people have done."""

from collections.abc import Sequence
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow, read_count
from penstock.domain.actions import Action, ActionId, ActionVia, StoredAction
from penstock.domain.formats import MICROSECOND
from penstock.ports.actions import ActionLog


class SqlActionLog(ActionLog):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def add(self, action: Action) -> None:
        self._database.write(
            lambda transaction: transaction.execute(
                "add_action",
                actor=action.actor,
                name=action.name,
                subject=action.subject,
                via=action.via,
            )
        )

    @override
    def recent(self, *, before: ActionId | None, limit: int) -> Sequence[StoredAction]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "recent_actions", before=before, limit=limit
            )
        )
        return [self._read(row) for row in found]

    def _read(self, row: SqlRow) -> StoredAction:
        return StoredAction(
            id=ActionId(row["id"]),
            at=self._database.instant(row["at"]),
            action=Action(
                actor=row["actor"],
                name=row["name"],
                subject=row["subject"],
                via=ActionVia(row["via"]),
            ),
        )

    @override
    def count_old(self, *, age: timedelta) -> int:
        return read_count(
            self._database.read(
                lambda transaction: transaction.one(
                    "count_old_actions", age=age // MICROSECOND
                )
            )
        )

    @override
    def forget(self, *, age: timedelta, most: int) -> int:
        return self._database.write(
            lambda transaction: transaction.execute(
                "forget_actions", age=age // MICROSECOND, limit=most
            )
        )
