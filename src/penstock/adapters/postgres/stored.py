"""A dataset's table inside a transaction: compare by hash, write only changes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import errors as postgres
from psycopg.rows import DictRow, tuple_row
from typing_extensions import override

from penstock.adapters.postgres.arrays import key_arrays, page_arrays
from penstock.adapters.postgres.conflicts import stored_by_others
from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.partitions import ensure_partitions, hold_merges
from penstock.adapters.postgres.tables import Table
from penstock.adapters.sql import database as sql
from penstock.adapters.sql.database import Merged, Stamp, counted
from penstock.adapters.sql.keys import keys_text, plain_value
from penstock.adapters.sql.origins import read_origins, write_origins
from penstock.domain.lost_files import Origin
from penstock.domain.page import Key, Record
from penstock.domain.sheet import Sheet

# rows fetched at a time where all of them are read
AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class StoredTable(sql.Table):
    of: Table
    connection: Connection
    statements: Mapping[str, str]
    # how many rows of each table the transaction has changed
    changes: dict[Table, int]
    # the transaction was tried before, and met a conflict, or its answer was lost
    is_again: bool = False

    @override
    def merge(
        self,
        records: Sequence[Record],
        *,
        import_id: int,
        rank: int = 0,
        seen: Collection[Key] = (),
        track: bool,
    ) -> Merged:
        # in the order of keys, so that two pages wait for each other in one way
        sheet = Sheet.of(records).by_key()
        merged = Merged()
        if sheet:
            hold_merges(self.connection, self.of.dataset)
            ensure_partitions(self.connection, self.of.dataset, sheet)
            page = self._page(sheet, import_id, rank)
            merged = self._insert(sheet, page) or self._compare(
                sheet, page, track=track
            )
        if track and seen:
            self._touch(seen, import_id=import_id)
        return merged

    def store(
        self, records: Sequence[Record], *, import_id: int, rank: int, **told: object
    ) -> bool:
        """Commit a page whose rows are thought to be new; say whether that was done.

        False, and nothing is written, if a row is known, the fence has moved on, or
        rows of the dataset wait in quarantine.
        """
        sheet = Sheet.of(records).by_key()
        page = self._page(sheet, import_id, rank) | told
        page |= {"dataset": self.of.dataset.name, "keys": keys_text(sheet.keys)}
        try:
            with self._thought_new():
                stored = self._execute(self.of.store_page, **page).rowcount
        except postgres.SerializationFailure:
            return False
        if stored:
            self.changes[self.of] = len(sheet)
        return bool(stored)

    def _page(self, sheet: Sheet, import_id: int, rank: int) -> dict[str, object]:
        arrays = page_arrays(self.of.dataset, sheet)
        return {**arrays, "import_id": import_id, "rank": rank}

    def _insert(self, sheet: Sheet, page: dict[str, object]) -> Merged | None:
        """Store a page as it is where the one before was new as a whole.

        It is two thirds of the work of comparing first. If a row is known, everything
        begins anew.
        """
        if self.is_again or not self.of.may_grow_by(sheet):
            return None
        with self._thought_new():
            self._execute(self.of.insert, **page)
        return Merged(created=sheet.keys)

    @contextmanager
    def _thought_new(self) -> Iterator[None]:
        try:
            yield
        except postgres.UniqueViolation as error:
            self.of.grows = False
            raise stored_by_others(error) from error

    def _compare(self, sheet: Sheet, page: dict[str, object], *, track: bool) -> Merged:
        if self.is_again:
            # others change the same rows: this time nobody does between two statements
            self._hold(sheet.keys)
        merge = self.of.merge_and_track if track else self.of.merge
        try:
            found = self._look_up(merge, **page).fetchone()
        except postgres.UniqueViolation as error:
            raise stored_by_others(error) from error
        if found is None:
            raise LookupError("a merge did not tell what it did")
        if found["missed"]:
            raise postgres.SerializationFailure("a row was stored by others meanwhile")
        created = (found["created"] or []) + (found["revived"] or [])
        self.of.grows = len(created) == len(sheet)
        return Merged(
            created=[sheet.keys[place - 1] for place in created],
            updated=[sheet.keys[place - 1] for place in found["updated"] or []],
            again=found["again"],
            rewritten=found["rewritten"],
        )

    def _hold(self, keys: Sequence[Key]) -> None:
        """Lock the known rows of keys until the commit."""
        self._look_up(self.of.hold, **key_arrays(self.of.dataset, keys))

    def _touch(self, keys: Collection[Key], *, import_id: int) -> None:
        """Mark rows as seen by an import."""
        self._hold([*keys])
        arrays = key_arrays(self.of.dataset, [*keys])
        self._look_up(self.of.touch, import_id=import_id, **arrays)

    @override
    def note(
        self, merged: Merged, *, import_id: int | None, publish: bool = False
    ) -> None:
        keys = [*merged.created, *merged.updated, *merged.deleted]
        if not keys:
            return
        self.changes[self.of] = self.changes.get(self.of, 0) + len(keys)
        self._execute(
            self.statements["add_changes"],
            dataset=self.of.dataset.name,
            created=len(merged.created),
            updated=len(merged.updated),
            deleted=len(merged.deleted),
            keys=keys_text(keys),
            import_id=import_id,
            generations=int(publish),
        )

    def repeat(self, **told: object) -> DictRow | None:
        """Commit a page that is known, and return its memo.

        None, and nothing is written, if its rows are not stored just as it brought
        them: something else is stored between its first and its last key. Nor is
        anything written where `page_seq` is null: the job has moved on.
        """
        told |= {"dataset": self.of.dataset.name}
        row: DictRow | None = self._execute(self.of.repeat_page, **told).fetchone()
        return row

    @override
    def rows(self) -> Iterator[tuple[object, ...]]:
        return self._stream(self.of.rows)

    @override
    def count(self) -> int:
        # of all rows, so as a whole, and not by a plan that was made for pages
        with self.connection.transaction():
            self.connection.execute("set local enable_seqscan = on")
            found = self.connection.execute(self.of.count.encode(), prepare=False)
            return counted(found.fetchone())

    def is_empty(self) -> bool:
        return self._execute(self.of.first).fetchone() is None

    @override
    def distinct(self, field: str) -> Iterator[str]:
        for (value,) in self._stream(self.of.distinct(field)):
            yield str(plain_value(value))

    @override
    def stamp(self, key: Key) -> Stamp | None:
        hold_merges(self.connection, self.of.dataset)
        row = self.connection.execute(self.of.stamp.encode(), key).fetchone()
        if row is None:
            return None
        return Stamp(row["_updated_at"], row["_import"], row["rank"])

    @override
    def outdo(self, *, job: int, start: int) -> None:
        self._execute(self.of.outdo, job=job, start=start)

    @override
    def count_missing(
        self, *, import_id: int, started: datetime, kept: Sequence[Origin] = ()
    ) -> int:
        told = {
            "import_id": import_id,
            "started": started,
            "kept": write_origins(kept),
        }
        return counted(self._execute(self.of.count_missing, **told).fetchone())

    @override
    def missing_by_file(
        self, *, import_id: int, started: datetime
    ) -> Mapping[Origin, int]:
        told = {"import_id": import_id, "started": started}
        return read_origins(self._execute(self.of.missing_by_file, **told))

    @override
    def mark_missing(
        self, *, import_id: int, started: datetime, kept: Sequence[Origin] = ()
    ) -> int:
        self._execute(self.of.list_gone)
        told = {
            "import_id": import_id,
            "started": started,
            "kept": write_origins(kept),
        }
        gone = int(self._execute(self.of.mark_missing, **told).rowcount)
        if gone:
            last = self._advance(gone)
            self._execute(
                self.of.note_missing,
                dataset=self.of.dataset.name,
                before=last["change_seq"] - gone,
                tag=last["change_tag"],
                previous_tag=last["previous_tag"],
                import_id=import_id,
            )
        return gone

    def _advance(self, changes: int) -> DictRow:
        self.changes[self.of] = self.changes.get(self.of, 0) + changes
        name = self.of.dataset.name
        told = {"dataset": name, "changes": changes, "generations": 0}
        row: DictRow | None = self._execute(
            self.statements["advance_dataset"], **told
        ).fetchone()
        if row is None:
            raise LookupError(f"dataset {name!r} was never prepared")
        return row

    def _look_up(self, statement: str, **given: Any) -> Any:
        """Run a statement that looks up rows, with a plan for just these.

        One that was made when the table was small would look through all of it for
        each of them.
        """
        return self.connection.execute(statement.encode(), given, prepare=False)

    def _execute(self, statement: str, **given: Any) -> Any:
        return self.connection.execute(statement.encode(), given)

    def _stream(self, statement: str) -> Iterator[tuple[object, ...]]:
        with self.connection.cursor("rows", row_factory=tuple_row) as cursor:
            cursor.itersize = AT_ONCE
            cursor.execute(statement.encode())
            yield from cursor
