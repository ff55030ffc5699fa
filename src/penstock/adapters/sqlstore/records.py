"""The stored records of the datasets."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, Transaction
from penstock.adapters.sqlstore.file_rejections import jobs_with_rejections
from penstock.adapters.sqlstore.quarantine_replay import QuarantineReplay
from penstock.adapters.sqlstore.refused_rows import identify_refused_rows
from penstock.adapters.sqlstore.row_mappers import RowMappers
from penstock.adapters.sqlstore.schema import refuse_stale, refusing_stale
from penstock.domain.dataset import Dataset, Reference
from penstock.domain.jobs import ImportId
from penstock.domain.pages import Reason, Record, Rejection
from penstock.domain.search.query import MAX_PAGE_BYTES
from penstock.ports import (
    QuarantinedRow,
    ReasonCount,
    Records,
    RejectionFilter,
    Replay,
)

# pairs of a reason and a field that are counted
MAX_REASONS = 1_000

Tried: TypeAlias = tuple[QuarantinedRow, Record | Rejection]


class SqlRecords(Records):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = RowMappers(database.instant)

    @override
    def rows(self, dataset: Dataset) -> Iterator[tuple[object, ...]]:
        with (
            refusing_stale(self._database, dataset),
            self._database.stream() as transaction,
        ):
            yield from transaction.table(dataset).rows()

    @override
    def count(self, dataset: Dataset) -> int:
        return self._database.read(
            lambda transaction: transaction.table(dataset).count()
        )

    @override
    def distinct(self, dataset: Dataset, field: str) -> Iterator[str]:
        with self._database.stream() as transaction:
            yield from transaction.table(dataset).distinct(field)

    @override
    def unknown(
        self, reference: Reference, values: Collection[object]
    ) -> Collection[object]:
        existing = self._database.read(
            lambda transaction: transaction.existing_values(reference, list(values))
        )
        return set(values) - set(existing)

    @override
    def watermark(self, dataset: Dataset) -> datetime | None:
        row = self._database.read(
            lambda transaction: transaction.one("get_dataset", dataset=dataset.name)
        )
        return None if row is None else self._rows.instant_or_none(row["watermark"])

    @override
    def quarantine(
        self, dataset: Dataset, *, after: int, limit: int
    ) -> Sequence[QuarantinedRow]:
        return self._find(
            "find_rejections", dataset=dataset.name, after=after, limit=limit
        )

    @override
    def latest_quarantine(
        self, dataset: Dataset, *, at_once: int
    ) -> Iterator[Sequence[QuarantinedRow]]:
        if not dataset.is_ranked:
            yield from self._backwards(
                "latest_rejections", dataset=dataset.name, limit=at_once
            )
            return
        for job in self._database.read(
            lambda transaction: jobs_with_rejections(transaction, dataset)
        ):
            yield from self._backwards("last_rejections", job=job, limit=at_once)

    def _backwards(
        self, name: str, /, **parameters: object
    ) -> Iterator[Sequence[QuarantinedRow]]:
        before: dict[str, int | None] = {"before": None, "page": None, "position": None}
        while found := self._find(name, **parameters, **before):
            yield found
            last = found[-1]
            before = {
                "before": last.id,
                "page": last.page_seq,
                "position": last.rejection.position,
            }

    def _find(self, name: str, /, **parameters: object) -> Sequence[QuarantinedRow]:
        found = self._database.read(
            lambda transaction: transaction.all(name, **parameters)
        )
        return [self._rows.read_quarantined(row) for row in found]

    @override
    def rejected(
        self, import_id: ImportId, *, after: int, limit: int
    ) -> Sequence[QuarantinedRow]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "import_rejections",
                import_id=source_import(transaction, import_id),
                after=after,
                limit=limit,
                bytes=MAX_PAGE_BYTES,
            )
        )
        return [self._rows.read_quarantined(row) for row in found]

    @override
    def rejections_by_reason(self, import_id: ImportId) -> Sequence[ReasonCount]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "count_rejections", import_id=source_import(transaction, import_id)
            )
        )
        return [
            ReasonCount(
                reason=Reason(row["reason"]), field=row["field"], rows=row["counted"]
            )
            for row in found
        ]

    @override
    def open_reasons(self, dataset: Dataset) -> Sequence[ReasonCount]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "open_reasons", dataset=dataset.name, limit=MAX_REASONS
            )
        )
        return [
            ReasonCount(
                reason=Reason(row["reason"]),
                field=row["field"],
                rows=row["counted"],
                last_id=row["last_id"],
            )
            for row in found
        ]

    @override
    def discard(self, dataset: Dataset, chosen: RejectionFilter, *, limit: int) -> int:
        bounds = {"dataset": dataset.name, "until": chosen.until}

        def work(transaction: Transaction) -> int:
            if chosen.reason is None:
                ids = json.dumps(list(chosen.ids)[:limit])
                return transaction.execute("discard_rows", ids=ids, **bounds)
            return transaction.execute(
                "discard_reason",
                reason=chosen.reason,
                field=chosen.field,
                limit=limit,
                **bounds,
            )

        return self._database.write(work)

    @override
    def replay(
        self,
        dataset: Dataset,
        tried: Sequence[tuple[QuarantinedRow, Record | Rejection]],
        *,
        dry_run: bool = False,
    ) -> Replay:
        def work(transaction: Transaction) -> Replay:
            refuse_outdated(transaction, dataset)
            replay = QuarantineReplay(transaction, dataset, self._rows)
            accepted = superseded = still_bad = 0
            for row, outcome in tried:
                if isinstance(outcome, Rejection):
                    still_bad += 1
                    update_rejection(transaction, row, outcome)
                    continue
                resolved = replay(row, outcome)
                accepted += resolved == "accepted"
                superseded += resolved == "superseded"
            # last, because it locks a row that every commit of a page needs
            replay.note()
            # once more: only now the table is locked against a conversion
            refuse_outdated(transaction, dataset)
            result = Replay(
                accepted=accepted, superseded=superseded, still_bad=still_bad
            )
            if dry_run:
                raise ReplayRolledBack(result)
            return result

        def prepare(
            transaction: Transaction,
        ) -> tuple[Sequence[Tried], Callable[[Sequence[Tried]], object]]:
            good = [item for item in tried if isinstance(item[1], Record)]

            def store(batch: Sequence[Tried]) -> None:
                replay = QuarantineReplay(transaction, dataset, self._rows)
                for row, record in batch:
                    if isinstance(record, Record):
                        replay(row, record)

            return good, store

        with identify_refused_rows(self._database, dataset, prepare, record_of):
            # row by row it takes longer than a page, and there is no lease to lose
            try:
                return self._database.write(work, slow=True)
            except ReplayRolledBack as rollback:
                return rollback.result


class ReplayRolledBack(Exception):
    """Rolls back the transaction of a dry run."""

    def __init__(self, result: Replay) -> None:
        super().__init__()
        self.result = result


def refuse_outdated(transaction: Transaction, dataset: Dataset) -> None:
    refuse_stale(transaction.one("get_dataset", dataset=dataset.name), dataset)


def record_of(tried: Tried) -> Record:
    _, outcome = tried
    if not isinstance(outcome, Record):
        raise TypeError("a row that is still bad is not stored")
    return outcome


def source_import(transaction: Transaction, import_id: ImportId) -> int:
    """Return the import that has read the rows, if this one repeats it."""
    row = transaction.one("import_that_read", import_id=import_id)
    return import_id if row is None else row["id"]


def update_rejection(
    transaction: Transaction, row: QuarantinedRow, outcome: Rejection
) -> None:
    transaction.execute(
        "explain_rejection",
        id=row.id,
        field=outcome.field,
        reason=outcome.reason,
        detail=outcome.detail,
    )
