"""The stores of one database, behind their ports."""

from collections.abc import Callable
from typing import TypeAlias

from penstock.adapters.sql.budgets import SqlBudgets
from penstock.adapters.sql.database import Database
from penstock.adapters.sql.edits import SqlEdits
from penstock.adapters.sql.idempotency import SqlRequests
from penstock.adapters.sql.imports import SqlImports
from penstock.adapters.sql.jobs import SqlJobs
from penstock.adapters.sql.reads import SqlReads
from penstock.adapters.sql.records import SqlRecords
from penstock.adapters.sql.searching import SqlSearch
from penstock.ports import (
    Bell,
    Budgets,
    LastingBudgets,
    Ledger,
    Schema,
    Served,
    Stores,
)
from penstock.ports.serving import Trouble

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
    )


def served_by(
    database: Database,
    *,
    primary: Database | None = None,
    on_news: Callable[[], None] | None = None,
    trouble: Trouble = lambda: None,
) -> Served:
    """Serve a database; where it reads from replicas, its primary is named."""
    return Served(
        reads=SqlReads(database, primary=primary, on_news=on_news),
        edits=SqlEdits(database),
        search=SqlSearch(database),
        trouble=trouble,
    )
