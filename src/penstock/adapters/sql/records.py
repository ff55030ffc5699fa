"""The stored records of the datasets."""

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias

from typing_extensions import override

from penstock.adapters.sql.complaints import last_first
from penstock.adapters.sql.database import Database, Transaction
from penstock.adapters.sql.refused import naming_rows
from penstock.adapters.sql.replaying import Replaying
from penstock.adapters.sql.rows import Rows
from penstock.adapters.sql.schema import refuse_stale
from penstock.domain.dataset import Dataset, Reference
from penstock.domain.job import ImportId
from penstock.domain.page import Reason, Record, Rejection
from penstock.domain.queries.query import MOST_PAGE_BYTES
from penstock.ports import Quarantined, ReasonCount, Records, Replay

Tried: TypeAlias = tuple[Quarantined, Record | Rejection]


class SqlRecords(Records):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = Rows(database.instant)

    @override
    def rows(self, dataset: Dataset) -> Iterator[tuple[object, ...]]:
        with self._database.stream() as transaction:
            yield from transaction.table(dataset).rows()

    @override
    def count(self, dataset: Dataset) -> int:
        return self._database.read(lambda look: look.table(dataset).count())

    @override
    def distinct(self, dataset: Dataset, field: str) -> Iterator[str]:
        with self._database.stream() as transaction:
            yield from transaction.table(dataset).distinct(field)

    @override
    def unknown(
        self, reference: Reference, values: Collection[object]
    ) -> Collection[object]:
        known = self._database.read(
            lambda look: look.known_values(reference, list(values))
        )
        return set(values) - set(known)

    @override
    def watermark(self, dataset: Dataset) -> datetime | None:
        row = self._database.read(
            lambda look: look.one("get_dataset", dataset=dataset.name)
        )
        return None if row is None else self._rows.instant_or_none(row["watermark"])

    @override
    def quarantine(
        self, dataset: Dataset, *, after: int, limit: int
    ) -> Sequence[Quarantined]:
        return self._find(
            "find_rejections", dataset=dataset.name, after=after, limit=limit
        )

    @override
    def latest_quarantine(
        self, dataset: Dataset, *, at_once: int
    ) -> Iterator[Sequence[Quarantined]]:
        if not dataset.is_ranked:
            yield from self._backwards(
                "latest_rejections", dataset=dataset.name, limit=at_once
            )
            return
        for job in self._database.read(lambda look: last_first(look, dataset)):
            yield from self._backwards("last_rejections", job=job, limit=at_once)

    def _backwards(
        self, name: str, /, **asked: object
    ) -> Iterator[Sequence[Quarantined]]:
        before: dict[str, int | None] = {"before": None, "page": None, "position": None}
        while found := self._find(name, **asked, **before):
            yield found
            last = found[-1]
            before = {
                "before": last.id,
                "page": last.page_seq,
                "position": last.rejection.position,
            }

    def _find(self, name: str, /, **asked: object) -> Sequence[Quarantined]:
        found = self._database.read(lambda look: look.all(name, **asked))
        return [self._rows.read_quarantined(row) for row in found]

    @override
    def rejected(
        self, import_id: ImportId, *, after: int, limit: int
    ) -> Sequence[Quarantined]:
        found = self._database.read(
            lambda look: look.all(
                "import_rejections",
                import_id=read_by(look, import_id),
                after=after,
                limit=limit,
                bytes=MOST_PAGE_BYTES,
            )
        )
        return [self._rows.read_quarantined(row) for row in found]

    @override
    def rejections_by_reason(self, import_id: ImportId) -> Sequence[ReasonCount]:
        found = self._database.read(
            lambda look: look.all(
                "count_rejections", import_id=read_by(look, import_id)
            )
        )
        return [
            ReasonCount(
                reason=Reason(row["reason"]), field=row["field"], rows=row["counted"]
            )
            for row in found
        ]

    @override
    def replay(
        self,
        dataset: Dataset,
        tried: Sequence[tuple[Quarantined, Record | Rejection]],
    ) -> Replay:
        def work(transaction: Transaction) -> Replay:
            refuse_outdated(transaction, dataset)
            replaying = Replaying(transaction, dataset, self._rows)
            accepted = superseded = still_bad = 0
            for row, outcome in tried:
                if isinstance(outcome, Rejection):
                    still_bad += 1
                    explain(transaction, row, outcome)
                    continue
                resolved = replaying(row, outcome)
                accepted += resolved == "accepted"
                superseded += resolved == "superseded"
            # last, because others who commit a page wait for what it holds
            replaying.note()
            # once more: only by now the table is held, and not converted meanwhile
            refuse_outdated(transaction, dataset)
            return Replay(accepted=accepted, superseded=superseded, still_bad=still_bad)

        def storing(
            transaction: Transaction,
        ) -> tuple[Sequence[Tried], Callable[[Sequence[Tried]], object]]:
            good = [each for each in tried if isinstance(each[1], Record)]

            def store(some: Sequence[Tried]) -> None:
                replaying = Replaying(transaction, dataset, self._rows)
                for row, record in some:
                    if isinstance(record, Record):
                        replaying(row, record)

            return good, store

        with naming_rows(self._database, dataset, storing, record_of):
            # row by row it takes longer than a page may, and there is no lease to lose
            return self._database.write(work, slow=True)


def refuse_outdated(transaction: Transaction, dataset: Dataset) -> None:
    refuse_stale(transaction.one("get_dataset", dataset=dataset.name), dataset)


def record_of(tried: Tried) -> Record:
    _, outcome = tried
    if not isinstance(outcome, Record):
        raise TypeError("a row that is still bad is not stored")
    return outcome


def read_by(look: Transaction, import_id: ImportId) -> int:
    """Return the import that has read the rows of this one."""
    row = look.one("import_that_read", import_id=import_id)
    return import_id if row is None else row["id"]


def explain(transaction: Transaction, row: Quarantined, outcome: Rejection) -> None:
    transaction.execute(
        "explain_rejection",
        id=row.id,
        field=outcome.field,
        reason=outcome.reason,
        detail=outcome.detail,
    )
