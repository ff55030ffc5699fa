"""Messages for hooks, written in the transaction of the fact that they are about."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from penstock.adapters.sqlstore.database import SqlRow, Transaction, instant
from penstock.adapters.sqlstore.outbox import add_messages
from penstock.domain.formats import format_instant
from penstock.domain.hooks import HookFact, Subscribers
from penstock.domain.jobs import Import, ImportStatus, JobError, Lease
from penstock.domain.scheduling.fires import SkippedFires
from penstock.errors import LeaseLost
from penstock.ports.hooks import new_hook_message
from penstock.ports.schedules import StoredSchedule

IMPORT_FACTS: Mapping[ImportStatus, HookFact] = {
    ImportStatus.DONE: HookFact.IMPORT_DONE,
    ImportStatus.FAILED: HookFact.IMPORT_FAILED,
}


class HookMessages:
    """Adds a message for each hook of a fact, or none."""

    def __init__(self, subscribers: Subscribers | None = None) -> None:
        self._subscribers = subscribers or {}

    def add(
        self,
        transaction: Transaction,
        fact: HookFact,
        *documents: Mapping[str, Any],
    ) -> None:
        hooks = self._subscribers.get(fact, ())
        if not (hooks and documents):
            return
        row = transaction.one("now")
        if row is None:
            raise LookupError("the database did not return its time")
        at = instant(row["now"])
        add_messages(
            transaction,
            [
                new_hook_message(hook, fact, data, at=at)
                for data in documents
                for hook in hooks
            ],
        )

    def add_import(self, transaction: Transaction, ended: Import) -> None:
        """Add what is said of an import that was done or failed."""
        fact = IMPORT_FACTS.get(ended.status)
        if fact is not None:
            self.add(transaction, fact, import_document(ended))

    def add_dead_shard(
        self, transaction: Transaction, lease: Lease, error: JobError
    ) -> None:
        data = {
            "import": lease.import_id,
            "dataset": lease.dataset,
            "job": lease.job,
            "shard": lease.shard_key,
            "code": error.code,
            "message": error.message,
        }
        self.add(transaction, HookFact.SHARD_DEAD, data)

    def add_lost_jobs(self, transaction: Transaction, lost: Sequence[SqlRow]) -> None:
        """Add what is said of jobs whose last lease has expired."""
        documents = [
            {
                "import": row["import_id"],
                "dataset": row["dataset"],
                "job": row["id"],
                "shard": row["shard_key"],
                "code": LeaseLost.code,
                "message": f"the lease expired {row['rescues']} times in a row",
            }
            for row in lost
        ]
        self.add(transaction, HookFact.SHARD_DEAD, *documents)

    def add_missed_fires(
        self, transaction: Transaction, schedule: StoredSchedule, fires: SkippedFires
    ) -> None:
        data = {
            "schedule": schedule.name,
            "dataset": schedule.declaration.dataset,
            "reason": fires.reason.value,
            "first": format_instant(fires.first),
            "last": format_instant(fires.last),
            "count": fires.count,
        }
        self.add(transaction, HookFact.SCHEDULE_MISSED, data)

    def add_stopped_budget(
        self, transaction: Transaction, budget: str, *, reason: str
    ) -> None:
        data = {"budget": budget, "reason": reason}
        self.add(transaction, HookFact.BUDGET_STOPPED, data)


def import_document(ended: Import) -> dict[str, Any]:
    return {
        "import": ended.id,
        "dataset": ended.dataset,
        "mode": ended.mode.value,
        "status": ended.status.value,
        "proven": ended.proven,
        "note": ended.note,
        "counts": asdict(ended.counts),
    }
