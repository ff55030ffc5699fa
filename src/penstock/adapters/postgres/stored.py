"""A dataset's table inside a transaction: copy, compare, write only changes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import errors as postgres
from psycopg.rows import tuple_row
from typing_extensions import override

from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.partitions import ensure_partitions
from penstock.adapters.postgres.tables import Table
from penstock.adapters.sql import database as sql
from penstock.adapters.sql.database import Key, Merged, counted
from penstock.adapters.sql.keys import key_text, plain_value
from penstock.domain.page import Record

# rows fetched at a time where all of them are read
AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class StoredTable(sql.Table):
    of: Table
    connection: Connection
    statements: Mapping[str, str]
    # how many rows of each table the transaction has changed
    changes: dict[Table, int]

    @override
    def stage(self, records: Sequence[Record]) -> Sequence[Record]:
        # in the order of keys, so that two pages wait for each other in one way
        ordered = sorted(records, key=lambda record: record.key)
        if ordered:
            self._copy(ordered)
        return ordered

    @override
    def merge(
        self,
        staged: Sequence[Record],
        *,
        import_id: int,
        seen: Collection[Key] = (),
        track: bool,
    ) -> Merged:
        created: list[Record] = []
        updated: list[Record] = []
        if staged:
            ensure_partitions(self.connection, self.of, staged)
            created, updated = self._compare(staged, import_id)
            if track:
                self._execute(self.of.touch, import_id=import_id)
        if track and seen:
            columns = zip(*seen, strict=True)
            keys = {f"key_{index}": [*each] for index, each in enumerate(columns)}
            self._execute(self.of.touch_keys, import_id=import_id, **keys)
        self._note_changes(created, updated, import_id=import_id)
        return Merged(inserted=len(created), updated=len(updated))

    def _copy(self, records: Sequence[Record]) -> None:
        self.connection.execute(self.of.stage.encode())
        with (
            self.connection.cursor() as cursor,
            cursor.copy(self.of.copy.encode()) as copy,
        ):
            copy.set_types(self.of.copy_types)
            for place, record in enumerate(records):
                copy.write_row((*record.values, record.digest, place))

    def _compare(
        self, records: Sequence[Record], import_id: int
    ) -> tuple[list[Record], list[Record]]:
        try:
            found = self._execute(self.of.merge, import_id=import_id).fetchone()
        except postgres.UniqueViolation as error:
            told = "a row was stored by others meanwhile"
            raise postgres.SerializationFailure(told) from error
        if found is None:
            raise LookupError("a merge did not tell what it did")
        created = (found["created"] or []) + (found["revived"] or [])
        updated = found["updated"] or []
        return [records[at] for at in created], [records[at] for at in updated]

    @override
    def rows(self) -> Iterator[tuple[object, ...]]:
        return self._stream(self.of.rows)

    @override
    def count(self) -> int:
        return counted(self._execute(self.of.count).fetchone())

    def is_empty(self) -> bool:
        return self._execute(self.of.first).fetchone() is None

    @override
    def distinct(self, field: str) -> Iterator[str]:
        for (value,) in self._stream(self.of.distinct(field)):
            yield str(plain_value(value))

    @override
    def updated_at(self, key: Key) -> datetime | None:
        row = self.connection.execute(self.of.updated_at.encode(), key).fetchone()
        return None if row is None else row["_updated_at"]

    @override
    def count_missing(self, *, import_id: int, started: datetime) -> int:
        told = {"import_id": import_id, "started": started}
        return counted(self._execute(self.of.count_missing, **told).fetchone())

    @override
    def mark_missing(self, *, import_id: int, started: datetime) -> int:
        self._execute(self.of.list_gone)
        told = {"import_id": import_id, "started": started}
        gone = int(self._execute(self.of.mark_missing, **told).rowcount)
        if gone:
            before = self._advance(gone) - gone
            name = self.of.dataset.name
            self._execute(
                self.of.note_missing, dataset=name, before=before, import_id=import_id
            )
        return gone

    def _note_changes(
        self, created: Sequence[Record], updated: Sequence[Record], *, import_id: int
    ) -> None:
        """Append one row of change events.

        It comes after the rows, because it holds the dataset's row until the commit,
        and others who commit a page wait for it.
        """
        keys = [record.key for record in (*created, *updated)]
        if not keys:
            return
        last = self._advance(len(keys))
        self._execute(
            self.statements["add_changes"],
            dataset=self.of.dataset.name,
            first=last - len(keys) + 1,
            last=last,
            created=len(created),
            updated=len(updated),
            keys=key_text(keys),
            import_id=import_id,
        )

    def _advance(self, changes: int) -> int:
        self.changes[self.of] = self.changes.get(self.of, 0) + changes
        name = self.of.dataset.name
        row = self._execute(
            self.statements["advance_dataset"], dataset=name, changes=changes
        ).fetchone()
        if row is None:
            raise LookupError(f"dataset {name!r} was never prepared")
        return int(row["change_seq"])

    def _execute(self, statement: str, **given: Any) -> Any:
        return self.connection.execute(statement.encode(), given)

    def _stream(self, statement: str) -> Iterator[tuple[object, ...]]:
        with self.connection.cursor("rows", row_factory=tuple_row) as cursor:
            cursor.itersize = AT_ONCE
            cursor.execute(statement.encode())
            yield from cursor
