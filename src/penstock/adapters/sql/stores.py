"""The stores of one database, behind their ports."""

from collections.abc import Callable
from typing import TypeAlias

from penstock.adapters.sql.budgets import SqlBudgets
from penstock.adapters.sql.database import Database
from penstock.adapters.sql.idempotency import SqlRequests
from penstock.adapters.sql.imports import SqlImports
from penstock.adapters.sql.jobs import SqlJobs
from penstock.adapters.sql.records import SqlRecords
from penstock.adapters.sql.workers import SqlWorkers
from penstock.ports import Bell, Budgets, LastingBudgets, Ledger, Schema, Stores

# what stands before the budgets of the database, and has it remember for it
Limiter: TypeAlias = Callable[[LastingBudgets], Budgets]


def stores_of(
    database: Database,
    *,
    schema: Schema,
    ledger: Ledger,
    bell: Bell,
    limiter: Limiter | None = None,
) -> Stores:
    budgets = SqlBudgets(database)
    return Stores(
        schema=schema,
        imports=SqlImports(database),
        ledger=ledger,
        jobs=SqlJobs(database),
        budgets=budgets if limiter is None else limiter(budgets),
        records=SqlRecords(database),
        bell=bell,
        requests=SqlRequests(database),
        workers=SqlWorkers(database),
    )
