"""The live worker processes, in the database that they share."""

import json
from collections.abc import Sequence
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, Transaction
from penstock.adapters.sqlstore.row_mappers import RowMappers
from penstock.domain.formats import MICROSECOND
from penstock.domain.jobs import ImportId, WorkerId
from penstock.domain.scaling import OpenWork
from penstock.domain.waiting import DepartedWorker, LiveWorker
from penstock.ports import Workers
from penstock.ports.workers import WorkerAnnouncement

# for so long it is known since when there is no worker
RETENTION = timedelta(days=1)


class SqlWorkers(Workers):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = RowMappers(database.instant)

    @override
    def announce(self, worker: WorkerAnnouncement, *, lasting: timedelta) -> None:
        def work(transaction: Transaction) -> None:
            transaction.execute(
                "forget_departed_workers", retention=RETENTION // MICROSECOND
            )
            transaction.execute(
                "announce_worker",
                worker=worker.id,
                region=worker.region,
                declarations=json.dumps(dict(worker.declarations)),
                host=worker.host,
                pid=worker.pid,
                version=worker.version,
                threads=worker.threads,
                idle=None if worker.idle is None else worker.idle // MICROSECOND,
                lasting=lasting // MICROSECOND,
            )

        self._database.write(work)

    @override
    def remove(self, worker: WorkerId) -> None:
        self._database.write(
            lambda transaction: transaction.execute("remove_worker", worker=worker)
        )

    @override
    def open_work(self, *, most: int) -> Sequence[OpenWork]:
        def work(transaction: Transaction) -> Sequence[OpenWork]:
            return [
                OpenWork(
                    import_id=ImportId(row["id"]),
                    dataset=row["dataset"],
                    region=row["region"],
                    due=row["due"],
                    oldest_at=self._rows.instant_or_none(row["oldest_at"]),
                    leased=row["leased"],
                    page_gaps=[
                        gap["gap"] * MICROSECOND
                        for gap in transaction.all("page_gaps", import_id=row["id"])
                    ],
                )
                for row in transaction.all("open_work", most=most)
            ]

        return self._database.read(work)

    @override
    def live(self) -> Sequence[LiveWorker]:
        found = self._database.read(lambda transaction: transaction.all("live_workers"))
        return [
            LiveWorker(
                id=WorkerId(row["id"]),
                region=row["region"],
                declarations=json.loads(row["declarations"]),
                host=row["host"],
                pid=row["pid"],
                version=row["version"],
                threads=row["threads"],
                jobs=row["jobs"],
                started_at=self._rows.instant(row["started_at"]),
                seen_at=self._rows.instant_or_none(row["seen_at"]),
                last_claim_at=self._rows.instant_or_none(row["last_claim_at"]),
            )
            for row in found
        ]

    @override
    def departed(self) -> Sequence[DepartedWorker]:
        found = self._database.read(
            lambda transaction: transaction.all("departed_workers")
        )
        return [
            DepartedWorker(
                id=WorkerId(row["id"]),
                region=row["region"],
                declarations=json.loads(row["declarations"]),
                seen_at=self._rows.instant_or_none(row["seen_at"]),
                departed_at=self._rows.instant(row["until"]),
            )
            for row in found
        ]
