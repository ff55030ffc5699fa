"""The maintenance tasks, in the database that their processes share."""

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow, Transaction
from penstock.adapters.sqlstore.row_mappers import RowMappers, decode_json
from penstock.domain.formats import MICROSECOND
from penstock.domain.jobs import WorkerId
from penstock.ports.maintenance import (
    Maintenance,
    TaskClaim,
    TaskName,
    TaskProgress,
    TaskState,
)


class SqlMaintenance(Maintenance):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = RowMappers(database.instant)

    @override
    def waits(
        self, names: Sequence[TaskName], *, kinds: Sequence[str] = ()
    ) -> Mapping[TaskName, timedelta]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "task_waits", names=json.dumps(names), kinds=json.dumps(kinds)
            )
        )
        waits = {TaskName(row["name"]): row["wait"] * MICROSECOND for row in found}
        missing = [name for name in names if name not in waits]
        if missing:
            self._database.write(lambda transaction: add_all(transaction, missing))
        return {**waits, **dict.fromkeys(missing, timedelta())}

    @override
    def claim(
        self, name: TaskName, *, owner: WorkerId, lasting: timedelta
    ) -> TaskClaim | None:
        row = self._database.write(
            lambda transaction: transaction.one(
                "claim_task", name=name, owner=owner, lasting=lasting // MICROSECOND
            )
        )
        if row is None:
            return None
        return TaskClaim(
            name=name,
            fence=row["fence"],
            kind=row["kind"],
            payload=read_payload(row),
            progress=read_progress(row),
        )

    @override
    def renew(
        self,
        claim: TaskClaim,
        *,
        lasting: timedelta,
        progress: TaskProgress | None = None,
    ) -> bool:
        def work(transaction: Transaction) -> bool:
            is_mine = transaction.execute(
                "renew_task",
                name=claim.name,
                claimed=claim.fence,
                lasting=lasting // MICROSECOND,
            )
            if is_mine and progress is not None:
                save(transaction, claim, progress)
            return bool(is_mine)

        return self._database.write(work)

    @override
    def finish(
        self,
        claim: TaskClaim,
        *,
        due_in: timedelta | None,
        error: str | None = None,
        progress: TaskProgress | None = None,
    ) -> bool:
        def work(transaction: Transaction) -> bool:
            if progress is not None:
                save(transaction, claim, progress)
            is_mine = transaction.execute(
                "finish_task",
                name=claim.name,
                claimed=claim.fence,
                due_in=None if due_in is None else due_in // MICROSECOND,
                error=error,
            )
            return bool(is_mine)

        return self._database.write(work)

    @override
    def submit(self, kind: str, payload: Mapping[str, Any]) -> TaskName:
        name = TaskName(f"{kind}:{secrets.token_hex(6)}")
        self._database.write(
            lambda transaction: transaction.execute(
                "submit_task", name=name, kind=kind, payload=json.dumps(dict(payload))
            )
        )
        return name

    @override
    def tasks(self) -> Sequence[TaskState]:
        found = self._database.read(lambda transaction: transaction.all("all_tasks"))
        return [self._read_state(row) for row in found]

    def _read_state(self, row: SqlRow) -> TaskState:
        took = row["took"]
        return TaskState(
            name=TaskName(row["name"]),
            kind=row["kind"],
            due_at=self._rows.instant_or_none(row["due_at"]),
            owner=None if row["owner"] is None else WorkerId(row["owner"]),
            last_run_at=self._rows.instant_or_none(row["last_run_at"]),
            took=None if took is None else took * MICROSECOND,
            error=row["error"],
            failed_at=self._rows.instant_or_none(row["failed_at"]),
            payload=read_payload(row),
            progress=read_progress(row),
        )

    @override
    def forget(self, *, unused: timedelta) -> int:
        return self._database.write(
            lambda transaction: transaction.execute(
                "forget_tasks", unused=unused // MICROSECOND
            )
        )


def add_all(transaction: Transaction, names: Sequence[TaskName]) -> None:
    # in order, so that two processes that add them do not deadlock
    for name in sorted(names):
        transaction.execute("add_task", name=name)


def save(transaction: Transaction, claim: TaskClaim, progress: TaskProgress) -> None:
    transaction.execute(
        "save_task",
        name=claim.name,
        claimed=claim.fence,
        cursor=progress.cursor,
        counts=json.dumps(dict(progress.counts)),
    )


def read_payload(row: SqlRow) -> Mapping[str, Any] | None:
    payload: Mapping[str, Any] | None = row["payload"]
    return None if payload is None else decode_json(payload)


def read_progress(row: SqlRow) -> TaskProgress:
    return TaskProgress(cursor=row["cursor"], counts=decode_json(row["counts"]))
