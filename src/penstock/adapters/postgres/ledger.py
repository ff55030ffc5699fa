"""The ledger in PostgreSQL."""

from datetime import datetime

from psycopg.rows import DictRow
from typing_extensions import override

from penstock.adapters.postgres.database import Database, Transaction
from penstock.adapters.sql.ledger import Repeated, SqlLedger, following
from penstock.adapters.sql.memos import read_memo
from penstock.domain.dataset import Dataset
from penstock.domain.job import Lease, cursor_mark
from penstock.domain.page import count_page
from penstock.domain.repeat import batch_again
from penstock.errors import LeaseLost


class PostgresLedger(SqlLedger[Database]):
    @override
    def repeat_page(
        self,
        dataset: Dataset,
        lease: Lease,
        imprint: bytes,
        *,
        provider_time: datetime | None,
    ) -> Repeated | None:
        """Compare and commit in one statement, which is a transaction of its own."""

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
            if is_refused and not (
                transaction.is_again and has_moved_on(transaction, lease)
            ):
                raise LeaseLost(lease.job, fence=lease.fence)
            return row

        row = self._database.write_at_once(work)
        if row is None:
            return None
        memo = read_memo(row["memo"])
        batch = batch_again(memo, imprint, provider_time=provider_time)
        counts = count_page(batch, inserted=0, updated=0, again=0, requests=lease.sent)
        return following(lease, memo.cursor), counts, memo.proof


def has_moved_on(transaction: Transaction, lease: Lease) -> bool:
    """Say whether a page took effect whose answer was lost.

    Nobody else moves a job on under our fence.
    """
    job = transaction.one("get_job", job=lease.job)
    is_ours = job is not None and job["fence"] == lease.fence
    return is_ours and job is not None and job["page_seq"] == lease.page_seq + 1
