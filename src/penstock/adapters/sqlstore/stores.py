"""Build the stores of one database."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from penstock.adapters.sqlstore.actions import SqlActionLog
from penstock.adapters.sqlstore.archive import SqlArchive
from penstock.adapters.sqlstore.budgets import SqlBudgets
from penstock.adapters.sqlstore.claims import SqlClaimLog
from penstock.adapters.sqlstore.coverage import SqlImportCoverage
from penstock.adapters.sqlstore.database import Database
from penstock.adapters.sqlstore.hook_messages import HookMessages
from penstock.adapters.sqlstore.idempotency import SqlIdempotencyStore
from penstock.adapters.sqlstore.imports import SqlImports
from penstock.adapters.sqlstore.jobs import SqlJobs
from penstock.adapters.sqlstore.maintenance import SqlMaintenance
from penstock.adapters.sqlstore.outbox import SqlOutbox
from penstock.adapters.sqlstore.plans import SqlPlans
from penstock.adapters.sqlstore.record_reader import SqlRecordReader
from penstock.adapters.sqlstore.record_writer import SqlRecordWriter
from penstock.adapters.sqlstore.records import SqlRecords
from penstock.adapters.sqlstore.retention import SqlFeeders, SqlRetention
from penstock.adapters.sqlstore.rollups import SqlRollups
from penstock.adapters.sqlstore.schedules import SqlFireLog, SqlSchedules
from penstock.adapters.sqlstore.search import SqlSearch
from penstock.adapters.sqlstore.workers import SqlWorkers
from penstock.domain.hooks import Subscribers
from penstock.ports import Budgets, DurableBudgets, Ledger, Schema, Stores, WorkNotifier
from penstock.ports.record_access import ApiStores, FailureCheck, ReplicaState


def build_api_stores(
    database: Database,
    *,
    primary: Database | None = None,
    on_news: Callable[[], None] | None = None,
    on_lost: Callable[[], None] = lambda: None,
    failure: FailureCheck = lambda: None,
    replicas: Callable[[], Sequence[ReplicaState]] = tuple,
) -> ApiStores:
    """Build the stores of the API; `primary` is given if `database` is its replicas."""
    return ApiStores(
        reads=SqlRecordReader(
            database, primary=primary, on_news=on_news, on_lost=on_lost
        ),
        edits=SqlRecordWriter(database),
        search=SqlSearch(database),
        failure=failure,
        replicas=replicas,
    )


# puts a faster limiter before the budgets of the database, which persist its state
Limiter: TypeAlias = Callable[[DurableBudgets], Budgets]


def build_stores(
    database: Database,
    *,
    schema: Schema,
    ledger: Ledger,
    notifier: WorkNotifier,
    lease: timedelta,
    limiter: Limiter | None = None,
    subscribers: Subscribers | None = None,
) -> Stores:
    hooks = HookMessages(subscribers)
    budgets = SqlBudgets(database, hooks)
    return Stores(
        schema=schema,
        imports=SqlImports(database, hooks),
        ledger=ledger,
        jobs=SqlJobs(database, hooks),
        plans=SqlPlans(database, hooks, lease=lease),
        budgets=budgets if limiter is None else limiter(budgets),
        records=SqlRecords(database),
        notifier=notifier,
        requests=SqlIdempotencyStore(database),
        workers=SqlWorkers(database),
        maintenance=SqlMaintenance(database),
        schedules=SqlSchedules(database),
        fires=SqlFireLog(database, hooks),
        coverage=SqlImportCoverage(database),
        outbox=SqlOutbox(database),
        claims=SqlClaimLog(database),
        retention=SqlRetention(database),
        rollups=SqlRollups(database),
        feeders=SqlFeeders(database),
        archive=SqlArchive(database),
        actions=SqlActionLog(database),
    )
