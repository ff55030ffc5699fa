"""The claim log, to which a trigger of the jobs adds."""

from collections.abc import Sequence
from datetime import datetime, timedelta

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
from penstock.ports.claims import ClaimBundle, ClaimLog, ClaimWindow


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

    @override
    def window(
        self, import_id: ImportId, *, before: datetime | None, most: int
    ) -> ClaimWindow | None:
        row = self._database.read(
            lambda transaction: transaction.one(
                "claim_window",
                import_id=import_id,
                before=self._database.to_stored_time(before),
                most=most,
            )
        )
        if row is None or row["began_at"] is None:
            return None
        return ClaimWindow(
            began_at=self._rows.instant(row["began_at"]),
            ended_at=self._rows.instant_or_none(row["ended_at"]),
            ended=row["ended"],
            running=row["running"],
            workers=row["workers"],
        )

    @override
    def within(
        self, import_id: ImportId, *, began_at: datetime, before: datetime, limit: int
    ) -> Sequence[Claim]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "claims_within",
                import_id=import_id,
                began_at=self._database.to_stored_time(began_at),
                before=self._database.to_stored_time(before),
                limit=limit,
            )
        )
        return [self._read_claim(row) for row in found]

    @override
    def bundles(
        self, import_id: ImportId, *, began_at: datetime, before: datetime, buckets: int
    ) -> Sequence[ClaimBundle]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "claim_bundles",
                import_id=import_id,
                began_at=self._database.to_stored_time(began_at),
                before=self._database.to_stored_time(before),
                length=max((before - began_at) // MICROSECOND, 1),
                buckets=buckets,
            )
        )
        return [self._read_bundle(row) for row in found]

    def _read_bundle(self, row: SqlRow) -> ClaimBundle:
        return ClaimBundle(
            owner=WorkerId(row["owner"]),
            bucket=row["bucket"],
            outcome=read_outcome(row),
            claims=row["claims"],
            first_claimed_at=self._rows.instant(row["first_claimed_at"]),
            last_ended_at=self._rows.instant_or_none(row["last_ended_at"]),
            busy=row["busy"] * MICROSECOND,
        )

    def _read_claim(self, row: SqlRow) -> Claim:
        return Claim(
            job=JobId(row["job_id"]),
            fence=Fence(row["fence"]),
            shard_key=row["shard_key"],
            owner=WorkerId(row["owner"]),
            claimed_at=self._rows.instant(row["claimed_at"]),
            ended_at=self._rows.instant_or_none(row["ended_at"]),
            outcome=read_outcome(row),
            code=row["code"],
        )

    @override
    def forget(self, *, ended: timedelta, most: int) -> int:
        return self._database.write(
            lambda transaction: transaction.execute(
                "forget_claims", ended=ended // MICROSECOND, most=most
            )
        )


def read_outcome(row: SqlRow) -> ClaimOutcome | None:
    return None if row["outcome"] is None else ClaimOutcome(row["outcome"])
