"""Everything that is kept."""

from dataclasses import dataclass

from penstock.ports.budgets import Budgets
from penstock.ports.idempotency import Requests
from penstock.ports.ledger import Bell, Imports, Jobs, Ledger
from penstock.ports.records import Records
from penstock.ports.schema import Schema
from penstock.ports.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Everything that is kept, behind its ports."""

    schema: Schema
    imports: Imports
    ledger: Ledger
    jobs: Jobs
    budgets: Budgets
    records: Records
    bell: Bell
    requests: Requests
    workers: Workers
