"""The worker's side of the ledger: claim jobs, commit pages, release leases."""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from hashlib import md5
from typing import Any, Generic, TypeVar

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow, Transaction
from penstock.adapters.sqlstore.hook_messages import HookMessages
from penstock.adapters.sqlstore.key_encoding import encode_key_text
from penstock.adapters.sqlstore.outbox import add_messages
from penstock.adapters.sqlstore.page_summaries import encode_summary
from penstock.adapters.sqlstore.refused_rows import identify_refused_rows
from penstock.adapters.sqlstore.row_mappers import RowMappers
from penstock.domain.dataset import Dataset
from penstock.domain.formats import MICROSECOND
from penstock.domain.hooks import Subscribers
from penstock.domain.jobs import (
    MAX_RESCUES,
    MAX_STORED_ERRORS,
    JobError,
    JobId,
    Lease,
    WorkerId,
    cursor_fingerprint,
)
from penstock.domain.pages import (
    MAX_KEY_EXAMPLES,
    Batch,
    Counts,
    Record,
    Rejection,
    count_page,
)
from penstock.errors import LeaseLost
from penstock.ports import Declarations, Ledger
from penstock.ports.outbox import NewMessage

# how often a claim tries again because other workers took the jobs it had found
MAX_CLAIM_ATTEMPTS = 10
# by how much longer it waits before each attempt, in seconds
CLAIM_BACKOFF = 0.002
COUNT_NAMES = [field.name for field in dataclasses.fields(Counts)]


AnyDatabase = TypeVar("AnyDatabase", bound=Database)


