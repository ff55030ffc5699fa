"""The ledger as a worker sees it."""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from hashlib import md5
from typing import Any, Generic, TypeVar

from typing_extensions import override

from penstock.adapters.sql.database import Database, Row, Transaction
from penstock.adapters.sql.keys import key_text
from penstock.adapters.sql.memos import write_memo
from penstock.adapters.sql.refused import naming_rows
from penstock.adapters.sql.rows import Rows
from penstock.domain.dataset import Dataset
from penstock.domain.job import (
    MAX_ERRORS_KEPT,
    MAX_RESCUES,
    Fault,
    Lease,
    WorkerId,
    cursor_mark,
)
from penstock.domain.page import Batch, Counts, Record, Rejection, count_page
from penstock.domain.times import MICROSECOND
from penstock.errors import LeaseLost
from penstock.ports import Declarations, Ledger

# how often a claim looks again because others took what it had found
MOST_LOOKS = 10
# by how much it waits longer before each of them, in seconds
LOOK_REST = 0.002
COUNTED = [field.name for field in dataclasses.fields(Counts)]


AnyDatabase = TypeVar("AnyDatabase", bound=Database)


class SqlLedger(Ledger, Generic[AnyDatabase]):
    """All but how a page that comes again is compared: each database has its way."""

    def __init__(self, database: AnyDatabase, *, lease: timedelta) -> None:
        self._database = database
        self._lease = lease // MICROSECOND
        self._rows = Rows(database.instant)

    @override
    def claim(
        self,
        owner: WorkerId,
        *,
        declarations: Declarations,
        region: str | None,
        most: int = 1,
    ) -> Sequence[Lease]:
        wanted = {
            "declarations": json.dumps(dict(declarations)),
            "region": region,
            "max_rescues": MAX_RESCUES,
        }

        def work(transaction: Transaction, seen: Row) -> Sequence[Lease]:
            due: Row | None = seen
            if seen["is_lost"]:
                bury_lost_jobs(transaction)
                due = transaction.one("find_due_import", tried="[]", **wanted)
            return [] if due is None else self._claim(transaction, owner, due, most)

        tried: list[int] = []
        for look in range(MOST_LOOKS):
            # most looks find nothing, and looking must not hold up those who write
            seen = self._look(tried, wanted)
            if seen is None and not tried:
                return []
            if seen is None:
                # whoever is just claiming has seldom longer to go than this
                time.sleep(look * LOOK_REST)
                tried.clear()
                continue
            leases = self._database.write(partial(work, seen=seen))
            if leases:
                return leases
            # others were faster, or hold what is due; another import may have jobs
            tried.append(seen["id"])
        return []

    def _look(self, tried: Sequence[int], wanted: dict[str, Any]) -> Row | None:
        return self._database.read(
            lambda look: look.one("find_due_import", tried=json.dumps(tried), **wanted)
        )

    def _claim(
        self, transaction: Transaction, owner: WorkerId, due: Row, most: int
    ) -> Sequence[Lease]:
        found = transaction.all(
            "claim_jobs",
            import_id=due["id"],
            most=most,
            owner=owner,
            lease=self._lease,
            max_rescues=MAX_RESCUES,
            errors_kept=MAX_ERRORS_KEPT,
        )
        rescued = [row["id"] for row in found if row["rescues"]]
        for job in rescued:
            transaction.execute("count_rescue", import_id=due["id"], job=job)
        if found:
            transaction.execute("take_turn", import_id=due["id"])
        return [self._rows.read_lease(row, due, owner=owner) for row in found]

    @override
    def next_due(
        self, *, declarations: Declarations, region: str | None
    ) -> timedelta | None:
        row = self._database.read(
            lambda look: look.one(
                "next_due", declarations=json.dumps(dict(declarations)), region=region
            )
        )
        if row is None or row["due_in"] is None:
            return None
        return timedelta(microseconds=max(int(row["due_in"]), 0))

    @override
    def renew(self, lease: Lease) -> None:
        self._database.write(
            lambda transaction: fenced(
                transaction, "renew_lease", lease, lease=self._lease
            )
        )

    @override
    def commit_page(
        self, dataset: Dataset, lease: Lease, batch: Batch
    ) -> tuple[Lease, Counts]:
        def storing(
            transaction: Transaction,
        ) -> tuple[Sequence[Record], Callable[[Sequence[Record]], object]]:
            table = transaction.table(dataset)
            merge = partial(
                table.merge,
                import_id=lease.import_id,
                rank=batch.rank,
                track=lease.tracked,
            )
            return list(batch.records), merge

        with naming_rows(self._database, dataset, storing, lambda record: record):
            return self._commit(dataset, lease, batch)

    def _commit(
        self, dataset: Dataset, lease: Lease, batch: Batch
    ) -> tuple[Lease, Counts]:
        def work(transaction: Transaction) -> Counts:
            table = transaction.table(dataset)
            # first of all: it holds the job's row, and a lost lease ends here
            job = fenced(
                transaction,
                "advance_job",
                lease,
                dataset=lease.dataset,
                page_seq=lease.page_seq,
                cursor=batch.cursor,
                proof=batch.proof,
                lease=self._lease,
            )
            merged = table.merge(
                batch.records,
                import_id=lease.import_id,
                rank=batch.rank,
                seen=[each.key for each in batch.rejections if each.key is not None],
                track=lease.tracked,
            )
            counts = count_page(
                batch,
                inserted=len(merged.created),
                updated=len(merged.updated) - merged.rewritten,
                again=merged.again,
                requests=lease.sent,
            )
            provider_time = self._database.moment(batch.provider_time)
            with transaction.together():
                if job["has_open_rejections"]:
                    settle_complaints(transaction, dataset, lease, batch)
                add_rejections(transaction, lease, batch)
                note_page(transaction, lease, batch, counts, provider_time)
                # last, because others who commit a page wait for what it holds
                table.note(merged, import_id=lease.import_id)
            return counts

        counts = self._database.write(work)
        return following(lease, batch.cursor), counts

    @override
    def postpone(
        self, lease: Lease, fault: Fault | None, *, delay: timedelta, blame: bool
    ) -> None:
        self._let_go(
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
        def work(transaction: Transaction) -> None:
            let_go(transaction, "release_job", lease)
            # whoever is idle may take it at once
            transaction.execute("ring")

        self._database.write(work)

    @override
    def fail(self, lease: Lease, fault: Fault) -> None:
        self._let_go(
            "fail_job",
            lease,
            code=fault.code,
            message=fault.message,
            errors_kept=MAX_ERRORS_KEPT,
            page_seq=lease.page_seq,
        )

    @override
    def split(self, lease: Lease, children: Sequence[str]) -> None:
        def work(transaction: Transaction) -> None:
            # before the job's row, as whoever ends the import does
            transaction.one("share_import", import_id=lease.import_id)
            let_go(transaction, "split_job", lease)
            transaction.execute(
                "add_jobs",
                import_id=lease.import_id,
                parent=lease.job,
                shard_keys=json.dumps(list(children)),
            )
            transaction.execute("ring")

        self._database.write(work)

    def _let_go(self, name: str, held: Lease, /, **parameters: object) -> None:
        self._database.write(
            lambda transaction: let_go(transaction, name, held, **parameters)
        )


def following(lease: Lease, cursor: str | None) -> Lease:
    """Return the lease after a page, which is progress."""
    return dataclasses.replace(
        lease,
        cursor=cursor,
        page_seq=lease.page_seq + 1,
        attempts=0,
        rescues=0,
        snoozes=0,
        sent=0,
    )


def fenced(
    transaction: Transaction, name: str, held: Lease, /, **parameters: object
) -> Row:
    """Run a statement that a lost lease turns into nothing; return the job."""
    row = transaction.one(name, job=held.job, fence=held.fence, **parameters)
    if row is None:
        raise LeaseLost(held.job, fence=held.fence)
    return row


def let_go(
    transaction: Transaction, name: str, held: Lease, /, **parameters: object
) -> None:
    """Give the job up, and count what was sent for it since its last page."""
    job = fenced(transaction, name, held, **parameters)
    # a commit that took effect though its worker never heard has counted it already
    if job["page_seq"] == held.page_seq and held.sent:
        count(transaction, held, Counts(requests=held.sent), provider_time=None)


def count(
    transaction: Transaction, held: Lease, counts: Counts, *, provider_time: object
) -> None:
    transaction.execute_all(
        ["count_page", "count_import"],
        import_id=held.import_id,
        job=held.job,
        provider_time=provider_time,
        **by_name(counts),
    )


def by_name(counts: Counts) -> dict[str, int]:
    """Return counts as parameters, without copying what needs no copy."""
    return {name: getattr(counts, name) for name in COUNTED}


def note_page(
    transaction: Transaction,
    lease: Lease,
    batch: Batch,
    counts: Counts,
    provider_time: object,
) -> None:
    transaction.execute_all(
        ["add_page", "count_page", "count_import"],
        **page_told(lease, batch, counts),
        page_seq=lease.page_seq + 1,
        provider_time=provider_time,
    )


def page_told(lease: Lease, batch: Batch, counts: Counts) -> dict[str, object]:
    """Return what the ledger notes of a page as parameters."""
    return {
        "import_id": lease.import_id,
        "job": lease.job,
        "fence": lease.fence,
        "before": cursor_mark(lease.cursor),
        "after": cursor_mark(batch.cursor),
        "imprint": batch.imprint,
        "memo": write_memo(batch.memo),
        **by_name(counts),
    }


def settle_complaints(
    transaction: Transaction, dataset: Dataset, lease: Lease, batch: Batch
) -> None:
    """Settle older complaints about the rows that are good now.

    The shards of a file come in any order, so which of its complaints are older is not
    told before all have come.
    """
    if not batch.records:
        return
    keys = [key_text(record.key) for record in batch.records]
    transaction.execute(
        "supersede_keys",
        dataset=lease.dataset,
        keys=json.dumps(keys),
        # by which an index finds them
        hashes=[md5(key.encode(), usedforsecurity=False).hexdigest() for key in keys],
        before=lease.import_id if dataset.is_ranked else None,
    )


def add_rejections(transaction: Transaction, lease: Lease, batch: Batch) -> None:
    """Put the bad rows of a page into quarantine."""
    transaction.each(
        "add_rejection",
        [described(lease, rejection) for rejection in batch.rejections],
    )


def described(lease: Lease, rejection: Rejection) -> dict[str, object]:
    return {
        "dataset": lease.dataset,
        "import_id": lease.import_id,
        "job": lease.job,
        "page_seq": lease.page_seq + 1,
        "position": rejection.position,
        "field": rejection.field,
        "reason": rejection.reason,
        "detail": rejection.detail,
        "raw": rejection.raw,
        "key": None if rejection.key is None else key_text(rejection.key),
        "line": None if rejection.place is None else rejection.place.line,
        "byte_offset": None if rejection.place is None else rejection.place.offset,
        "resolved": "superseded" if rejection.is_outdone else None,
    }


def bury_lost_jobs(transaction: Transaction) -> None:
    transaction.execute(
        "bury_lost_jobs", max_rescues=MAX_RESCUES, errors_kept=MAX_ERRORS_KEPT
    )
