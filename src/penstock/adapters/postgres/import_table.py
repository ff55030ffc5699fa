"""A dataset's table inside a transaction: compare by hash, write only changes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import errors as postgres
from psycopg.rows import DictRow, tuple_row
from typing_extensions import override

from penstock.adapters.postgres.binary_arrays import key_arrays, page_arrays
from penstock.adapters.postgres.connection_pool import Connection
from penstock.adapters.postgres.error_messages import retry_on_conflict
from penstock.adapters.postgres.page_writes import (
    PageWrite,
    TableState,
    choose_page_write,
)
from penstock.adapters.postgres.partitions import ensure_partitions, lock_merges
from penstock.adapters.postgres.table_sql import PostgresTableSql
from penstock.adapters.sqlstore import database as sql
from penstock.adapters.sqlstore.composed_sql import distinct_values
from penstock.adapters.sqlstore.database import MergeResult, RowVersion, read_count
from penstock.adapters.sqlstore.key_encoding import encode_keys_text, plain_value
from penstock.adapters.sqlstore.row_origins import read_origins, write_origins
from penstock.domain.archiving import ArchiveCut
from penstock.domain.lost_files import RowOrigin
from penstock.domain.mapping.columnar import ColumnarRecords
from penstock.domain.pages import Key, Record

# rows that a server-side cursor fetches at a time
FETCH_SIZE = 2_000


@dataclass(frozen=True, slots=True)
class PostgresImportTable(sql.Table):
    of: PostgresTableSql
    state: TableState
    connection: Connection
    statements: Mapping[str, str]
    # rows that the transaction has changed, by table
    changes: dict[PostgresTableSql, int]
    # the transaction was tried before: it met a conflict, or its response was lost
    is_retry: bool = False

    @override
    def merge(
        self,
        records: Sequence[Record],
        *,
        import_id: int,
        rank: int = 0,
        seen: Collection[Key] = (),
        track: bool,
    ) -> MergeResult:
        # in the order of keys, so that two pages do not deadlock
        columnar = ColumnarRecords.of(records).by_key()
        merged = MergeResult()
        if columnar:
            lock_merges(self.connection, self.of.dataset)
            ensure_partitions(self.connection, self.of.dataset, columnar)
            page = self._page(columnar, import_id, rank)
            way = choose_page_write(
                self.of.dataset,
                self.state,
                rows=len(columnar),
                is_retry=self.is_retry,
            )
            if way is PageWrite.INSERT:
                merged = self._insert(columnar, page)
            else:
                if way is PageWrite.LOCK_AND_COMPARE:
                    self._lock_rows(columnar.keys)
                merged = self._compare(columnar, page, track=track)
        if track and seen:
            self._mark_seen(seen, import_id=import_id)
        return merged

    def store(
        self,
        records: Sequence[Record],
        *,
        import_id: int,
        rank: int,
        **parameters: object,
    ) -> bool:
        """Commit a page whose rows are expected to be new; return whether it was done.

        False, and nothing is written, if a row exists, the fence has moved on, or
        rows of the dataset are in quarantine.
        """
        columnar = ColumnarRecords.of(records).by_key()
        page = self._page(columnar, import_id, rank) | parameters
        page |= {
            "dataset": self.of.dataset.name,
            "keys": encode_keys_text(columnar.keys),
        }
        try:
            with self._expecting_new_rows():
                stored = self._execute(self.of.store_page, **page).rowcount
        except postgres.SerializationFailure:
            return False
        if stored:
            self.changes[self.of] = len(columnar)
        return bool(stored)

    def _page(
        self, columnar: ColumnarRecords, import_id: int, rank: int
    ) -> dict[str, object]:
        arrays = page_arrays(self.of.dataset, columnar)
        return {**arrays, "import_id": import_id, "rank": rank}

    def _insert(
        self, columnar: ColumnarRecords, page: dict[str, object]
    ) -> MergeResult:
        """Insert a page without comparing it; if a row exists, raise a conflict."""
        with self._expecting_new_rows():
            self._execute(self.of.insert, **page)
        return MergeResult(created=columnar.keys)

    @contextmanager
    def _expecting_new_rows(self) -> Iterator[None]:
        try:
            yield
        except postgres.UniqueViolation as error:
            self.state.expects_new_rows = False
            raise retry_on_conflict(error) from error

    def _compare(
        self, columnar: ColumnarRecords, page: dict[str, object], *, track: bool
    ) -> MergeResult:
        merge = self.of.merge_and_track if track else self.of.merge
        try:
            found = self._execute_unprepared(merge, **page).fetchone()
        except postgres.UniqueViolation as error:
            raise retry_on_conflict(error) from error
        if found is None:
            raise LookupError("a merge returned no row")
        if found["missed"]:
            raise postgres.SerializationFailure(
                "another transaction stored a row meanwhile"
            )
        created = (found["created"] or []) + (found["revived"] or [])
        self.state.expects_new_rows = len(created) == len(columnar)
        return MergeResult(
            created=[columnar.keys[position - 1] for position in created],
            updated=[
                columnar.keys[position - 1] for position in found["updated"] or []
            ],
            again=found["again"],
            rewritten=found["rewritten"],
            repeated_keys=[
                columnar.keys[position - 1] for position in found["repeated"] or []
            ],
        )

    def _lock_rows(self, keys: Sequence[Key]) -> None:
        """Lock the existing rows of keys until the commit."""
        self._execute_unprepared(self.of.lock_rows, **key_arrays(self.of.dataset, keys))

    def _mark_seen(self, keys: Collection[Key], *, import_id: int) -> None:
        """Mark rows as seen by an import."""
        self._lock_rows([*keys])
        arrays = key_arrays(self.of.dataset, [*keys])
        self._execute_unprepared(self.of.mark_seen, import_id=import_id, **arrays)

    @override
    def note(
        self, merged: MergeResult, *, import_id: int | None, publish: bool = False
    ) -> None:
        keys = [*merged.created, *merged.updated, *merged.deleted]
        if not keys:
            return
        if merged.created and self.of.dataset.archive is not None:
            arrays = key_arrays(self.of.dataset, merged.created)
            self._execute_unprepared(self.of.delete_archived, **arrays)
        self.changes[self.of] = self.changes.get(self.of, 0) + len(keys)
        self._execute(
            self.statements["add_changes"],
            dataset=self.of.dataset.name,
            created=len(merged.created),
            updated=len(merged.updated),
            deleted=len(merged.deleted),
            keys=encode_keys_text(keys),
            import_id=import_id,
            generations=int(publish),
        )

    def repeat(self, **parameters: object) -> DictRow | None:
        """Commit a page that was stored before, and return its memo.

        None, and nothing is written, if the rows between its first and its last key
        are not just those of the page. Nothing is written either where `page_seq` is
        null: the job has moved on.
        """
        parameters |= {"dataset": self.of.dataset.name}
        row: DictRow | None = self._execute(
            self.of.repeat_page, **parameters
        ).fetchone()
        return row

    @override
    def rows(self) -> Iterator[tuple[object, ...]]:
        return self._stream(self.of.rows)

    @override
    def count(self) -> int:
        # reads all rows, so a sequential scan, which sessions for imports switch off
        with self.connection.transaction():
            self.connection.execute("set local enable_seqscan = on")
            found = self.connection.execute(self.of.count.encode(), prepare=False)
            return read_count(found.fetchone())

    def is_empty(self) -> bool:
        return self._execute(self.of.find_any).fetchone() is None

    @override
    def distinct(self, field: str) -> Iterator[str]:
        for (value,) in self._stream(distinct_values(self.of.dataset.name, field)):
            yield str(plain_value(value))

    @override
    def row_version(self, key: Key) -> RowVersion | None:
        lock_merges(self.connection, self.of.dataset)
        values = {f"value_{at}": value for at, value in enumerate(key)}
        row = self._execute(self.of.lock_version, **values).fetchone()
        if row is None:
            return None
        return RowVersion(row["_updated_at"], row["_import"], row["rank"])

    @override
    def supersede_rejections(self, *, job: int, start: int) -> None:
        self._execute(self.of.supersede_rejections, job=job, start=start)

    @override
    def count_missing(
        self, *, import_id: int, started: datetime, retained: Sequence[RowOrigin] = ()
    ) -> int:
        found = self._execute(
            self.of.count_missing,
            import_id=import_id,
            started=started,
            retained=write_origins(retained),
        )
        return read_count(found.fetchone())

    @override
    def missing_by_file(
        self, *, import_id: int, started: datetime
    ) -> Mapping[RowOrigin, int]:
        return read_origins(
            self._execute(self.of.missing_by_file, import_id=import_id, started=started)
        )

    @override
    def mark_missing(
        self, *, import_id: int, started: datetime, retained: Sequence[RowOrigin] = ()
    ) -> int:
        self._execute(self.of.create_deleted_keys)
        marked = self._execute(
            self.of.mark_missing,
            import_id=import_id,
            started=started,
            retained=write_origins(retained),
        )
        deleted = int(marked.rowcount)
        if deleted:
            last = self._advance(deleted)
            self._execute(
                self.of.add_missing_changes,
                dataset=self.of.dataset.name,
                last_seq=last["change_seq"] - deleted,
                tag=last["change_tag"],
                previous_tag=last["previous_tag"],
                import_id=import_id,
            )
        return deleted

    @override
    def expired(
        self, cut: ArchiveCut, *, after: Key | None, limit: int
    ) -> Sequence[Key]:
        statement = self.of.first_expired if after is None else self.of.next_expired
        values = {f"value_{at}": value for at, value in enumerate(after or ())}
        return self._keys(statement, cut, limit=limit, **values)

    @override
    def archive(self, cut: ArchiveCut, keys: Sequence[Key]) -> int:
        # before any row is locked, as every writer does
        lock_merges(self.connection, self.of.dataset)
        arrays = key_arrays(self.of.dataset, keys)
        moved = self._keys(self.of.still_expired, cut, **arrays)
        if moved:
            arrays = key_arrays(self.of.dataset, moved)
            self._execute_unprepared(self.of.delete_archived, **arrays)
            self._execute_unprepared(self.of.copy_to_archive, **arrays)
            self._execute_unprepared(self.of.delete, **arrays)
            self.note(MergeResult(deleted=moved), import_id=None, publish=True)
        return len(moved)

    def _keys(
        self, statement: str, cut: ArchiveCut, **parameters: object
    ) -> Sequence[Key]:
        parameters |= {
            "last_seen_by": cut.last_seen_by,
            "written_before": cut.written_before,
        }
        with self.connection.cursor(row_factory=tuple_row) as cursor:
            found = cursor.execute(statement.encode(), parameters, prepare=False)
            return found.fetchall()

    def _advance(self, changes: int) -> DictRow:
        self.changes[self.of] = self.changes.get(self.of, 0) + changes
        name = self.of.dataset.name
        row: DictRow | None = self._execute(
            self.statements["advance_dataset"],
            dataset=name,
            changes=changes,
            generations=0,
        ).fetchone()
        if row is None:
            raise LookupError(f"dataset {name!r} was never prepared")
        return row

    def _execute_unprepared(self, statement: str, **parameters: Any) -> Any:
        """Run a statement that looks up rows, with a plan of its own.

        A cached plan from when the table was small would scan all of it for each row.
        """
        return self.connection.execute(statement.encode(), parameters, prepare=False)

    def _execute(self, statement: str, **parameters: Any) -> Any:
        return self.connection.execute(statement.encode(), parameters)

    def _stream(self, statement: str) -> Iterator[tuple[object, ...]]:
        with self.connection.cursor("rows", row_factory=tuple_row) as cursor:
            cursor.itersize = FETCH_SIZE
            cursor.execute(statement.encode())
            yield from cursor
