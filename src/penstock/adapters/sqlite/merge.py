"""Merge records into a dataset's table: compare first, write only changes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.adapters.sqlite.database import Transaction
from penstock.adapters.sqlite.tables import Key, Known, Table, key_text
from penstock.domain.dataset import Dataset
from penstock.domain.page import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    inserted: int
    updated: int


def merge(
    transaction: Transaction,
    table: Table,
    records: Sequence[Record],
    *,
    import_id: int,
    seen: Collection[Key] = (),
    track: bool,
) -> Merged:
    """Store what is new or changed, with one change event each.

    With `track`, rows that were only seen are marked with the import too, so that the
    end of a full import can tell which are missing.
    """
    dataset = table.dataset
    connection = transaction.connection
    known = table.known(connection, [record.key for record in records])
    created, changed, untouched = [], [], []
    version = None if dataset.version is None else dataset.column(dataset.version)
    for record in records:
        stored = known.get(tuple(table.stored(record.key)))
        if stored is None:
            created.append(record)
        elif stored.is_deleted or (
            stored.digest != record.digest and not is_older(record, stored, version)
        ):
            # what was deleted has no version any more that could be newer
            changed.append(record)
        else:
            untouched.append(record)
    now = transaction.now
    table.insert(connection, created, import_id=import_id, now=now)
    table.update(connection, changed, import_id=import_id, now=now)
    if track:
        table.touch(
            connection, [*(r.key for r in untouched), *seen], import_id=import_id
        )
    revived = {r.key for r in changed if known[tuple(table.stored(r.key))].is_deleted}
    note_changes(
        transaction,
        dataset,
        import_id=import_id,
        changes=[
            *(("created", record.key) for record in created),
            *(("created" if r.key in revived else "updated", r.key) for r in changed),
        ],
    )
    return Merged(
        inserted=len(created) + len(revived),
        updated=len(changed) - len(revived),
    )


def is_older(record: Record, stored: Known, version: int | None) -> bool:
    if version is None or stored.version is None:
        return False
    mine = record.values[version]
    return mine is None or bool(mine < stored.version)  # type: ignore[operator]


def note_changes(
    transaction: Transaction,
    dataset: Dataset,
    *,
    import_id: int,
    changes: Sequence[tuple[str, Key]],
) -> None:
    """Append change events in their order."""
    if not changes:
        return
    before = reserve_changes(transaction, dataset, len(changes))
    name, now = dataset.name, transaction.now
    transaction.connection.executemany(
        transaction.statements["add_change"],
        [
            (name, seq, kind, key_text(key), import_id, now)
            for seq, (kind, key) in enumerate(changes, start=before + 1)
        ],
    )


def reserve_changes(transaction: Transaction, dataset: Dataset, changes: int) -> int:
    """Return the number after which so many events of this transaction stand.

    The sequence has no gaps, because it is kept in a row that the transaction holds.
    """
    row = transaction.one("advance_dataset", dataset=dataset.name, changes=changes)
    if row is None:
        raise LookupError(f"dataset {dataset.name!r} was never prepared")
    return int(row["change_seq"]) - changes
