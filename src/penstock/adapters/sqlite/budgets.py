"""Budgets in the database itself, shared by all processes on its machine."""

import json
import sqlite3
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sqlite.database import MICROSECOND, Database, Transaction
from penstock.domain.budget import (
    LONGEST_REST,
    Budget,
    BudgetState,
    Grant,
    LimitState,
    Usage,
    give_back,
    is_timely,
    remaining,
    reserve,
    without_future,
)
from penstock.errors import BudgetClosed, BudgetStopped
from penstock.ports import Budgets


class SqliteBudgets(Budgets):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def take(self, budget: Budget, *, longest: timedelta) -> Grant:
        with self._database.write() as transaction:
            row = self._row(transaction, budget.name)
            refuse_stopped(row, budget.name)
            usage = without_future(
                budget, decode_usage(row["usage"]), now=transaction.now
            )
            taken, grant = reserve(
                budget, usage, now=transaction.now, not_before=row["closed_until"]
            )
            if grant.wait > longest:
                raise BudgetClosed(budget.name, wait=grant.wait)
            transaction.execute(
                "set_usage", name=budget.name, usage=encode_usage(taken), taken=1
            )
            return grant

    @override
    def confirm(self, grant: Grant) -> bool:
        with self._database.read() as transaction:
            row = transaction.one("get_budget", name=grant.budget)
            if row is None:
                # the store was emptied meanwhile: nothing is known of this token
                return False
            refuse_stopped(row, grant.budget)
            left = row["closed_until"] - transaction.now
            if left > 0:
                raise BudgetClosed(grant.budget, wait=timedelta(microseconds=left))
            return is_timely(grant, now=transaction.now)

    @override
    def give_back(self, budget: Budget, grant: Grant) -> None:
        with self._database.write() as transaction:
            row = self._row(transaction, budget.name)
            usage = give_back(budget, decode_usage(row["usage"]), grant)
            transaction.execute(
                "set_usage", name=budget.name, usage=encode_usage(usage), taken=-1
            )

    @override
    def close(self, budget: str, *, wait: timedelta, reason: str) -> None:
        with self._database.write() as transaction:
            self._row(transaction, budget)
            transaction.execute(
                "close_budget", name=budget, wait=wait // MICROSECOND, reason=reason
            )

    @override
    def stop(self, budget: str, *, reason: str) -> None:
        with self._database.write() as transaction:
            self._row(transaction, budget)
            transaction.execute("stop_budget", name=budget, reason=reason)

    @override
    def open(self, budget: str) -> None:
        with self._database.write() as transaction:
            self._row(transaction, budget)
            transaction.execute("open_budget", name=budget)

    @override
    def state(self, budget: Budget) -> BudgetState:
        with self._database.read() as transaction:
            row = transaction.one("get_budget", name=budget.name)
            now = transaction.now
        usage = Usage() if row is None else decode_usage(row["usage"])
        usage = without_future(budget, usage, now=now)
        left = 0 if row is None else row["closed_until"] - now
        return BudgetState(
            budget=budget,
            limits=tuple(
                LimitState(
                    limit=limit, remaining=remaining(budget, usage, limit, now=now)
                )
                for limit in budget.limits
            ),
            taken=0 if row is None else row["taken"],
            closed_for=timedelta(microseconds=left) if left > 0 else None,
            closed_reason=None if row is None or left <= 0 else row["closed_reason"],
            stopped=None if row is None else row["stopped"],
        )

    def _row(self, transaction: Transaction, name: str) -> sqlite3.Row:
        transaction.execute("add_budget", name=name)
        row = transaction.one("get_budget", name=name)
        if row is None:
            raise LookupError(f"budget {name!r} was not stored")
        return row


def refuse_stopped(row: sqlite3.Row, name: str) -> None:
    if row["stopped"] is not None:
        raise BudgetStopped(name, reason=row["stopped"], wait=LONGEST_REST)


def encode_usage(usage: Usage) -> str:
    return json.dumps({"full_at": usage.full_at, "buckets": usage.buckets})


def decode_usage(text: str) -> Usage:
    told = json.loads(text)
    return Usage(
        full_at=told.get("full_at", {}),
        buckets={
            name: {int(number): count for number, count in counted.items()}
            for name, counted in told.get("buckets", {}).items()
        },
    )
