"""The stored records of the datasets."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from typing_extensions import override

from penstock.adapters.sql.complaints import last_first
from penstock.adapters.sql.database import Database, Stamp, Transaction
from penstock.adapters.sql.keys import key_text
from penstock.adapters.sql.rows import Rows
from penstock.domain.dataset import Dataset, Reference
from penstock.domain.job import ImportId
from penstock.domain.page import Reason, Record, Rejection
from penstock.domain.parts import Slice
from penstock.ports import Quarantined, ReasonCount, Records, Replay


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
            ended = Ended(transaction, self._rows)
            accepted = superseded = still_bad = 0
            for row, outcome in tried:
                if isinstance(outcome, Rejection):
                    still_bad += 1
                    explain(transaction, row, outcome)
                    continue
                resolved = replay_one(
                    transaction, dataset, row, outcome, ended=ended(row.import_id)
                )
                accepted += resolved == "accepted"
                superseded += resolved == "superseded"
            return Replay(accepted=accepted, superseded=superseded, still_bad=still_bad)

        return self._database.write(work)


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


class Ended:
    """When imports ended, asked once for each; None of those that have not."""

    def __init__(self, look: Transaction, rows: Rows) -> None:
        self._look = look
        self._rows = rows
        self._known: dict[ImportId, datetime | None] = {}

    def __call__(self, import_id: ImportId) -> datetime | None:
        if import_id not in self._known:
            row = self._look.one("get_import", import_id=import_id)
            at = None if row is None else row["finished_at"]
            self._known[import_id] = self._rows.instant_or_none(at)
        return self._known[import_id]


def replay_one(
    transaction: Transaction,
    dataset: Dataset,
    row: Quarantined,
    record: Record,
    *,
    ended: datetime | None,
) -> str | None:
    """Store one row that is good now; None if another replay was faster."""
    if not transaction.execute("resolve_rejection", id=row.id, resolved="superseded"):
        return None
    table = transaction.table(dataset)
    known = table.stamp(record.key)
    if known is not None and is_written_since(known, row, ended):
        return "superseded"
    rank = rank_of(row) if dataset.is_ranked else 0
    merged = table.merge([record], import_id=row.import_id, rank=rank, track=bool(rank))
    # where the order of rows decides, the one that stands last stays
    if dataset.is_ranked and not merged.created and not merged.updated:
        known = table.stamp(record.key)
        if not rank or known is None or known[1:] != (row.import_id, rank):
            return "superseded"
    table.note(merged, import_id=row.import_id, publish=True)
    if rank:
        transaction.execute(
            "renew_complaints",
            dataset=dataset.name,
            import_id=row.import_id,
            key=key_text(record.key),
        )
    transaction.execute("accept_rejection", id=row.id)
    return "accepted"


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
