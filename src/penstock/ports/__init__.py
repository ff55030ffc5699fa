"""The interfaces between the core and its adapters.

`record_access` and `auth`, which only the API needs, are imported directly.
"""

from dataclasses import dataclass

from penstock.ports.actions import ActionLog
from penstock.ports.archive import Archive
from penstock.ports.budgets import Budgets, BudgetSnapshot, DurableBudgets
from penstock.ports.claims import ClaimLog
from penstock.ports.coverage import ImportCoverage
from penstock.ports.idempotency import IdempotencyStore
from penstock.ports.ledger import (
    Declarations,
    DueJob,
    Imports,
    JobFilter,
    Jobs,
    Ledger,
    ProblemCounts,
    RepeatResult,
    WorkNotifier,
)
from penstock.ports.maintenance import Maintenance
from penstock.ports.outbox import Outbox, Transport
from penstock.ports.plans import Plans
from penstock.ports.records import (
    QuarantinedRow,
    ReasonCount,
    Records,
    RejectionFilter,
    Replay,
)
from penstock.ports.retention import Feeders, Retention
from penstock.ports.rollups import Rollups
from penstock.ports.runtime import Emit, KeepAlive, Redact, Runtime, StopSignal
from penstock.ports.schedules import FireLog, Schedules
from penstock.ports.schema import Diagnostic, Schema, ServerDiagnostics, SqlStatement
from penstock.ports.source import NoScannedSlices, ScannedSlices, Source, Survey
from penstock.ports.uploads import Uploads
from penstock.ports.workers import Workers

__all__ = [
    "ActionLog",
    "Archive",
    "BudgetSnapshot",
    "Budgets",
    "ClaimLog",
    "Declarations",
    "Diagnostic",
    "DueJob",
    "DurableBudgets",
    "Emit",
    "Feeders",
    "FireLog",
    "IdempotencyStore",
    "ImportCoverage",
    "Imports",
    "JobFilter",
    "Jobs",
    "KeepAlive",
    "Ledger",
    "Maintenance",
    "NoScannedSlices",
    "Outbox",
    "Plans",
    "ProblemCounts",
    "QuarantinedRow",
    "ReasonCount",
    "Records",
    "Redact",
    "RejectionFilter",
    "RepeatResult",
    "Replay",
    "Retention",
    "Rollups",
    "Runtime",
    "ScannedSlices",
    "Schedules",
    "Schema",
    "ServerDiagnostics",
    "Source",
    "SqlStatement",
    "StopSignal",
    "Stores",
    "Survey",
    "Transport",
    "Uploads",
    "WorkNotifier",
    "Workers",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """All stores of a worker, by port."""

    schema: Schema
    imports: Imports
    ledger: Ledger
    jobs: Jobs
    plans: Plans
    budgets: Budgets
    records: Records
    notifier: WorkNotifier
    requests: IdempotencyStore
    workers: Workers
    maintenance: Maintenance
    schedules: Schedules
    fires: FireLog
    coverage: ImportCoverage
    outbox: Outbox
    claims: ClaimLog
    retention: Retention
    rollups: Rollups
    feeders: Feeders
    archive: Archive
    actions: ActionLog
