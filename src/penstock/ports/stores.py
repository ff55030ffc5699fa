"""All stores of a worker."""

from dataclasses import dataclass

from penstock.ports.budgets import Budgets
from penstock.ports.idempotency import IdempotencyStore
from penstock.ports.ledger import Imports, Jobs, Ledger, WorkNotifier
from penstock.ports.records import Records
from penstock.ports.schema import Schema
from penstock.ports.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """All stores of a worker, by port."""

    schema: Schema
    imports: Imports
    ledger: Ledger
    jobs: Jobs
    budgets: Budgets
    records: Records
    notifier: WorkNotifier
    requests: IdempotencyStore
    workers: Workers
