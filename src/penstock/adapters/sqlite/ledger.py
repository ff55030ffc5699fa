"""The ledger in SQLite."""

from datetime import datetime

from typing_extensions import override

from penstock.adapters.sql.ledger import SqlLedger
from penstock.adapters.sqlite.database import Database
from penstock.domain.dataset import Dataset
from penstock.domain.job import Lease
from penstock.domain.repeat import batch_again
from penstock.ports import Repeated


class SqliteLedger(SqlLedger[Database]):
    @override
    def repeat_page(
        self,
        dataset: Dataset,
        lease: Lease,
        imprint: bytes,
        *,
        provider_time: datetime | None,
    ) -> Repeated | None:
        # rows are compared beside those who write, of whom there is one at a time
        memo = self._database.read(lambda look: look.table(dataset).recall(imprint))
        if memo is None:
            return None
        batch = batch_again(memo, imprint, provider_time=provider_time)
        return Repeated(*self.commit_page(dataset, lease, batch), memo.proof)
