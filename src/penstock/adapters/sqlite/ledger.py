"""The ledger in SQLite, which has no notifications: idle workers poll."""

from datetime import datetime, timedelta

from typing_extensions import override

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlstore.ledger import SqlLedger
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Lease
from penstock.domain.page_reuse import build_repeat_batch
from penstock.ports import RepeatResult, WorkNotifier


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


class NoNotifier(WorkNotifier):
    """Polling is cheap on one machine."""

    @property
    @override
    def poll_interval(self) -> timedelta:
        return timedelta(seconds=0.2)

    @property
    @override
    def notification_count(self) -> int:
        return 0
