"""The states of an import's shards, aggregated by the database."""

from collections.abc import Sequence

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow
from penstock.domain.jobs import ImportId, Shards
from penstock.ports.coverage import ImportCoverage, PartCoverage


class SqlImportCoverage(ImportCoverage):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def parts(self, import_id: ImportId, *, limit: int) -> Sequence[PartCoverage]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "part_coverage", import_id=import_id, limit=limit
            )
        )
        return [
            PartCoverage(part=row["part"], shards=read_counts(row)) for row in found
        ]

    @override
    def buckets(self, import_id: ImportId, *, count: int) -> Sequence[Shards]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "coverage_buckets", import_id=import_id, count=count
            )
        )
        return [*map(read_counts, found)]


def read_counts(row: SqlRow) -> Shards:
    return Shards(
        total=row["total"],
        pending=row["pending"],
        leased=row["leased"],
        done=row["done"],
        failed=row["failed"],
        split=row["split"],
        cancelled=row["cancelled"],
    )
