"""Messages for hooks, written in the transaction of the fact that they are about."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.adapters.sqlstore.database import Transaction, instant
from penstock.adapters.sqlstore.outbox import add_messages
from penstock.domain.hooks import HookFact, Subscribers
from penstock.domain.jobs import Import, ImportStatus
from penstock.ports.hooks import new_hook_message

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
