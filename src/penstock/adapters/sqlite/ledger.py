"""The ledger in SQLite."""

from datetime import datetime

from typing_extensions import override

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlstore.ledger import SqlLedger
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Lease
from penstock.domain.page_reuse import build_repeat_batch
from penstock.ports import RepeatResult


class SqliteLedger(SqlLedger[SqliteDatabase]):
    @override
    def repeat_page(
        self,
        dataset: Dataset,
        lease: Lease,
        imprint: bytes,
        *,
        provider_time: datetime | None,
    ) -> RepeatResult | None:
        # compared in a read, because only one transaction can write at a time
        memo = self._database.read(
            lambda transaction: transaction.table(dataset).find_repeated_page(imprint)
        )
        if memo is None:
            return None
        batch = build_repeat_batch(memo, imprint, provider_time=provider_time)
        return RepeatResult(*self.commit_page(dataset, lease, batch), memo.proof)
