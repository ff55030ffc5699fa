"""The claim log, to which a trigger of the jobs adds."""

from collections.abc import Sequence
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow
from penstock.adapters.sqlstore.row_mappers import RowMappers
from penstock.domain.formats import MICROSECOND
from penstock.domain.jobs import (
    Claim,
    ClaimOutcome,
    ClaimPosition,
    Fence,
    ImportId,
    JobId,
    WorkerId,
)
from penstock.ports.claims import ClaimLog


class SqlClaimLog(ClaimLog):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = RowMappers(database.instant)

    @override
    def find(
        self, import_id: ImportId, *, after: ClaimPosition | None, limit: int
    ) -> Sequence[Claim]:
        claimed_at = None if after is None else after.claimed_at
        found = self._database.read(
            lambda transaction: transaction.all(
                "find_claims",
                import_id=import_id,
                at=self._database.to_stored_time(claimed_at),
                job=0 if after is None else after.job,
                fence=0 if after is None else after.fence,
                limit=limit,
            )
        )
        return [self._read_claim(row) for row in found]

    @override
    def of_job(self, job: JobId, *, limit: int) -> Sequence[Claim]:
        found = self._database.read(
            lambda transaction: transaction.all("claims_of_job", job=job, limit=limit)
        )
        return [self._read_claim(row) for row in reversed(found)]

    def _read_claim(self, row: SqlRow) -> Claim:
        outcome = row["outcome"]
        return Claim(
            job=JobId(row["job_id"]),
            fence=Fence(row["fence"]),
            shard_key=row["shard_key"],
            owner=WorkerId(row["owner"]),
            claimed_at=self._rows.instant(row["claimed_at"]),
            ended_at=self._rows.instant_or_none(row["ended_at"]),
            outcome=None if outcome is None else ClaimOutcome(outcome),
            code=row["code"],
        )

    @override
    def forget(self, *, ended: timedelta, most: int) -> int:
        return self._database.write(
            lambda transaction: transaction.execute(
                "forget_claims", ended=ended // MICROSECOND, most=most
            )
        )
