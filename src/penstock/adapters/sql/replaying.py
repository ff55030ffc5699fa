"""Store quarantined rows that are good now, in one transaction."""

from datetime import datetime

from penstock.adapters.sql.database import Merged, Stamp, Transaction
from penstock.adapters.sql.keys import key_text
from penstock.adapters.sql.rows import Rows
from penstock.domain.dataset import Dataset
from penstock.domain.job import ImportId
from penstock.domain.page import Key, Record
from penstock.domain.parts import Slice
from penstock.ports import Quarantined


class Replaying:
    """The rows of one transaction, each tried alone."""

    def __init__(self, transaction: Transaction, dataset: Dataset, rows: Rows) -> None:
        self._transaction = transaction
        self._dataset = dataset
        self._table = transaction.table(dataset)
        self._rows = rows
        self._ends: dict[ImportId, datetime | None] = {}
        self._created: dict[ImportId, list[Key]] = {}
        self._updated: dict[ImportId, list[Key]] = {}

    def __call__(self, row: Quarantined, record: Record) -> str | None:
        """Store one row, and say what became of it; None if others were faster."""
        transaction, import_id = self._transaction, row.import_id
        if not transaction.execute(
            "resolve_rejection", id=row.id, resolved="superseded"
        ):
            return None
        rank = rank_of(row) if self._dataset.is_ranked else 0
        if not self._store(row, record, rank):
            return "superseded"
        with transaction.together():
            if rank:
                transaction.execute(
                    "renew_complaints",
                    dataset=self._dataset.name,
                    import_id=import_id,
                    key=key_text(record.key),
                )
            transaction.execute("accept_rejection", id=row.id)
        return "accepted"

    def note(self) -> None:
        """Append the events of all rows that were stored."""
        for import_id, created in self._created.items():
            merged = Merged(created=created, updated=self._updated[import_id])
            self._table.note(merged, import_id=import_id, publish=True)

    def _store(self, row: Quarantined, record: Record, rank: int) -> bool:
        """Store one row unless another of its key is to stay."""
        table, import_id = self._table, row.import_id
        known = table.stamp(record.key)
        if known is not None and is_written_since(known, row, self._end(import_id)):
            return False
        merged = table.merge([record], import_id=import_id, rank=rank, track=bool(rank))
        self._created.setdefault(import_id, []).extend(merged.created)
        self._updated.setdefault(import_id, []).extend(merged.updated)
        if merged.created or merged.updated or not self._dataset.is_ranked:
            return True
        # where the order of rows decides, it may be stored as it is, and stand last
        known = table.stamp(record.key)
        stands = None if known is None else (known.import_id, known.rank)
        return rank > 0 and stands == (import_id, rank)

    def _end(self, import_id: ImportId) -> datetime | None:
        """Return when an import ended, if it has."""
        if import_id not in self._ends:
            found = self._transaction.one("get_import", import_id=import_id)
            at = None if found is None else found["finished_at"]
            self._ends[import_id] = self._rows.instant_or_none(at)
        return self._ends[import_id]


def is_written_since(known: Stamp, row: Quarantined, ended: datetime | None) -> bool:
    """Say whether somebody has written the row of a key since one was put aside.

    Not its own import, whose pages come in any order: whether what it has stored stays
    is told by where that stands.
    """
    if known.rank and known.import_id == row.import_id:
        return ended is not None and known.updated_at > max(row.at, ended)
    return known.updated_at > row.at


def rank_of(row: Quarantined) -> int:
    """Return where in its files a row stands; 0 of a record of an API."""
    place = row.rejection.place
    return 0 if place is None else Slice.of_key(row.shard_key).rank(place.offset)
