"""A dataset's table inside a transaction: compares first, writes only changes."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from typing_extensions import override

from penstock.adapters.sqlite.table_sql import (
    ExistingRows,
    ReservedChanges,
    SqliteTableSql,
)
from penstock.adapters.sqlstore import database as sql
from penstock.adapters.sqlstore.database import MergeResult, RowVersion, instant
from penstock.adapters.sqlstore.key_encoding import encode_key_text
from penstock.adapters.sqlstore.page_summaries import decode_summary
from penstock.domain.archiving import ArchiveCut
from penstock.domain.formats import EPOCH, MICROSECOND
from penstock.domain.lost_files import RowOrigin
from penstock.domain.page_reuse import combine_digests
from penstock.domain.pages import MAX_KEY_EXAMPLES, Key, PageSummary, Record

# the rank of a row that stays because its version is newer; among equal versions the
# last row still wins
MIN_RANK = 1


@dataclass(frozen=True, slots=True)
class SqliteImportTable(sql.Table):
    of: SqliteTableSql
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
    ) -> MergeResult:
        table, connection = self.of, self.connection
        existing = table.find_existing(connection, [record.key for record in records])
        groups = SortedRows()
        for record in records:
            stored = existing.get(tuple(table.stored(record.key)))
            self._classify(record, stored, groups, import_id=import_id, rank=rank)
        created, changed = groups.created, groups.changed
        table.insert(connection, created, import_id=import_id, now=self.now)
        table.update(connection, changed, import_id=import_id, now=self.now)
        untouched = [record.key for record in groups.untouched]
        if track:
            found = [*untouched, *groups.outdated, *seen]
            table.touch(connection, found, import_id=import_id)
        if table.dataset.is_ranked:
            current = [*created, *changed, *groups.untouched]
            table.set_rank(connection, [record.key for record in current], rank)
            table.set_rank(connection, groups.outdated, MIN_RANK)
        return MergeResult(
            created=[*(record.key for record in created), *groups.revived],
            updated=groups.updated,
            again=groups.again,
            rewritten=groups.rewritten,
            repeated_keys=groups.repeated_keys,
        )

    def _classify(
        self,
        record: Record,
        stored: ExistingRows | None,
        groups: "SortedRows",
        *,
        import_id: int,
        rank: int,
    ) -> None:
        dataset = self.of.dataset
        if stored is None:
            groups.created.append(record)
            return
        version = None if dataset.version is None else dataset.column(dataset.version)
        if dataset.is_ranked:
            if stored.import_id > import_id:
                return
            # a row that was only seen, with a bad value, has no rank
            is_again = stored.import_id == import_id and stored.rank > 0
            groups.repeat(record.key, is_again=is_again)
            if (
                is_again
                and stored.rank > rank
                and not is_newer(record, stored, version)
            ):
                return
        else:
            # an equal row may have been read twice, where pages or shards overlap
            is_again = (
                stored.import_id == import_id
                and not stored.is_deleted
                and stored.digest != record.digest
            )
            groups.repeat(record.key, is_again=is_again)
        if stored.is_deleted or (
            stored.digest != record.digest and not is_older(record, stored, version)
        ):
            # a deleted row has no version that could be newer
            groups.changed.append(record)
            groups.rewritten += is_again and not stored.is_deleted
            (groups.revived if stored.is_deleted else groups.updated).append(record.key)
        elif not is_older(record, stored, version):
            groups.untouched.append(record)
        elif not is_again:
            groups.outdated.append(record.key)

    @override
    def note(
        self, merged: MergeResult, *, import_id: int | None, publish: bool = False
    ) -> None:
        changes = [
            *(("created", key) for key in merged.created),
            *(("updated", key) for key in merged.updated),
            *(("deleted", key) for key in merged.deleted),
        ]
        if not changes:
            return
        if merged.created and self.of.dataset.archive is not None:
            self.of.restore(self.connection, merged.created)
        before, tag, previous_tag = self._reserve_changes(len(changes), publish=publish)
        name, now = self.of.dataset.name, self.now
        self.connection.executemany(
            self.statements["add_change"],
            [
                (
                    *(name, seq, kind, encode_key_text(key), import_id, now, tag),
                    previous_tag if seq == before + 1 else None,
                )
                for seq, (kind, key) in enumerate(changes, start=before + 1)
            ],
        )

    def find_repeated_page(self, imprint: bytes) -> PageSummary | None:
        """Return the summary of an earlier equal page, if its rows are still the same.

        They are if exactly these rows are stored between its first and its last key.
        """
        parameters = {"dataset": self.of.dataset.name, "imprint": imprint}
        row = self.connection.execute(
            self.statements["find_memo"], parameters
        ).fetchone()
        if row is None:
            return None
        memo = decode_summary(row["memo"])
        found = self.of.between(
            self.connection, memo.first, memo.last, limit=memo.records + 1
        )
        if len(found) != memo.records or any(is_deleted for _, is_deleted in found):
            return None
        is_same = combine_digests(digest for digest, _ in found) == memo.digest
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
    def row_version(self, key: Key) -> RowVersion | None:
        for row in self.of.find_existing(self.connection, [key]).values():
            return RowVersion(instant(row.updated_at), row.import_id, row.rank)
        return None

    @override
    def supersede_rejections(self, *, job: int, start: int) -> None:
        self.of.supersede_rejections(self.connection, job=job, start=start)

    @override
    def count_missing(
        self, *, import_id: int, started: datetime, retained: Sequence[RowOrigin] = ()
    ) -> int:
        since = (started - EPOCH) // MICROSECOND
        return self.of.count_missing(
            self.connection, import_id=import_id, started=since, retained=retained
        )

    @override
    def missing_by_file(
        self, *, import_id: int, started: datetime
    ) -> Mapping[RowOrigin, int]:
        since = (started - EPOCH) // MICROSECOND
        return self.of.missing_by_file(
            self.connection, import_id=import_id, started=since
        )

    @override
    def mark_missing(
        self, *, import_id: int, started: datetime, retained: Sequence[RowOrigin] = ()
    ) -> int:
        missing = self.count_missing(
            import_id=import_id, started=started, retained=retained
        )
        if not missing:
            return 0
        changes = self._reserve_changes(missing)
        self.of.mark_missing(
            self.connection,
            import_id=import_id,
            started=(started - EPOCH) // MICROSECOND,
            retained=retained,
            changes=changes,
            now=self.now,
        )
        return missing

    @override
    def expired(
        self, cut: ArchiveCut, *, after: Key | None, limit: int
    ) -> Sequence[Key]:
        parameters = cut_parameters(cut)
        return self.of.expired(self.connection, parameters, after=after, limit=limit)

    @override
    def archive(self, cut: ArchiveCut, keys: Sequence[Key]) -> int:
        parameters = cut_parameters(cut)
        moved = self.of.archive(self.connection, parameters, keys, now=self.now)
        self.note(MergeResult(deleted=moved), import_id=None, publish=True)
        return len(moved)

    def _reserve_changes(
        self, changes: int, *, publish: bool = False
    ) -> ReservedChanges:
        """Reserve numbers for so many change events.

        The sequence has no gaps: it is in a row that the transaction has locked.
        """
        name = self.of.dataset.name
        rows = self.connection.execute(
            self.statements["advance_dataset"],
            {"dataset": name, "changes": changes, "generations": int(publish)},
        ).fetchall()
        if not rows:
            raise LookupError(f"dataset {name!r} was never prepared")
        last, tag, previous_tag = rows[0]
        return ReservedChanges(last - changes, tag, previous_tag)


def cut_parameters(cut: ArchiveCut) -> Mapping[str, object]:
    return {
        "last_seen_by": cut.last_seen_by,
        "written_before": (cut.written_before - EPOCH) // MICROSECOND,
    }


@dataclass(slots=True)
class SortedRows:
    """The records of a page, grouped by what they change."""

    created: list[Record] = field(default_factory=list)
    changed: list[Record] = field(default_factory=list)
    untouched: list[Record] = field(default_factory=list)
    # those whose stored row is newer, and was not seen by this import before
    outdated: list[Key] = field(default_factory=list)
    revived: list[Key] = field(default_factory=list)
    updated: list[Key] = field(default_factory=list)
    again: int = 0
    rewritten: int = 0
    # some of the keys that this import had before
    repeated_keys: list[Key] = field(default_factory=list)

    def repeat(self, key: Key, *, is_again: bool) -> None:
        self.again += is_again
        if is_again and len(self.repeated_keys) < MAX_KEY_EXAMPLES:
            self.repeated_keys.append(key)


def is_older(record: Record, stored: ExistingRows, version: int | None) -> bool:
    if version is None or stored.version is None:
        return False
    mine = record.values[version]
    return mine is None or bool(mine < stored.version)  # type: ignore[operator]


def is_newer(record: Record, stored: ExistingRows, version: int | None) -> bool:
    if version is None:
        return False
    mine = record.values[version]
    if mine is None or stored.version is None:
        return mine is not None
    return bool(mine > stored.version)  # type: ignore[operator]
