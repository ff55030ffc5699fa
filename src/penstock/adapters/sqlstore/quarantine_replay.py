"""Store quarantined rows that are good now, in one transaction."""

from datetime import datetime

from penstock.adapters.sqlstore.database import MergeResult, RowVersion, Transaction
from penstock.adapters.sqlstore.key_encoding import encode_key_text
from penstock.adapters.sqlstore.row_mappers import RowMappers
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportId
from penstock.domain.pages import Key, Record
from penstock.domain.sharding.parts import Slice
from penstock.ports import QuarantinedRow


class QuarantineReplay:
    """Stores the rows of one transaction, one by one."""

    def __init__(
        self, transaction: Transaction, dataset: Dataset, rows: RowMappers
    ) -> None:
        self._transaction = transaction
        self._dataset = dataset
        self._table = transaction.table(dataset)
        self._rows = rows
        self._ends: dict[ImportId, datetime | None] = {}
        self._created: dict[ImportId, list[Key]] = {}
        self._updated: dict[ImportId, list[Key]] = {}

    def __call__(self, row: QuarantinedRow, record: Record) -> str | None:
        """Store one row, and return its resolution; None if it is already resolved."""
        transaction, import_id = self._transaction, row.import_id
        if not transaction.execute(
            "resolve_rejection", id=row.id, resolved="superseded"
        ):
            return None
        rank = rank_of(row) if self._dataset.is_ranked else 0
        if not self._store(row, record, rank):
            return "superseded"
        with transaction.pipeline():
            if rank:
                transaction.execute(
                    "renew_rejections",
                    dataset=self._dataset.name,
                    import_id=import_id,
                    key=encode_key_text(record.key),
                )
            transaction.execute("accept_rejection", id=row.id)
        return "accepted"

    def note(self) -> None:
        """Append change events for all rows that were stored."""
        for import_id, created in self._created.items():
            merged = MergeResult(created=created, updated=self._updated[import_id])
            self._table.note(merged, import_id=import_id, publish=True)

    def _store(self, row: QuarantinedRow, record: Record, rank: int) -> bool:
        """Store one row unless the stored row of its key wins."""
        table, import_id = self._table, row.import_id
        current = table.row_version(record.key)
        if current is not None and is_written_since(current, row, self._end(import_id)):
            return False
        merged = table.merge([record], import_id=import_id, rank=rank, track=bool(rank))
        self._created.setdefault(import_id, []).extend(merged.created)
        self._updated.setdefault(import_id, []).extend(merged.updated)
        if merged.created or merged.updated or not self._dataset.is_ranked:
            return True
        # where the order of rows decides, an equal row of this rank is accepted as well
        current = table.row_version(record.key)
        position = None if current is None else (current.import_id, current.rank)
        return rank > 0 and position == (import_id, rank)

    def _end(self, import_id: ImportId) -> datetime | None:
        """Return when an import ended; None if it has not."""
        if import_id not in self._ends:
            found = self._transaction.one("get_import", import_id=import_id)
            finished_at = None if found is None else found["finished_at"]
            self._ends[import_id] = self._rows.instant_or_none(finished_at)
        return self._ends[import_id]


def is_written_since(
    current: RowVersion, row: QuarantinedRow, ended: datetime | None
) -> bool:
    """Return whether the stored row was written after the bad row was quarantined.

    Writes of the same import do not count, because its pages are committed in any
    order: there the rank decides.
    """
    if current.rank and current.import_id == row.import_id:
        return ended is not None and current.updated_at > max(row.at, ended)
    return current.updated_at > row.at


def rank_of(row: QuarantinedRow) -> int:
    """Return the rank of a row in its files; 0 for a record of an API."""
    location = row.rejection.place
    return 0 if location is None else Slice.of_key(row.shard_key).rank(location.offset)
