"""The live worker processes, in the database that they share."""

import json
from collections.abc import Sequence
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, Transaction
from penstock.domain.formats import MICROSECOND
from penstock.domain.jobs import WorkerId
from penstock.domain.waiting import LiveWorker
from penstock.ports import Declarations, Workers


class SqlWorkers(Workers):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def announce(
        self,
        worker: WorkerId,
        *,
        region: str | None,
        declarations: Declarations,
        lasting: timedelta,
    ) -> None:
        def work(transaction: Transaction) -> None:
            transaction.execute("remove_lost_workers")
            transaction.execute(
                "announce_worker",
                worker=worker,
                region=region,
                declarations=json.dumps(dict(declarations)),
                lasting=lasting // MICROSECOND,
            )

        self._database.write(work)

    @override
    def remove(self, worker: WorkerId) -> None:
        self._database.write(
            lambda transaction: transaction.execute("remove_worker", worker=worker)
        )

    @override
    def live(self) -> Sequence[LiveWorker]:
        found = self._database.read(lambda transaction: transaction.all("live_workers"))
        return [
            LiveWorker(
                id=WorkerId(row["id"]),
                region=row["region"],
                declarations=json.loads(row["declarations"]),
                started_at=self._database.instant(row["started_at"]),
            )
            for row in found
        ]
