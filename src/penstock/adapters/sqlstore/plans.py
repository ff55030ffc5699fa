"""The jobs that plan imports."""

import dataclasses
import json
from collections.abc import Sequence
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, Transaction, read_count
from penstock.adapters.sqlstore.hook_messages import HookMessages
from penstock.adapters.sqlstore.imports import add_jobs, end, repeat, start
from penstock.adapters.sqlstore.ledger import execute_fenced
from penstock.adapters.sqlstore.row_mappers import RowMappers
from penstock.domain.completion import CompletionVerdict
from penstock.domain.dataset import Dataset
from penstock.domain.formats import MICROSECOND
from penstock.domain.jobs import (
    MAX_RESCUES,
    MAX_STORED_ERRORS,
    ImportId,
    ImportStatus,
    JobError,
    Lease,
    WorkerId,
)
from penstock.ports import Declarations, Plans


class SqlPlans(Plans):
    def __init__(
        self, database: Database, hooks: HookMessages, *, lease: timedelta
    ) -> None:
        self._database = database
        self._hooks = hooks
        self._lease = lease // MICROSECOND
        self._rows = RowMappers(database.instant)

    @override
    def due(self, *, declarations: Declarations) -> Sequence[ImportId]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "due_plans",
                declarations=json.dumps(dict(declarations)),
                max_rescues=MAX_RESCUES,
            )
        )
        return [ImportId(row["id"]) for row in found]

    @override
    def claim(self, import_id: ImportId, owner: WorkerId) -> Lease | None:
        def work(transaction: Transaction) -> Lease | None:
            job = transaction.one(
                "claim_plan",
                import_id=import_id,
                owner=owner,
                lease=self._lease,
                max_rescues=MAX_RESCUES,
                max_errors=MAX_STORED_ERRORS,
            )
            planned = transaction.one("get_import", import_id=import_id)
            if job is None or planned is None:
                return None
            return self._rows.read_lease(
                job, planned, owner=owner, plan_cursor=job["cursor"]
            )

        return self._database.write(work)

    @override
    def add_shards(
        self, lease: Lease, shard_keys: Sequence[str], *, cursor: str
    ) -> Lease:
        def work(transaction: Transaction) -> None:
            transaction.one("share_import", import_id=lease.import_id)
            self._advance(transaction, lease, cursor)
            add_jobs(transaction, lease.import_id, shard_keys)

        self._database.write(work)
        return dataclasses.replace(lease, cursor=cursor, attempts=0, rescues=0)

    @override
    def restart(self, lease: Lease, *, cursor: str) -> Lease:
        def work(transaction: Transaction) -> None:
            transaction.one("share_import", import_id=lease.import_id)
            self._advance(transaction, lease, cursor)
            transaction.execute("drop_planned_jobs", import_id=lease.import_id)

        self._database.write(work, slow=True)
        return dataclasses.replace(lease, cursor=cursor, attempts=0, rescues=0)

    @override
    def finish(self, lease: Lease) -> None:
        def work(transaction: Transaction) -> None:
            transaction.one("hold_import", import_id=lease.import_id)
            self._advance(transaction, lease, lease.cursor)
            start(transaction, lease.import_id)

        self._database.write(work)

    @override
    def repeat(self, dataset: Dataset, lease: Lease, *, of: ImportId) -> None:
        def work(transaction: Transaction) -> None:
            transaction.one("hold_import", import_id=lease.import_id)
            self._advance(transaction, lease, lease.cursor)
            transaction.execute("drop_planned_jobs", import_id=lease.import_id)
            repeat(transaction, dataset, lease.import_id, of=of)
            self._note_end(transaction, lease.import_id)

        self._database.write(work, slow=True)

    @override
    def fail(self, lease: Lease, error: JobError) -> None:
        def work(transaction: Transaction) -> None:
            transaction.one("hold_import", import_id=lease.import_id)
            execute_fenced(
                transaction,
                "fail_job",
                lease,
                code=error.code,
                message=error.message,
                max_errors=MAX_STORED_ERRORS,
                page_seq=lease.page_seq,
            )
            self._fail_import(transaction, lease.import_id, error.message)

        self._database.write(work)

    @override
    def fail_lost(self) -> None:
        def work(transaction: Transaction) -> None:
            for found in transaction.all("failed_plans"):
                import_id = ImportId(found["id"])
                transaction.one("hold_import", import_id=import_id)
                self._fail_import(transaction, import_id, found["message"])

        count = self._database.read(
            lambda transaction: transaction.one("count_failed_plans")
        )
        if read_count(count):
            self._database.write(work)

    def _advance(
        self, transaction: Transaction, lease: Lease, cursor: str | None
    ) -> None:
        execute_fenced(
            transaction, "advance_plan", lease, cursor=cursor, lease=self._lease
        )

    def _fail_import(
        self, transaction: Transaction, import_id: ImportId, message: str
    ) -> None:
        verdict = CompletionVerdict(
            status=ImportStatus.FAILED,
            proven=False,
            note=f"it could not be planned: {message}",
        )
        end(transaction, import_id, verdict, 0)
        self._note_end(transaction, import_id)

    def _note_end(self, transaction: Transaction, import_id: ImportId) -> None:
        row = transaction.one("get_import", import_id=import_id)
        if row is not None:
            self._hooks.add_import(transaction, self._rows.read_import(row))
