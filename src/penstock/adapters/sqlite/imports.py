"""The ledger as planners and finishers see it, on SQLite."""

import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime

from typing_extensions import override

from penstock.adapters.sqlite.database import (
    Database,
    Transaction,
    instant_or_none,
    microseconds,
)
from penstock.adapters.sqlite.merge import reserve_changes
from penstock.adapters.sqlite.rows import read_import, read_shards
from penstock.adapters.sqlite.tables import Table, Tables
from penstock.domain.dataset import Dataset
from penstock.domain.finish import Ending, Facts, Missed, is_tracked, settle
from penstock.domain.job import Import, ImportId, ImportStatus, Mode, Shards
from penstock.errors import NotFound
from penstock.ports import Imports

# jobs stored in one transaction: bounded memory, and others get a turn
PLANNED_AT_ONCE = 5_000


class SqliteImports(Imports):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._tables = Tables()

    @override
    def begin(
        self,
        dataset: Dataset,
        mode: Mode,
        *,
        declaration: str,
        since: datetime | None,
        until: datetime | None,
    ) -> tuple[Import, bool]:
        with self._database.write() as transaction:
            known = transaction.one(
                "find_unfinished_import", dataset=dataset.name, mode=mode
            )
            if known is not None:
                return read_import(known), True
            row = transaction.one(
                "add_import",
                dataset=dataset.name,
                mode=mode,
                declaration=declaration,
                tracked=int(is_tracked(dataset, mode)),
                since=microseconds(since),
                until=microseconds(until),
                priority=dataset.priority,
                region=dataset.region,
            )
            if row is None:
                raise LookupError("an import was not stored")
            return read_import(row), False

    @override
    def add_jobs(self, import_id: ImportId, shard_keys: Iterable[str]) -> int:
        added = 0
        keys = iter(shard_keys)
        while some := list(itertools.islice(keys, PLANNED_AT_ONCE)):
            with self._database.write() as transaction:
                for shard_key in some:
                    added += transaction.execute(
                        "add_job",
                        import_id=import_id,
                        parent=None,
                        shard_key=shard_key,
                    ).rowcount
        return added

    @override
    def start(self, import_id: ImportId) -> None:
        with self._database.write() as transaction:
            transaction.execute("start_import", import_id=import_id)

    @override
    def close(
        self, dataset: Dataset, import_id: ImportId, *, failed: str | None
    ) -> Import | None:
        if failed is None and not self._is_settled(import_id):
            return None
        with self._database.write() as transaction:
            known, shards = self._get(transaction, import_id)
            if known.status is not ImportStatus.RUNNING:
                return None
            if failed is None and shards.open:
                return None
            if failed is not None:
                transaction.execute("cancel_jobs", import_id=import_id)
            facts = Counted(transaction, self._tables.of(dataset), known)
            ending = settle(known, shards, dataset, facts, failed=failed)
            deleted = 0
            if ending.watermark is not None:
                transaction.execute(
                    "set_watermark",
                    dataset=dataset.name,
                    watermark=microseconds(ending.watermark),
                )
            if ending.marks_missing:
                deleted = facts.mark_missing()
            if ending.settles_quarantine:
                transaction.execute(
                    "supersede_rejections", dataset=dataset.name, import_id=import_id
                )
            self._end(transaction, import_id, ending, deleted)
            return self._get(transaction, import_id)[0]

    def _is_settled(self, import_id: ImportId) -> bool:
        # asked after every job, so it must not count them all
        with self._database.read() as transaction:
            row = transaction.one("has_open_jobs", import_id=import_id)
        return row is not None and not row["is_open"]

    @override
    def cancel(self, import_id: ImportId, *, reason: str) -> Import:
        with self._database.write() as transaction:
            self._get(transaction, import_id)
            ending = Ending(status=ImportStatus.CANCELLED, proven=False, note=reason)
            self._end(transaction, import_id, ending, 0)
            transaction.execute("cancel_jobs", import_id=import_id)
            return self._get(transaction, import_id)[0]

    @override
    def get(self, import_id: ImportId) -> tuple[Import, Shards]:
        with self._database.read() as transaction:
            return self._get(transaction, import_id)

    @override
    def recent(
        self, *, dataset: str | None, limit: int
    ) -> Sequence[tuple[Import, Shards]]:
        with self._database.read() as transaction:
            rows = transaction.execute("recent_imports", dataset=dataset, limit=limit)
            return [
                (read_import(row), self._shards(transaction, row["id"]))
                for row in rows.fetchall()
            ]

    def _get(
        self, transaction: Transaction, import_id: ImportId
    ) -> tuple[Import, Shards]:
        row = transaction.one("get_import", import_id=import_id)
        if row is None:
            raise NotFound(f"there is no import {import_id}; see: penstock imports")
        return read_import(row), self._shards(transaction, import_id)

    def _shards(self, transaction: Transaction, import_id: int) -> Shards:
        return read_shards(
            transaction.execute("count_jobs", import_id=import_id).fetchall()
        )

    def _end(
        self,
        transaction: Transaction,
        import_id: ImportId,
        ending: Ending,
        deleted: int,
    ) -> None:
        transaction.execute(
            "end_import",
            import_id=import_id,
            status=ending.status,
            proven=int(ending.proven),
            note=ending.note,
            deleted=deleted,
        )


class Counted(Facts):
    """The facts of one import, counted inside the transaction that ends it."""

    def __init__(self, transaction: Transaction, table: Table, known: Import) -> None:
        self._transaction = transaction
        self._table = table
        self._known = known
        self._started = microseconds(known.created_at) or 0

    @override
    def unproven(self) -> int:
        return self._count("count_unproven_jobs")

    @override
    def watermark(self) -> datetime | None:
        name = self._table.dataset.name
        row = self._transaction.one("get_dataset", dataset=name)
        return None if row is None else instant_or_none(row["watermark"])

    @override
    def missed(self) -> Missed:
        connection = self._transaction.connection
        return Missed(
            live=self._table.count(connection),
            missing=self._table.count_missing(
                connection, import_id=self._known.id, started=self._started
            ),
            keyless=self._count("count_keyless_rejections"),
        )

    def mark_missing(self) -> int:
        """Mark what is missing as deleted; return how many rows were."""
        missing = self.missed().missing
        self._table.mark_missing(
            self._transaction.connection,
            import_id=self._known.id,
            started=self._started,
            before=reserve_changes(self._transaction, self._table.dataset, missing),
            now=self._transaction.now,
        )
        return missing

    def _count(self, name: str) -> int:
        row = self._transaction.one(name, import_id=self._known.id)
        return 0 if row is None else int(row["counted"])
