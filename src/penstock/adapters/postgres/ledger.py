"""The ledger in PostgreSQL."""

from datetime import datetime

from psycopg.rows import DictRow
from typing_extensions import override

from penstock.adapters.postgres.database import (
    PostgresDatabase,
    PostgresTransaction,
    storable_all,
)
from penstock.adapters.postgres.page_writes import (
    FALLBACK_PAGES,
    PageWrite,
    choose_page_write,
)
from penstock.adapters.sqlstore.ledger import SqlLedger, advance_lease, page_params
from penstock.adapters.sqlstore.page_summaries import decode_summary
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Lease, cursor_fingerprint
from penstock.domain.page_reuse import build_repeat_batch
from penstock.domain.pages import Batch, Counts, count_page
from penstock.errors import LeaseLost
from penstock.ports import RepeatResult


class PostgresLedger(SqlLedger[PostgresDatabase]):
    """Commits a page by a single statement where that is possible.

    Such a statement is a transaction of its own.
    """

    @override
    def _commit(
        self, dataset: Dataset, lease: Lease, batch: Batch
    ) -> tuple[Lease, Counts]:
        counts = self._store_new(dataset, lease, batch)
        if counts is None:
            return super()._commit(dataset, lease, batch)
        return advance_lease(lease, batch.cursor), counts

    def _store_new(self, dataset: Dataset, lease: Lease, batch: Batch) -> Counts | None:
        """Commit a page whose rows are expected to be new.

        None, and nothing is written, if it is not such a page, or is refused: the
        general way then finds out why.
        """
        state = self._database.table_state(dataset)
        way = choose_page_write(
            dataset,
            state,
            rows=len(batch.records),
            is_insert_only=not batch.rejections
            and not batch.repeated_keys
            and not lease.tracked
            # a row that returns has to leave the archive
            and dataset.archive is None,
        )
        if way is not PageWrite.SINGLE_STATEMENT:
            return None
        counts = count_page(
            batch,
            inserted=len(batch.records),
            updated=0,
            again=0,
            requests=lease.sent,
        )
        parameters = storable_all(
            {
                **page_params(lease, batch, counts),
                "page_seq": lease.page_seq,
                "cursor": batch.cursor,
                "proof": batch.proof,
                "provider_time": batch.provider_time,
                "lease": self._lease,
            }
        )

        def work(transaction: PostgresTransaction) -> bool:
            is_stored = transaction.table(dataset).store(
                batch.records, rank=batch.rank, **parameters
            )
            return is_stored or own_page(transaction, lease) is not None

        if self._database.write_statement(work):
            return counts
        if state.expects_new_rows:
            # no row existed: rows are in quarantine, most likely for a while
            state.fallback_pages = FALLBACK_PAGES
        return None

    @override
    def repeat_page(
        self,
        dataset: Dataset,
        lease: Lease,
        imprint: bytes,
        *,
        provider_time: datetime | None,
    ) -> RepeatResult | None:
        def work(transaction: PostgresTransaction) -> DictRow | None:
            row = transaction.table(dataset).repeat(
                imprint=imprint,
                import_id=lease.import_id,
                job=lease.job,
                fence=lease.fence,
                page_seq=lease.page_seq,
                before=cursor_fingerprint(lease.cursor),
                requests=lease.sent,
                provider_time=provider_time,
                lease=self._lease,
            )
            if row is None or row["page_seq"] is None:
                # our own page may be committed even if its rows have changed since
                own = own_page(transaction, lease)
                if row is not None and own is None:
                    raise LeaseLost(lease.job, fence=lease.fence)
                return own
            return row

        row = self._database.write_statement(work)
        if row is None:
            return None
        memo = decode_summary(row["memo"])
        batch = build_repeat_batch(memo, imprint, provider_time=provider_time)
        counts = count_page(batch, inserted=0, updated=0, again=0, requests=lease.sent)
        return RepeatResult(advance_lease(lease, memo.cursor), counts, memo.proof)


def own_page(transaction: PostgresTransaction, lease: Lease) -> DictRow | None:
    """Return our page if an earlier attempt has committed it and lost the response."""
    if not transaction.is_retry:
        return None
    return transaction.one(
        "find_own_page", job=lease.job, page_seq=lease.page_seq, fence=lease.fence
    )
