"""Removal of old entries of the ledger."""

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

from typing_extensions import override

from penstock.adapters.sqlstore.database import (
    Database,
    SqlRow,
    Transaction,
    read_count,
)
from penstock.adapters.sqlstore.import_removal import (
    SMALL_DELETE_BATCH,
    ImportRemoval,
)
from penstock.adapters.sqlstore.row_mappers import RowMappers, decode_json
from penstock.domain.formats import MICROSECOND
from penstock.domain.jobs import ImportId, ImportStatus, Mode
from penstock.domain.pages import Proof
from penstock.domain.retention import EndedImport
from penstock.domain.sharding.parts import Slice
from penstock.ports.retention import (
    EndPosition,
    Feeder,
    Feeders,
    ImportSize,
    Retention,
)


class SqlRetention(Retention):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = RowMappers(database.instant)
        self._removal = ImportRemoval(database)

    @override
    def shown_at(self) -> datetime | None:
        row = self._database.read(lambda transaction: transaction.one("shown_at"))
        return None if row is None else self._rows.instant(row["shown_at"])

    @override
    def note_shown(self) -> None:
        self._database.write(lambda transaction: transaction.execute("note_shown"))

    @override
    def ended_imports(
        self,
        *,
        age: timedelta,
        bad_rows: timedelta,
        with_pages: bool,
        before: EndPosition | None,
        limit: int,
    ) -> Sequence[EndedImport]:
        statement = "imports_with_pages" if with_pages else "ended_imports"
        finished_at = None if before is None else before.finished_at
        found = self._database.read(
            lambda transaction: transaction.all(
                statement,
                age=age // MICROSECOND,
                bad_rows=bad_rows // MICROSECOND,
                finished_at=self._database.to_stored_time(finished_at),
                before=0 if before is None else before.id,
                limit=limit,
            )
        )
        return [self._read(row) for row in found]

    def _read(self, row: SqlRow) -> EndedImport:
        return EndedImport(
            id=ImportId(row["id"]),
            dataset=row["dataset"],
            finished_at=self._rows.instant(row["finished_at"]),
            is_done=row["status"] == ImportStatus.DONE,
            # all jobs of an import of unchanged files have this proof
            is_unchanged=row["proof"] == Proof.UNCHANGED,
            next_done=row["next_done"],
            next_is_unchanged=row["next_proof"] == Proof.UNCHANGED,
            has_files=row["mode"] == Mode.FULL and is_of_file(row["shard_key"]),
            has_bad_rows=bool(row["has_bad_rows"]),
        )

    @override
    def imports_of_rows(self, dataset: str) -> Collection[ImportId]:
        with self._database.stream() as transaction:
            return {ImportId(found) for found in transaction.imports_of_rows(dataset)}

    @override
    def measure(self, imports: Sequence[ImportId]) -> ImportSize:
        # pages are counted, which may take longer than a read may
        with self._database.stream() as transaction:
            row = transaction.one("measure_imports", imports=json.dumps(imports))
        if row is None:
            return ImportSize(jobs=0, pages=0)
        return ImportSize(jobs=row["jobs"], pages=row["pages"])

    @override
    def remove_pages(self, import_id: ImportId) -> Iterator[int]:
        return self._removal.remove_pages(import_id)

    @override
    def remove_import(self, import_id: ImportId) -> Iterator[tuple[str, int]]:
        return self._removal.remove(import_id)

    @override
    def schedules(self) -> Sequence[str]:
        found = self._database.read(lambda transaction: transaction.all("all_names"))
        return [row["name"] for row in found]

    @override
    def last_fires(self, schedule: str) -> Collection[ImportId]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "imports_of_fires",
                schedule=schedule,
                retained=retained_fires(transaction, schedule),
            )
        )
        return {ImportId(row["import_id"]) for row in found}

    @override
    def count_fires(self, schedule: str, *, age: timedelta) -> int:
        with self._database.stream() as transaction:
            found = transaction.one(
                "count_old_fires",
                schedule=schedule,
                age=age // MICROSECOND,
                retained=retained_fires(transaction, schedule),
            )
        return read_count(found)

    @override
    def remove_fires(self, schedule: str, *, age: timedelta, most: int) -> int:
        return self._database.write(
            lambda transaction: transaction.execute(
                "remove_fires",
                schedule=schedule,
                age=age // MICROSECOND,
                retained=retained_fires(transaction, schedule),
                most=most,
            )
        )

    @override
    def count_claims(self, *, age: timedelta) -> int:
        with self._database.stream() as transaction:
            return read_count(
                transaction.one("count_old_claims", age=age // MICROSECOND)
            )

    @override
    def datasets(self) -> Sequence[str]:
        found = self._database.read(
            lambda transaction: transaction.all("datasets_with_changes")
        )
        return [row["name"] for row in found]

    @override
    def count_changes(self, dataset: str, *, age: timedelta) -> int:
        with self._database.stream() as transaction:
            return read_count(
                transaction.one(
                    "count_old_changes", dataset=dataset, age=age // MICROSECOND
                )
            )

    @override
    def remove_changes(self, dataset: str, *, age: timedelta, most: int) -> int:
        def work(transaction: Transaction) -> int:
            removed = transaction.all(
                "remove_changes", dataset=dataset, age=age // MICROSECOND, most=most
            )
            if removed:
                last = max(row["last_seq"] for row in removed)
                transaction.execute(
                    "forget_late_vocabulary", dataset=dataset, removed=last
                )
            return sum(row["last_seq"] - row["first_seq"] + 1 for row in removed)

        return self._database.write(work)

    @override
    def count_bad_rows(self, *, age: timedelta) -> int:
        with self._database.stream() as transaction:
            return read_count(
                transaction.one("count_old_bad_rows", age=age // MICROSECOND)
            )

    @override
    def remove_bad_rows(self, *, age: timedelta) -> Iterator[int]:
        at, after = None, 0
        while found := self._old_bad_rows(age, at, after):
            ids = json.dumps([row["id"] for row in found if row["is_removable"]])
            yield self._remove_bad_rows(ids)
            at, after = found[-1]["at"], found[-1]["id"]

    def _old_bad_rows(self, age: timedelta, at: object, after: int) -> Sequence[SqlRow]:
        return self._database.read(
            lambda transaction: transaction.all(
                "old_bad_rows",
                age=age // MICROSECOND,
                at=at,
                after=after,
                limit=SMALL_DELETE_BATCH,
            )
        )

    def _remove_bad_rows(self, ids: str) -> int:
        return self._database.write(
            lambda transaction: transaction.execute("remove_bad_rows", ids=ids)
        )


class SqlFeeders(Feeders):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = RowMappers(database.instant)

    @override
    def move(self, name: str, dataset: str, *, change_seq: int) -> None:
        self._database.write(
            lambda transaction: transaction.execute(
                "move_feeder", name=name, dataset=dataset, change_seq=change_seq
            )
        )

    @override
    def remove(self, name: str) -> bool:
        return self._database.write(
            lambda transaction: bool(transaction.execute("remove_feeder", name=name))
        )

    @override
    def all(self) -> Sequence[Feeder]:
        found = self._database.read(lambda transaction: transaction.all("all_feeders"))
        return [
            Feeder(
                name=row["name"],
                dataset=row["dataset"],
                change_seq=row["change_seq"],
                moved_at=self._rows.instant(row["moved_at"]),
            )
            for row in found
        ]


def retained_fires(transaction: Transaction, schedule: str) -> int:
    """Return how many fires that began imports are read to count failures in a row."""
    row = transaction.one("get_schedule", name=schedule)
    fields = {} if row is None else decode_json(row["fields"])
    return max(fields.get("pause_after") or 0, 1)


def is_of_file(shard_key: str | None) -> bool:
    try:
        Slice.of_key(shard_key or "")
    except ValueError:
        return False
    return True
