"""Writes of clients: read, decide and write in one transaction."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, MergeResult, Transaction
from penstock.adapters.sqlstore.dataset_versions import read_dataset_version
from penstock.adapters.sqlstore.refused_rows import identify_refused_rows
from penstock.adapters.sqlstore.schema import refuse_stale, refusing_stale
from penstock.adapters.sqlstore.table_protocols import RecordTable
from penstock.domain.dataset import Dataset
from penstock.domain.pages import Key
from penstock.ports.record_access import (
    Decide,
    LockedRow,
    RecordWriter,
    Removal,
    Write,
    WriteResult,
)


class SqlRecordWriter(RecordWriter):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def change(
        self, dataset: Dataset, keys: Sequence[Key], decide: Decide
    ) -> WriteResult:
        def prepare(
            transaction: Transaction,
        ) -> tuple[Sequence[Write], Callable[[Sequence[Write]], object]]:
            table = transaction.record_table(dataset)
            locked = table.lock_rows(keys)
            decisions = decide(LiveRows(table, locked))
            writes = [write for write in decisions if isinstance(write, Write)]
            return writes, lambda batch: table.store(batch, locked)

        with (
            refusing_stale(self._database, dataset),
            identify_refused_rows(
                self._database, dataset, prepare, lambda write: write.record
            ),
        ):
            return self._database.write(
                lambda transaction: edit(transaction, dataset, keys, decide)
            )


class LiveRows(Mapping[Key, LockedRow]):
    """The locked rows that are not deleted, each read only when it is used."""

    def __init__(self, table: RecordTable, locked: Mapping[Key, bool]) -> None:
        self._table = table
        # in the order of the table
        self._keys = {key: None for key, is_deleted in locked.items() if not is_deleted}

    @override
    def __getitem__(self, key: Key) -> LockedRow:
        if key not in self._keys:
            raise KeyError(key)
        return self._table.locked_row(key)

    @override
    def __contains__(self, key: object) -> bool:
        return key in self._keys

    @override
    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    @override
    def __len__(self) -> int:
        return len(self._keys)


def edit(
    transaction: Transaction, dataset: Dataset, keys: Sequence[Key], decide: Decide
) -> WriteResult:
    table = transaction.record_table(dataset)
    locked = table.lock_rows(keys)
    live = LiveRows(table, locked)
    decisions = decide(live)
    writes = [write for write in decisions if isinstance(write, Write)]
    removed = [removal.key for removal in decisions if isinstance(removal, Removal)]
    written = [write.record.key for write in writes]
    merged = MergeResult(
        created=[key for key in written if key not in live],
        updated=[key for key in written if key in live],
        deleted=removed,
    )
    table.store(writes, locked)
    if dataset.archive is not None:
        table.mark_edited(written)
    table.remove(removed)
    transaction.table(dataset).note(merged, import_id=None, publish=True)
    one = table.one(written[0], dataset.fields) if len(written) == 1 else None
    versions = table.versions(written) if one is None else {written[0]: one.version}
    row = transaction.one("get_dataset", dataset=dataset.name)
    if row is None:
        raise LookupError(f"dataset {dataset.name!r} was never prepared")
    refuse_stale(row, dataset)
    return WriteResult(
        created=len(merged.created),
        updated=len(merged.updated),
        deleted=len(merged.deleted),
        versions={key: versions[key] for key in written},
        one=one,
        state=read_dataset_version(row),
    )
