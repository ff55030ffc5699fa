"""The stored records of the datasets, on SQLite."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime

from typing_extensions import override

from penstock.adapters.sqlite.database import Database, instant, instant_or_none
from penstock.adapters.sqlite.merge import merge
from penstock.adapters.sqlite.tables import Tables
from penstock.domain.dataset import Dataset
from penstock.domain.job import ImportId, JobId
from penstock.domain.page import Reason, Record, Rejection
from penstock.ports import Quarantined, Records, Replay


class SqliteRecords(Records):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._tables = Tables()

    @override
    def rows(self, dataset: Dataset) -> Iterator[tuple[object, ...]]:
        with self._database.read() as transaction:
            yield from self._tables.of(dataset).rows(transaction.connection)

    @override
    def count(self, dataset: Dataset) -> int:
        with self._database.read() as transaction:
            return self._tables.of(dataset).count(transaction.connection)

    @override
    def distinct(self, dataset: Dataset, field: str) -> Iterator[str]:
        with self._database.read() as transaction:
            yield from self._tables.of(dataset).distinct(transaction.connection, field)

    @override
    def watermark(self, dataset: Dataset) -> datetime | None:
        with self._database.read() as transaction:
            row = transaction.one("get_dataset", dataset=dataset.name)
        return None if row is None else instant_or_none(row["watermark"])

    @override
    def quarantine(
        self, dataset: Dataset, *, after: int, limit: int
    ) -> Sequence[Quarantined]:
        with self._database.read() as transaction:
            rows = transaction.execute(
                "find_rejections", dataset=dataset.name, after=after, limit=limit
            ).fetchall()
        return [read_quarantined(row) for row in rows]

    @override
    def latest_quarantine(
        self, dataset: Dataset, *, before: int | None, limit: int
    ) -> Sequence[Quarantined]:
        with self._database.read() as transaction:
            rows = transaction.execute(
                "latest_rejections", dataset=dataset.name, before=before, limit=limit
            ).fetchall()
        return [read_quarantined(row) for row in rows]

    @override
    def replay(
        self,
        dataset: Dataset,
        tried: Sequence[tuple[Quarantined, Record | Rejection]],
    ) -> Replay:
        table = self._tables.of(dataset)
        accepted = superseded = still_bad = 0
        with self._database.write() as transaction:
            for row, outcome in tried:
                if isinstance(outcome, Rejection):
                    still_bad += 1
                    transaction.execute(
                        "explain_rejection",
                        id=row.id,
                        field=outcome.field,
                        reason=outcome.reason,
                        detail=outcome.detail,
                    )
                    continue
                known = table.known(transaction.connection, [outcome.key])
                newer = any(
                    instant(each.updated_at) > row.at for each in known.values()
                )
                resolved = "superseded" if newer else "accepted"
                changed = transaction.execute(
                    "resolve_rejection", id=row.id, resolved=resolved
                ).rowcount
                if not changed:
                    # another replay was faster
                    continue
                if newer:
                    superseded += 1
                    continue
                accepted += 1
                merge(
                    transaction,
                    table,
                    [outcome],
                    import_id=row.import_id,
                    track=False,
                )
        return Replay(accepted=accepted, superseded=superseded, still_bad=still_bad)


def read_quarantined(row: sqlite3.Row) -> Quarantined:
    return Quarantined(
        id=row["id"],
        import_id=ImportId(row["import_id"]),
        job=JobId(row["job_id"]),
        shard_key=row["shard_key"],
        page_seq=row["page_seq"],
        rejection=Rejection(
            position=row["position"],
            reason=Reason(row["reason"]),
            detail=row["detail"],
            raw=row["raw"],
            field=row["field"],
            key=None if row["key"] is None else tuple(json.loads(row["key"])),
        ),
        at=instant(row["at"]),
    )
