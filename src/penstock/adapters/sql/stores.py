"""The stores of one database, behind their ports."""

from datetime import timedelta

from penstock.adapters.sql.budgets import SqlBudgets
from penstock.adapters.sql.database import Database
from penstock.adapters.sql.imports import SqlImports
from penstock.adapters.sql.jobs import SqlJobs
from penstock.adapters.sql.ledger import SqlLedger
from penstock.adapters.sql.records import SqlRecords
from penstock.ports import Bell, Schema, Stores


def stores_of(
    database: Database, *, schema: Schema, lease: timedelta, bell: Bell
) -> Stores:
    return Stores(
        schema=schema,
        imports=SqlImports(database),
        ledger=SqlLedger(database, lease=lease),
        jobs=SqlJobs(database),
        budgets=SqlBudgets(database),
        records=SqlRecords(database),
        bell=bell,
    )
