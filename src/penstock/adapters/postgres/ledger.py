"""The ledger in PostgreSQL."""

from datetime import datetime

from psycopg.rows import DictRow
from typing_extensions import override

from penstock.adapters.postgres.database import Database, Transaction, storable_all
from penstock.adapters.sql.ledger import Repeated, SqlLedger, following, page_told
from penstock.adapters.sql.memos import read_memo
from penstock.domain.dataset import Dataset
from penstock.domain.job import Lease, cursor_mark
from penstock.domain.page import Batch, Counts, count_page
from penstock.domain.repeat import batch_again
from penstock.errors import LeaseLost


class PostgresLedger(SqlLedger[Database]):
    """Commits what needs no decision on its way by one statement.

    Such a statement is a transaction of its own.
    """

    @override
    def commit_page(
        self, dataset: Dataset, lease: Lease, batch: Batch
    ) -> tuple[Lease, Counts]:
        counts = self._store(dataset, lease, batch)
        if counts is None:
            return super().commit_page(dataset, lease, batch)
        return following(lease, batch.cursor), counts

    def _store(self, dataset: Dataset, lease: Lease, batch: Batch) -> Counts | None:
        """Commit a page of new rows; None if it is not, or if that is not to be had."""
        known = self._database.table(dataset)
        if batch.rejections or lease.tracked or not known.may_grow_by(batch.records):
            return None
        counts = count_page(
            batch,
            inserted=len(batch.records),
            updated=0,
            again=0,
            requests=lease.sent,
        )
        told = storable_all(
            {
                **page_told(lease, batch, counts),
                "page_seq": lease.page_seq,
                "cursor": batch.cursor,
                "proof": batch.proof,
                "provider_time": batch.provider_time,
                "lease": self._lease,
            }
        )

        def work(transaction: Transaction) -> bool:
            if not known.may_grow_by(batch.records):
                return False
            table = transaction.table(dataset)
            is_done = table.store(batch.records, rank=batch.rank, **told)
            return is_done or took_effect(transaction, lease)

        return counts if self._database.write_at_once(work) else None

    @override
    def repeat_page(
        self,
        dataset: Dataset,
        lease: Lease,
        imprint: bytes,
        *,
        provider_time: datetime | None,
    ) -> Repeated | None:
        def work(transaction: Transaction) -> DictRow | None:
            row = transaction.table(dataset).repeat(
                imprint=imprint,
                import_id=lease.import_id,
                job=lease.job,
                fence=lease.fence,
                page_seq=lease.page_seq,
                before=cursor_mark(lease.cursor),
                requests=lease.sent,
                provider_time=provider_time,
                lease=self._lease,
            )
            is_refused = row is not None and row["page_seq"] is None
            if is_refused and not took_effect(transaction, lease):
                raise LeaseLost(lease.job, fence=lease.fence)
            return row

        row = self._database.write_at_once(work)
        if row is None:
            return None
        memo = read_memo(row["memo"])
        batch = batch_again(memo, imprint, provider_time=provider_time)
        counts = count_page(batch, inserted=0, updated=0, again=0, requests=lease.sent)
        return following(lease, memo.cursor), counts, memo.proof


def took_effect(transaction: Transaction, lease: Lease) -> bool:
    """Say whether a page that is refused was stored before, and the answer was lost.

    Nobody else moves a job on under our fence.
    """
    if not transaction.is_again:
        return False
    job = transaction.one("get_job", job=lease.job)
    is_ours = job is not None and job["fence"] == lease.fence
    return is_ours and job is not None and job["page_seq"] == lease.page_seq + 1
