"""Rows that leave the table of their dataset for its archive."""

from collections.abc import Sequence

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, Transaction, read_count
from penstock.adapters.sqlstore.row_mappers import RowMappers
from penstock.adapters.sqlstore.schema import refuse_stale, refusing_stale
from penstock.domain.archiving import ArchiveCut, Sighting
from penstock.domain.completion import MissingRows
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportId
from penstock.domain.pages import Key
from penstock.ports import Archive


class SqlArchive(Archive):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = RowMappers(database.instant)

    @override
    def sightings(self, dataset: Dataset) -> Sequence[Sighting]:
        found = self._database.read(
            lambda transaction: transaction.all("sightings", dataset=dataset.name)
        )
        return [
            Sighting(
                import_id=ImportId(row["import_id"]),
                started_at=self._rows.instant(row["started_at"]),
                seen_at=self._rows.instant(row["seen_at"]),
            )
            for row in found
        ]

    @override
    def count(self, dataset: Dataset, cut: ArchiveCut, *, missing: int) -> MissingRows:
        # counting the rows of large tables takes longer than a read may
        with self._database.stream() as transaction:
            keyless = transaction.one(
                "count_keyless_rejections", import_id=cut.missed_by
            )
            return MissingRows(
                live=transaction.table(dataset).count(),
                missing=missing,
                keyless=read_count(keyless),
            )

    @override
    def expired(
        self, dataset: Dataset, cut: ArchiveCut, *, after: Key | None, limit: int
    ) -> Sequence[Key]:
        with (
            refusing_stale(self._database, dataset),
            # where few rows have expired, it reads many
            self._database.stream() as transaction,
        ):
            return transaction.table(dataset).expired(cut, after=after, limit=limit)

    @override
    def move(self, dataset: Dataset, cut: ArchiveCut, keys: Sequence[Key]) -> int:
        def work(transaction: Transaction) -> int:
            moved = transaction.table(dataset).archive(cut, keys)
            # only now the table is locked against a conversion
            row = transaction.one("get_dataset", dataset=dataset.name)
            refuse_stale(row, dataset)
            return moved

        with refusing_stale(self._database, dataset):
            return self._database.write(work)

    @override
    def forget(self, dataset: Dataset, cut: ArchiveCut) -> None:
        self._database.write(
            lambda transaction: transaction.execute(
                "forget_sightings", dataset=dataset.name, before=cut.last_seen_by
            )
        )
