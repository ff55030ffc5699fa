"""Budgets in the database itself, shared by all processes that reach it."""

from datetime import timedelta
from math import inf
from time import monotonic

from typing_extensions import override

from penstock.adapters.sql.database import Database, Row, Transaction
from penstock.adapters.sql.usage import (
    decode_usage,
    encode_usage,
    higher,
    living_usage,
    shifted,
)
from penstock.domain.budget import (
    LATEST_USE,
    LONGEST_REST,
    Budget,
    BudgetState,
    Grant,
    Usage,
    give_back,
    is_timely,
    limits_left,
    reserve,
    without_future,
)
from penstock.domain.times import MICROSECOND
from penstock.errors import BudgetClosed, BudgetStopped
from penstock.ports import LastingBudgets, Remembered

# the slot of a token that no clock was asked about
UNCOUNTED = 0


class SqlBudgets(LastingBudgets):
    """What is decided about a budget is decided in the domain, on one held row."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # budgets without a limit that were open, and when
        self._open: dict[str, float] = {}

    @override
    def take(self, budget: Budget, *, longest: timedelta) -> Grant:
        if not budget.limits:
            return self._look_only(budget, longest)

        def work(transaction: Transaction) -> Grant:
            row = held(transaction, budget.name)
            refuse_stopped(row, budget.name)
            now = row["now"]
            usage = without_future(budget, decode_usage(row["usage"]), now=now)
            taken, grant = reserve(
                budget, usage, now=now, not_before=row["closed_until"]
            )
            if grant.wait > longest:
                raise BudgetClosed(budget.name, wait=grant.wait)
            transaction.execute(
                "set_usage", name=budget.name, usage=encode_usage(taken), taken=1
            )
            return grant

        return self._database.write(work)

    @override
    def confirm(self, grant: Grant) -> bool:
        row = self._look(grant.budget)
        if row is None:
            # either nothing was ever counted, or the store was emptied meanwhile
            return grant.slot == UNCOUNTED
        refuse_stopped(row, grant.budget)
        left = row["closed_until"] - row["now"]
        if left > 0:
            raise BudgetClosed(grant.budget, wait=timedelta(microseconds=left))
        return is_timely(grant, now=row["now"])

    @override
    def give_back(self, budget: Budget, grant: Grant) -> None:
        def work(transaction: Transaction) -> None:
            row = held(transaction, budget.name)
            usage = give_back(budget, decode_usage(row["usage"]), grant)
            transaction.execute(
                "set_usage", name=budget.name, usage=encode_usage(usage), taken=-1
            )

        self._database.write(work)

    @override
    def close(self, budget: str, *, wait: timedelta, reason: str) -> None:
        def work(transaction: Transaction) -> None:
            row = held(transaction, budget)
            until = row["now"] + wait // MICROSECOND
            transaction.execute("close_budget", name=budget, until=until, reason=reason)

        self._database.write(work)
        self._open.pop(budget, None)

    @override
    def stop(self, budget: str, *, reason: str) -> None:
        def work(transaction: Transaction) -> None:
            held(transaction, budget)
            transaction.execute("stop_budget", name=budget, reason=reason)

        self._database.write(work)
        self._open.pop(budget, None)

    @override
    def open(self, budget: str) -> None:
        def work(transaction: Transaction) -> None:
            held(transaction, budget)
            transaction.execute("open_budget", name=budget)

        self._database.write(work)

    @override
    def state(self, budget: Budget) -> BudgetState:
        row = self._look(budget.name)
        if row is None:
            return unused(budget)
        now = row["now"]
        left = row["closed_until"] - now
        return BudgetState(
            budget=budget,
            limits=limits_left(budget, decode_usage(row["usage"]), now=now),
            taken=row["taken"],
            closed_for=timedelta(microseconds=left) if left > 0 else None,
            closed_reason=row["closed_reason"] if left > 0 else None,
            stopped=row["stopped"],
        )

    @override
    def recall(self, budget: Budget) -> Remembered | None:
        row = self._look(budget.name)
        if row is None:
            return None
        left = row["closed_until"] - row["now"]
        return Remembered(
            usage=decode_usage(row["usage"]),
            now=row["now"],
            closed_for=timedelta(microseconds=left) if left > 0 else None,
            closed_reason=row["closed_reason"] if left > 0 else None,
            stopped=row["stopped"],
        )

    @override
    def remember(self, budget: Budget, usage: Usage, *, ahead: int) -> None:
        def work(transaction: Transaction) -> None:
            row = held(transaction, budget.name)
            ours = shifted(budget, usage, ahead)
            noted = living_usage(
                budget, higher(decode_usage(row["usage"]), ours), now=row["now"]
            )
            transaction.execute(
                "note_usage",
                name=budget.name,
                usage=encode_usage(noted),
            )

        self._database.write(work)

    def _look_only(self, budget: Budget, longest: timedelta) -> Grant:
        """Grant a token where none are counted: it can only be closed or stopped."""
        now = monotonic()
        free = reserve(budget, Usage(), now=UNCOUNTED)[1]
        # a token may be used so late, and so may a look
        if now - self._open.get(budget.name, -inf) < LATEST_USE.total_seconds():
            return free
        row = self._look(budget.name)
        if row is None:
            self._open[budget.name] = now
            return free
        refuse_stopped(row, budget.name)
        _, grant = reserve(
            budget, Usage(), now=row["now"], not_before=row["closed_until"]
        )
        if grant.wait > longest:
            raise BudgetClosed(budget.name, wait=grant.wait)
        if not grant.wait:
            self._open[budget.name] = now
        return grant

    def _look(self, name: str) -> Row | None:
        return self._database.read(lambda look: look.one("get_budget", name=name))


def held(transaction: Transaction, name: str) -> Row:
    """Hold the row of a budget, which is made if there is none."""
    row = transaction.one("hold_budget", name=name)
    if row is None:
        transaction.execute("add_budget", name=name)
        row = transaction.one("hold_budget", name=name)
    if row is None:
        raise LookupError(f"budget {name!r} was not stored")
    return row


def unused(budget: Budget) -> BudgetState:
    return BudgetState(
        budget=budget, limits=limits_left(budget, Usage(), now=0), taken=0
    )


def refuse_stopped(row: Row, name: str) -> None:
    if row["stopped"] is not None:
        raise BudgetStopped(name, reason=row["stopped"], wait=LONGEST_REST)
