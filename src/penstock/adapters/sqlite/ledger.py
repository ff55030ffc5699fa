"""The ledger as a worker sees it, on SQLite."""

import dataclasses
import json
from collections.abc import Sequence
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sqlite.database import (
    MICROSECOND,
    Database,
    Transaction,
    instant_or_none,
    microseconds,
)
from penstock.adapters.sqlite.merge import merge
from penstock.adapters.sqlite.tables import Tables, key_text
from penstock.domain.dataset import Dataset, DatasetName
from penstock.domain.job import (
    MAX_ERRORS_KEPT,
    MAX_RESCUES,
    Fault,
    Fence,
    ImportId,
    JobId,
    Lease,
    Mode,
    WorkerId,
    cursor_mark,
)
from penstock.domain.page import Batch, Counts, count_page
from penstock.errors import LeaseLost
from penstock.ports import Declarations, Ledger


class SqliteLedger(Ledger):
    def __init__(self, database: Database, *, lease: timedelta) -> None:
        self._database = database
        self._lease = lease // MICROSECOND
        self._tables = Tables()

    @override
    def claim(
        self, owner: WorkerId, *, declarations: Declarations, region: str | None
    ) -> Lease | None:
        wanted = json.dumps(dict(declarations))
        # most questions find nothing, and asking must not hold up those who write
        with self._database.read() as look:
            if look.one("find_due_job", declarations=wanted, region=region) is None:
                return None
        with self._database.write() as transaction:
            bury_lost_jobs(transaction)
            due = transaction.one("find_due_job", declarations=wanted, region=region)
            if due is None:
                return None
            row = transaction.one(
                "claim_job",
                job=due["job"],
                owner=owner,
                lease=self._lease,
                errors_kept=MAX_ERRORS_KEPT,
            )
            if row is None:
                return None
            turn = transaction.one(
                "take_turn", import_id=row["import_id"], rescued=due["rescued"]
            )
            if turn is None:
                raise LookupError(f"job {row['id']} has no import")
        return Lease(
            job=JobId(row["id"]),
            fence=Fence(row["fence"]),
            owner=owner,
            import_id=ImportId(row["import_id"]),
            dataset=DatasetName(row["dataset"]),
            mode=Mode(turn["mode"]),
            tracked=bool(turn["tracked"]),
            shard_key=row["shard_key"],
            since=instant_or_none(turn["since"]),
            cursor=row["cursor"],
            page_seq=row["page_seq"],
            attempts=row["attempts"],
            rescues=row["rescues"],
            snoozes=row["snoozes"],
        )

    @override
    def renew(self, lease: Lease) -> None:
        with self._database.write() as transaction:
            self._fenced(transaction, "renew_lease", lease, lease=self._lease)

    @override
    def commit_page(
        self, dataset: Dataset, lease: Lease, batch: Batch
    ) -> tuple[Lease, Counts]:
        with self._database.write() as transaction:
            self._fenced(
                transaction,
                "advance_job",
                lease,
                page_seq=lease.page_seq,
                cursor=batch.cursor,
                proof=batch.proof,
                lease=self._lease,
            )
            rejected = [r.key for r in batch.rejections if r.key is not None]
            merged = merge(
                transaction,
                self._tables.of(dataset),
                batch.records,
                import_id=lease.import_id,
                seen=rejected,
                track=lease.tracked,
            )
            counts = count_page(
                batch,
                inserted=merged.inserted,
                updated=merged.updated,
                requests=lease.sent,
            )
            self._note_page(transaction, dataset, lease, batch, counts)
        following = dataclasses.replace(
            lease,
            cursor=batch.cursor,
            page_seq=lease.page_seq + 1,
            attempts=0,
            rescues=0,
            snoozes=0,
            sent=0,
        )
        return following, counts

    def _note_page(
        self,
        transaction: Transaction,
        dataset: Dataset,
        lease: Lease,
        batch: Batch,
        counts: Counts,
    ) -> None:
        page_seq = lease.page_seq + 1
        supersede(transaction, dataset, [record.key for record in batch.records])
        for rejection in batch.rejections:
            transaction.execute(
                "add_rejection",
                dataset=dataset.name,
                import_id=lease.import_id,
                job=lease.job,
                page_seq=page_seq,
                position=rejection.position,
                field=rejection.field,
                reason=rejection.reason,
                detail=rejection.detail,
                raw=rejection.raw,
                key=None if rejection.key is None else key_text(rejection.key),
            )
        transaction.execute(
            "add_page",
            job=lease.job,
            page_seq=page_seq,
            fence=lease.fence,
            seen=batch.seen,
            before=cursor_mark(lease.cursor),
            after=cursor_mark(batch.cursor),
        )
        counted = dataclasses.asdict(counts)
        transaction.execute("count_page", job=lease.job, **counted)
        transaction.execute(
            "count_import",
            import_id=lease.import_id,
            provider_time=microseconds(batch.provider_time),
            **counted,
        )

    @override
    def postpone(
        self, lease: Lease, fault: Fault | None, *, delay: timedelta, blame: bool
    ) -> None:
        with self._database.write() as transaction:
            self._let_go(
                transaction,
                "postpone_job",
                lease,
                delay=delay // MICROSECOND,
                blame=int(blame),
                code=None if fault is None else fault.code,
                message=None if fault is None else fault.message,
                errors_kept=MAX_ERRORS_KEPT,
                page_seq=lease.page_seq,
            )

    @override
    def release(self, lease: Lease) -> None:
        with self._database.write() as transaction:
            self._let_go(transaction, "release_job", lease)

    @override
    def fail(self, lease: Lease, fault: Fault) -> None:
        with self._database.write() as transaction:
            self._let_go(
                transaction,
                "fail_job",
                lease,
                code=fault.code,
                message=fault.message,
                errors_kept=MAX_ERRORS_KEPT,
                page_seq=lease.page_seq,
            )

    @override
    def split(self, lease: Lease, children: Sequence[str]) -> None:
        with self._database.write() as transaction:
            self._let_go(transaction, "split_job", lease)
            for shard_key in children:
                transaction.execute(
                    "add_job",
                    import_id=lease.import_id,
                    parent=lease.job,
                    shard_key=shard_key,
                )

    def _fenced(
        self, transaction: Transaction, name: str, held: Lease, /, **parameters: object
    ) -> int:
        """Run a statement that a lost lease turns into nothing; return the page."""
        row = transaction.one(name, job=held.job, fence=held.fence, **parameters)
        if row is None:
            raise LeaseLost(held.job, fence=held.fence)
        return int(row["page_seq"])

    def _let_go(
        self, transaction: Transaction, name: str, held: Lease, /, **parameters: object
    ) -> None:
        """Give the job up, and count what was sent for it since its last page."""
        page_seq = self._fenced(transaction, name, held, **parameters)
        if page_seq != held.page_seq:
            # the last commit took effect though its worker never heard: it counted them
            return
        counted = dataclasses.asdict(Counts(requests=held.sent))
        transaction.execute("count_page", job=held.job, **counted)
        transaction.execute(
            "count_import", import_id=held.import_id, provider_time=None, **counted
        )


def supersede(
    transaction: Transaction, dataset: Dataset, keys: Sequence[tuple[object, ...]]
) -> None:
    """Settle older complaints about keys of which a good record has come."""
    row = transaction.one("has_open_rejections", dataset=dataset.name)
    if row is not None and row["are_open"]:
        told = json.dumps([key_text(key) for key in keys])
        transaction.execute("supersede_keys", dataset=dataset.name, keys=told)


def bury_lost_jobs(transaction: Transaction) -> None:
    transaction.execute(
        "bury_lost_jobs", max_rescues=MAX_RESCUES, errors_kept=MAX_ERRORS_KEPT
    )
