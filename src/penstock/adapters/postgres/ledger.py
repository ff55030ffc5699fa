"""The ledger in PostgreSQL."""

from collections import Counter
from datetime import datetime, timedelta

from psycopg.rows import DictRow
from typing_extensions import override

from penstock.adapters.postgres.database import Database, Transaction, storable_all
from penstock.adapters.sql.ledger import SqlLedger, following, page_told
from penstock.adapters.sql.memos import read_memo
from penstock.domain.dataset import Dataset
from penstock.domain.job import Lease, cursor_mark
from penstock.domain.page import Batch, Counts, count_page
from penstock.domain.repeat import batch_again
from penstock.errors import LeaseLost
from penstock.ports import Repeated

# pages that take the long way after one of new rows was refused
DETOURS = 50


class PostgresLedger(SqlLedger[Database]):
    """Commits what needs no decision on its way by one statement.

    Such a statement is a transaction of its own.
    """

    def __init__(self, database: Database, *, lease: timedelta) -> None:
        super().__init__(database, lease=lease)
        # by dataset, how many pages take the long way before another try
        self._detours: Counter[str] = Counter()

    @override
    def _commit(
        self, dataset: Dataset, lease: Lease, batch: Batch
    ) -> tuple[Lease, Counts]:
        counts = self._store(dataset, lease, batch)
        if counts is None:
            return super()._commit(dataset, lease, batch)
        return following(lease, batch.cursor), counts

    def _store(self, dataset: Dataset, lease: Lease, batch: Batch) -> Counts | None:
        """Commit a page whose rows are thought to be new.

        None, and nothing is written, if it is not such a page, or is refused: the long
        way then says why.
        """
        table = self._database.table(dataset)
        if batch.rejections or lease.tracked or not table.may_grow_by(batch.records):
            return None
        if self._detours[dataset.name] > 0:
            self._detours[dataset.name] -= 1
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
            stored = transaction.table(dataset)
            is_done = stored.store(batch.records, rank=batch.rank, **told)
            return is_done or own_page(transaction, lease) is not None

        if self._database.write_at_once(work):
            return counts
        if table.grows:
            # no row was known: rows wait in quarantine, most likely for a while
            self._detours[dataset.name] = DETOURS
        return None

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
            if row is None or row["page_seq"] is None:
                # also if its rows have changed since
                own = own_page(transaction, lease)
                if row is not None and own is None:
                    raise LeaseLost(lease.job, fence=lease.fence)
                return own
            return row

        row = self._database.write_at_once(work)
        if row is None:
            return None
        memo = read_memo(row["memo"])
        batch = batch_again(memo, imprint, provider_time=provider_time)
        counts = count_page(batch, inserted=0, updated=0, again=0, requests=lease.sent)
        return Repeated(following(lease, memo.cursor), counts, memo.proof)


def own_page(transaction: Transaction, lease: Lease) -> DictRow | None:
    """Return a page that was committed before, and whose answer was lost, if it was."""
    if not transaction.is_again:
        return None
    told = {"job": lease.job, "page_seq": lease.page_seq, "fence": lease.fence}
    return transaction.one("find_own_page", **told)
