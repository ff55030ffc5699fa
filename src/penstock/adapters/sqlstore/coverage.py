"""The states of an import's shards, aggregated by the database."""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow, Transaction
from penstock.adapters.sqlstore.row_mappers import RowMappers
from penstock.domain.jobs import ImportId, Job, JobId, JobStatus, Shards
from penstock.ports.coverage import (
    ImportCoverage,
    JobRange,
    MatrixCell,
    PartCoverage,
)

MAX_JOB = 2**63 - 1
# what keeps an import from being complete, and is not being worked on
MISSING = (JobStatus.PENDING, JobStatus.FAILED, JobStatus.CANCELLED)


class SqlImportCoverage(ImportCoverage):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = RowMappers(database.instant)

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

    @override
    def matrix(self, import_id: ImportId, *, cells: int) -> Sequence[MatrixCell]:
        def work(transaction: Transaction) -> Sequence[MatrixCell]:
            size = transaction.one("plan_size", import_id=import_id)
            if size is None or size["across"] <= 1 or size["total"] % size["across"]:
                return []
            rows, across = size["total"] // size["across"], size["across"]
            if not 1 < rows <= cells:
                return []
            found = transaction.all(
                "coverage_matrix",
                import_id=import_id,
                across=across,
                columns=min(cells // rows, across),
            )
            splits = transaction.all("split_shards", import_id=import_id)
            return add_splits([*map(read_cell, found)], splits)

        found = self._database.read(work)
        return found if is_product(found) else []

    @override
    def jobs(
        self,
        import_id: ImportId,
        *,
        within: JobRange | None,
        only_missing: bool,
        after: JobId | None,
        limit: int,
    ) -> Sequence[Job]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "find_shards",
                import_id=import_id,
                first=0 if within is None else within.first,
                last=MAX_JOB if within is None else within.last,
                statuses=json.dumps(MISSING if only_missing else [*JobStatus]),
                after=0 if after is None else after,
                limit=limit,
            )
        )
        return [self._rows.read_job(row) for row in found]


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


def read_cell(row: SqlRow) -> MatrixCell:
    down, _, first = row["first_key"].partition("|")
    return MatrixCell(
        row=row["y"],
        column=row["x"],
        down=down,
        across=(first, row["last_key"].partition("|")[2]),
        jobs=JobRange(JobId(row["first_id"]), JobId(row["last_id"])),
        shards=read_counts(row),
    )


def add_splits(
    cells: Sequence[MatrixCell], splits: Sequence[SqlRow]
) -> Sequence[MatrixCell]:
    """Add the jobs of splits to the cells of the jobs that were planned."""
    firsts = [cell.jobs.first for cell in cells]
    added: dict[int, Counter[str]] = {}
    for row in splits:
        index = bisect_right(firsts, row["planned"]) - 1
        added.setdefault(index, Counter())[row["status"]] += row["jobs"]
    return [
        replace(cell, shards=add_counts(cell.shards, added[index]))
        if index in added
        else cell
        for index, cell in enumerate(cells)
    ]


def add_counts(shards: Shards, added: Mapping[str, int]) -> Shards:
    counts = {name: getattr(shards, name) + count for name, count in added.items()}
    return replace(shards, **counts, total=shards.total + sum(added.values()))


def is_product(cells: Sequence[MatrixCell]) -> bool:
    """Return whether each row has one value, and each column the same ones."""
    downs: dict[int, str] = {}
    acrosses: dict[int, tuple[str, str]] = {}
    return all(
        downs.setdefault(cell.row, cell.down) == cell.down
        and acrosses.setdefault(cell.column, cell.across) == cell.across
        for cell in cells
    ) and len({*downs.values()}) == len(downs)