class SqlLedger(Ledger, Generic[AnyDatabase]):
    """Everything but `repeat_page`, which each database does in its own way."""

    def __init__(
        self,
        database: AnyDatabase,
        *,
        lease: timedelta,
        subscribers: Subscribers | None = None,
    ) -> None:
        self._database = database
        self._hooks = HookMessages(subscribers)
        self._lease = lease // MICROSECOND
        self._rows = RowMappers(database.instant)

    @override
    def claim(
        self,
        owner: WorkerId,
        *,
        declarations: Declarations,
        region: str | None,
        most: int = 1,
        job: JobId | None = None,
    ) -> Sequence[Lease]:
        query: dict[str, Any] = {
            "declarations": json.dumps(dict(declarations)),
            "region": region,
            "max_rescues": MAX_RESCUES,
        }

        if job is not None:
            return self._claim_job(owner, job, query)

        def work(transaction: Transaction, found: SqlRow) -> Sequence[Lease]:
            due: SqlRow | None = found
            if found["is_lost"]:
                fail_lost_jobs(transaction, self._hooks)
                due = transaction.one("find_due_import", tried="[]", **query)
            return [] if due is None else self._claim(transaction, owner, due, most)

        tried: list[int] = []
        for attempt in range(MAX_CLAIM_ATTEMPTS):
            # most attempts find nothing, and searching must not block writers
            found = self._find_due(tried, query)
            if found is None and not tried:
                return []
            if found is None:
                # a concurrent claim seldom takes longer than this
                time.sleep(attempt * CLAIM_BACKOFF)
                tried.clear()
                continue
            leases = self._database.write(partial(work, found=found))
            if leases:
                return leases
            # other workers were faster, or have locked its jobs; try another import
            tried.append(found["id"])
        return []

    def _find_due(self, tried: Sequence[int], query: dict[str, Any]) -> SqlRow | None:
        return self._database.read(
            lambda transaction: transaction.one(
                "find_due_import", tried=json.dumps(tried), **query
            )
        )

    def _claim_job(
        self, owner: WorkerId, job: JobId, query: dict[str, Any]
    ) -> Sequence[Lease]:
        found = self._database.read(
            lambda transaction: transaction.one("find_import_of_job", job=job, **query)
        )
        if found is None:
            return []
        return self._database.write(
            lambda transaction: self._lease_jobs(
                transaction, "claim_job", owner, found, job=job
            )
        )

    def _claim(
        self, transaction: Transaction, owner: WorkerId, due: SqlRow, most: int
    ) -> Sequence[Lease]:
        return self._lease_jobs(transaction, "claim_jobs", owner, due, most=most)

    def _lease_jobs(
        self,
        transaction: Transaction,
        name: str,
        owner: WorkerId,
        due: SqlRow,
        **which: int,
    ) -> Sequence[Lease]:
        found = transaction.all(
            name,
            import_id=due["id"],
            owner=owner,
            lease=self._lease,
            max_rescues=MAX_RESCUES,
            max_errors=MAX_STORED_ERRORS,
            **which,
        )
        rescued = [row["id"] for row in found if row["rescues"]]
        for job in rescued:
            transaction.execute("count_rescue", import_id=due["id"], job=job)
        if found:
            transaction.execute("take_turn", import_id=due["id"])
        return [
            self._rows.read_lease(row, due, owner=owner, plan_cursor=due["plan_cursor"])
            for row in found
        ]

    @override
    def next_due(
        self, *, declarations: Declarations, region: str | None
    ) -> timedelta | None:
        row = self._database.read(
            lambda transaction: transaction.one(
                "next_due", declarations=json.dumps(dict(declarations)), region=region
            )
        )
        if row is None or row["due_in"] is None:
            return None
        return timedelta(microseconds=max(int(row["due_in"]), 0))

    @override
    def renew(self, lease: Lease) -> None:
        self._database.write(
            lambda transaction: execute_fenced(
                transaction, "renew_lease", lease, lease=self._lease
            )
        )

    @override
    def commit_page(
        self, dataset: Dataset, lease: Lease, batch: Batch
    ) -> tuple[Lease, Counts]:
        def prepare(
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

        with identify_refused_rows(
            self._database, dataset, prepare, lambda record: record
        ):
            return self._commit(dataset, lease, batch)

    def _commit(
        self, dataset: Dataset, lease: Lease, batch: Batch
    ) -> tuple[Lease, Counts]:
        def work(transaction: Transaction) -> Counts:
            table = transaction.table(dataset)
            # first of all: it locks the job's row, and fails if the lease is lost
            job = execute_fenced(
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
                seen=[bad.key for bad in batch.rejections if bad.key is not None],
                track=lease.tracked,
            )
            counts = count_page(
                batch,
                inserted=len(merged.created),
                updated=len(merged.updated) - merged.rewritten,
                again=merged.again,
                requests=lease.sent,
            )
            provider_time = self._database.to_stored_time(batch.provider_time)
            with transaction.pipeline():
                repeated = [*batch.repeated_keys, *merged.repeated_keys]
                if repeated:
                    transaction.execute(
                        "note_repeated_keys",
                        job=lease.job,
                        keys=encode_key_text(repeated[:MAX_KEY_EXAMPLES]),
                    )
                if job["has_open_rejections"]:
                    supersede_rejections(transaction, dataset, lease, batch)
                add_rejections(transaction, lease, batch)
                note_page(transaction, lease, batch, counts, provider_time)
                # last, because it locks a row that every commit of a page needs
                table.note(merged, import_id=lease.import_id)
            return counts

        counts = self._database.write(work)
        return advance_lease(lease, batch.cursor), counts

    @override
    def postpone(
        self, lease: Lease, fault: JobError | None, *, delay: timedelta, blame: bool
    ) -> None:
        self._release(
            "postpone_job",
            lease,
            delay=delay // MICROSECOND,
            blame=int(blame),
            code=None if fault is None else fault.code,
            message=None if fault is None else fault.message,
            max_errors=MAX_STORED_ERRORS,
            page_seq=lease.page_seq,
        )

    @override
    def release(self, lease: Lease, *, messages: Sequence[NewMessage] = ()) -> None:
        def work(transaction: Transaction) -> None:
            release_lease(transaction, "release_job", lease)
            add_messages(transaction, messages)
            # wake idle workers, which may claim it at once
            transaction.execute("ring")

        self._database.write(work)

    @override
    def fail(self, lease: Lease, fault: JobError) -> None:
        def work(transaction: Transaction) -> None:
            release_lease(
                transaction,
                "fail_job",
                lease,
                code=fault.code,
                message=fault.message,
                max_errors=MAX_STORED_ERRORS,
                page_seq=lease.page_seq,
            )
            self._hooks.add_dead_shard(transaction, lease, fault)

        self._database.write(work)

    @override
    def note_first_keys(self, lease: Lease, digest: bytes) -> str | None:
        self._database.write(
            lambda transaction: execute_fenced(
                transaction, "note_first_keys", lease, digest=digest
            )
        )
        # in a transaction of its own: of two jobs at once, the later finds the other
        found = self._database.read(
            lambda transaction: transaction.one(
                "find_same_first_keys",
                import_id=lease.import_id,
                job=lease.job,
                digest=digest,
            )
        )
        return None if found is None else str(found["shard_key"])

    @override
    def split(self, lease: Lease, children: Sequence[str]) -> None:
        def work(transaction: Transaction) -> None:
            # lock it before the job's row, in the order of those who end the import
            transaction.one("share_import", import_id=lease.import_id)
            release_lease(transaction, "split_job", lease)
            transaction.execute(
                "add_jobs",
                import_id=lease.import_id,
                parent=lease.job,
                shard_keys=json.dumps(list(children)),
            )
            transaction.execute("ring")

        self._database.write(work)

    def _release(self, name: str, lease: Lease, /, **parameters: object) -> None:
        self._database.write(
            lambda transaction: release_lease(transaction, name, lease, **parameters)
        )


def advance_lease(lease: Lease, cursor: str | None) -> Lease:
    """Return the lease after a committed page, which resets its retries."""
    return dataclasses.replace(
        lease,
        cursor=cursor,
        page_seq=lease.page_seq + 1,
        attempts=0,
        rescues=0,
        snoozes=0,
        sent=0,
    )


def execute_fenced(
    transaction: Transaction, name: str, lease: Lease, /, **parameters: object
) -> SqlRow:
    """Run a statement that affects no row if the lease is lost; return the job."""
    row = transaction.one(name, job=lease.job, fence=lease.fence, **parameters)
    if row is None:
        raise LeaseLost(lease.job, fence=lease.fence)
    return row


def release_lease(
    transaction: Transaction, name: str, lease: Lease, /, **parameters: object
) -> None:
    """Release the job, and count the requests sent for it since its last page."""
    job = execute_fenced(transaction, name, lease, **parameters)
    # a commit that succeeded without its worker knowing has counted them already
    if job["page_seq"] == lease.page_seq and lease.sent:
        add_counts(transaction, lease, Counts(requests=lease.sent), provider_time=None)


def add_counts(
    transaction: Transaction, lease: Lease, counts: Counts, *, provider_time: object
) -> None:
    transaction.execute_all(
        ["count_page", "count_import"],
        import_id=lease.import_id,
        job=lease.job,
        provider_time=provider_time,
        **count_params(counts),
    )


def count_params(counts: Counts) -> dict[str, int]:
    """Return counts as parameters; unlike `asdict`, it copies no values."""
    return {name: getattr(counts, name) for name in COUNT_NAMES}


def note_page(
    transaction: Transaction,
    lease: Lease,
    batch: Batch,
    counts: Counts,
    provider_time: object,
) -> None:
    transaction.execute_all(
        ["add_page", "count_page", "count_import"],
        **page_params(lease, batch, counts),
        page_seq=lease.page_seq + 1,
        provider_time=provider_time,
    )


def page_params(lease: Lease, batch: Batch, counts: Counts) -> dict[str, object]:
    """Return what the ledger stores of a page, as parameters."""
    return {
        "import_id": lease.import_id,
        "job": lease.job,
        "fence": lease.fence,
        "before": cursor_fingerprint(lease.cursor),
        "after": cursor_fingerprint(batch.cursor),
        "imprint": batch.imprint,
        "memo": encode_summary(batch.memo),
        **count_params(counts),
    }


def supersede_rejections(
    transaction: Transaction, dataset: Dataset, lease: Lease, batch: Batch
) -> None:
    """Resolve older rejections of the keys that have good rows now.

    The shards of a file are committed in any order, so which rejections of the same
    import are older is only known after all of them.
    """
    if not batch.records:
        return
    keys = [encode_key_text(record.key) for record in batch.records]
    transaction.execute(
        "supersede_keys",
        dataset=lease.dataset,
        keys=json.dumps(keys),
        # an index is on the hash of the key
        hashes=[md5(key.encode(), usedforsecurity=False).hexdigest() for key in keys],
        before=lease.import_id if dataset.is_ranked else None,
    )


def add_rejections(transaction: Transaction, lease: Lease, batch: Batch) -> None:
    """Store the bad rows of a page in quarantine."""
    transaction.execute_many(
        "add_rejection",
        [rejection_params(lease, rejection) for rejection in batch.rejections],
    )


def rejection_params(lease: Lease, rejection: Rejection) -> dict[str, object]:
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
        "key": None if rejection.key is None else encode_key_text(rejection.key),
        "line": None if rejection.place is None else rejection.place.line,
        "byte_offset": None if rejection.place is None else rejection.place.offset,
        "resolved": "superseded" if rejection.is_superseded else None,
    }


def fail_lost_jobs(transaction: Transaction, hooks: HookMessages) -> None:
    lost = transaction.all(
        "bury_lost_jobs", max_rescues=MAX_RESCUES, max_errors=MAX_STORED_ERRORS
    )
    hooks.add_lost_jobs(transaction, lost)
