"""A dataset's table inside a transaction: compare first, write only changes."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from typing_extensions import override

from penstock.adapters.sql import database as sql
from penstock.adapters.sql.database import Merged, Stamp, instant
from penstock.adapters.sql.keys import key_text
from penstock.adapters.sql.memos import read_memo
from penstock.adapters.sqlite.tables import Known, ReservedChanges, Table
from penstock.domain.lost_files import Origin
from penstock.domain.page import Key, Memo, Record
from penstock.domain.repeat import digest_of_all
from penstock.domain.times import EPOCH, MICROSECOND

# of a row that is kept because it is newer: of rows as new as that the last still wins
LEAST_RANK = 1


@dataclass(frozen=True, slots=True)
class StoredTable(sql.Table):
    of: Table
    connection: sqlite3.Connection
    statements: Mapping[str, str]
    now: int

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
        table, connection = self.of, self.connection
        known = table.known(connection, [record.key for record in records])
        sorted_out = Sorted()
        for record in records:
            stored = known.get(tuple(table.stored(record.key)))
            self._sort(record, stored, sorted_out, import_id=import_id, rank=rank)
        created, changed = sorted_out.created, sorted_out.changed
        table.insert(connection, created, import_id=import_id, now=self.now)
        table.update(connection, changed, import_id=import_id, now=self.now)
        untouched = [record.key for record in sorted_out.untouched]
        if track:
            met = [*untouched, *sorted_out.outdated, *seen]
            table.touch(connection, met, import_id=import_id)
        if table.dataset.is_ranked:
            ours = [*created, *changed, *sorted_out.untouched]
            table.set_rank(connection, [record.key for record in ours], rank)
            table.set_rank(connection, sorted_out.outdated, LEAST_RANK)
        return Merged(
            created=[*(record.key for record in created), *sorted_out.revived],
            updated=sorted_out.updated,
            again=sorted_out.again,
            rewritten=sorted_out.rewritten,
        )

    def _sort(
        self,
        record: Record,
        stored: Known | None,
        into: "Sorted",
        *,
        import_id: int,
        rank: int,
    ) -> None:
        dataset = self.of.dataset
        if stored is None:
            into.created.append(record)
            return
        version = None if dataset.version is None else dataset.column(dataset.version)
        if dataset.is_ranked:
            if stored.import_id > import_id:
                return
            # one that was only seen, with a bad value, has no rank
            is_again = stored.import_id == import_id and stored.rank > 0
            into.again += is_again
            if (
                is_again
                and stored.rank > rank
                and not is_newer(record, stored, version)
            ):
                return
        else:
            is_again = False
        if stored.is_deleted or (
            stored.digest != record.digest and not is_older(record, stored, version)
        ):
            # what was deleted has no version any more that could be newer
            into.changed.append(record)
            into.rewritten += is_again and not stored.is_deleted
            (into.revived if stored.is_deleted else into.updated).append(record.key)
        elif not is_older(record, stored, version):
            into.untouched.append(record)
        elif not is_again:
            into.outdated.append(record.key)

    @override
    def note(
        self, merged: Merged, *, import_id: int | None, publish: bool = False
    ) -> None:
        changes = [
            *(("created", key) for key in merged.created),
            *(("updated", key) for key in merged.updated),
            *(("deleted", key) for key in merged.deleted),
        ]
        if not changes:
            return
        before, tag, previous_tag = self._reserve_changes(len(changes), publish=publish)
        name, now = self.of.dataset.name, self.now
        self.connection.executemany(
            self.statements["add_change"],
            [
                (
                    *(name, seq, kind, key_text(key), import_id, now, tag),
                    previous_tag if seq == before + 1 else None,
                )
                for seq, (kind, key) in enumerate(changes, start=before + 1)
            ],
        )

    def recall(self, imprint: bytes) -> Memo | None:
        """Return what a page brought whose rows are stored just as it brought them.

        So they are if nothing else is stored between its first and its last key.
        """
        asked = {"dataset": self.of.dataset.name, "imprint": imprint}
        row = self.connection.execute(self.statements["find_memo"], asked).fetchone()
        if row is None:
            return None
        memo = read_memo(row["memo"])
        found = self.of.between(
            self.connection, memo.first, memo.last, limit=memo.records + 1
        )
        if len(found) != memo.records or any(is_deleted for _, is_deleted in found):
            return None
        is_same = digest_of_all(digest for digest, _ in found) == memo.digest
        return memo if is_same else None

    @override
    def rows(self) -> Iterator[tuple[object, ...]]:
        return self.of.rows(self.connection)

    @override
    def count(self) -> int:
        return self.of.count(self.connection)

    @override
    def distinct(self, field: str) -> Iterator[str]:
        return self.of.distinct(self.connection, field)

    @override
    def stamp(self, key: Key) -> Stamp | None:
        for known in self.of.known(self.connection, [key]).values():
            return Stamp(instant(known.updated_at), known.import_id, known.rank)
        return None

    @override
    def outdo(self, *, job: int, start: int) -> None:
        self.of.outdo(self.connection, job=job, start=start)

    @override
    def count_missing(
        self, *, import_id: int, started: datetime, kept: Sequence[Origin] = ()
    ) -> int:
        since = (started - EPOCH) // MICROSECOND
        return self.of.count_missing(
            self.connection, import_id=import_id, started=since, kept=kept
        )

    @override
    def missing_by_file(
        self, *, import_id: int, started: datetime
    ) -> Mapping[Origin, int]:
        since = (started - EPOCH) // MICROSECOND
        return self.of.missing_by_file(
            self.connection, import_id=import_id, started=since
        )

    @override
    def mark_missing(
        self, *, import_id: int, started: datetime, kept: Sequence[Origin] = ()
    ) -> int:
        missing = self.count_missing(import_id=import_id, started=started, kept=kept)
        if not missing:
            return 0
        changes = self._reserve_changes(missing)
        self.of.mark_missing(
            self.connection,
            import_id=import_id,
            started=(started - EPOCH) // MICROSECOND,
            kept=kept,
            changes=changes,
            now=self.now,
        )
        return missing

    def _reserve_changes(
        self, changes: int, *, publish: bool = False
    ) -> ReservedChanges:
        """Return the number after which so many events stand, and their tags.

        The sequence has no gaps: it is kept in a row that the transaction holds.
        """
        name = self.of.dataset.name
        told = {"dataset": name, "changes": changes, "generations": int(publish)}
        found = self.connection.execute(self.statements["advance_dataset"], told)
        rows = found.fetchall()
        if not rows:
            raise LookupError(f"dataset {name!r} was never prepared")
        last, tag, previous_tag = rows[0]
        return ReservedChanges(last - changes, tag, previous_tag)


@dataclass(slots=True)
class Sorted:
    """The records of a page by what they change."""

    created: list[Record] = field(default_factory=list)
    changed: list[Record] = field(default_factory=list)
    untouched: list[Record] = field(default_factory=list)
    # those whose row is newer, and was not met by this import before
    outdated: list[Key] = field(default_factory=list)
    revived: list[Key] = field(default_factory=list)
    updated: list[Key] = field(default_factory=list)
    again: int = 0
    rewritten: int = 0


def is_older(record: Record, stored: Known, version: int | None) -> bool:
    if version is None or stored.version is None:
        return False
    mine = record.values[version]
    return mine is None or bool(mine < stored.version)  # type: ignore[operator]


def is_newer(record: Record, stored: Known, version: int | None) -> bool:
    if version is None:
        return False
    mine = record.values[version]
    if mine is None or stored.version is None:
        return mine is not None
    return bool(mine > stored.version)  # type: ignore[operator]
