"""Budgets in the database, shared by all processes that use it."""

import json
from datetime import datetime, timedelta
from math import inf
from time import monotonic

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow, Transaction, instant
from penstock.adapters.sqlstore.hook_messages import HookMessages
from penstock.domain.budget import (
    BUDGET_POLL_INTERVAL,
    MAX_SEND_DELAY,
    Budget,
    BudgetState,
    Grant,
    Usage,
    active_buckets,
    bucket_width,
    drop_future_usage,
    is_timely,
    limit_states,
    reserve,
    return_grant,
)
from penstock.domain.formats import MICROSECOND
from penstock.errors import BudgetClosed, BudgetStopped
from penstock.ports import BudgetSnapshot, DurableBudgets

# the slot of a token of a budget without limits, which has no clock
NO_SLOT = 0


class SqlBudgets(DurableBudgets):
    """Locks the row of a budget; the domain decides what happens to it."""

    def __init__(self, database: Database, hooks: HookMessages | None = None) -> None:
        self._database = database
        self._hooks = hooks or HookMessages()
        # when each budget without limits was last seen open
        self._open: dict[str, float] = {}

    @override
    def take(self, budget: Budget, *, longest: timedelta) -> Grant:
        if not budget.limits:
            return self._grant_unlimited(budget, longest)

        def work(transaction: Transaction) -> Grant:
            row = lock_budget(transaction, budget.name)
            raise_if_stopped(row, budget.name)
            now = row["now"]
            usage = drop_future_usage(budget, decode_usage(row["usage"]), now=now)
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
        row = self._get(grant.budget)
        if row is None:
            # either nothing was ever counted, or the store was emptied since
            return grant.slot == NO_SLOT
        raise_if_stopped(row, grant.budget)
        left = row["closed_until"] - row["now"]
        if left > 0:
            raise BudgetClosed(grant.budget, wait=timedelta(microseconds=left))
        return is_timely(grant, now=row["now"])

    @override
    def give_back(self, budget: Budget, grant: Grant) -> None:
        def work(transaction: Transaction) -> None:
            row = lock_budget(transaction, budget.name)
            usage = return_grant(budget, decode_usage(row["usage"]), grant)
            transaction.execute(
                "set_usage", name=budget.name, usage=encode_usage(usage), taken=-1
            )

        self._database.write(work)

    @override
    def close(self, budget: str, *, wait: timedelta, reason: str) -> None:
        def work(transaction: Transaction) -> None:
            row = lock_budget(transaction, budget)
            until = row["now"] + wait // MICROSECOND
            transaction.execute(
                "close_budget", name=budget, until=until, reason=reason, at=row["now"]
            )

        self._database.write(work)
        self._open.pop(budget, None)

    @override
    def stop(self, budget: str, *, reason: str) -> None:
        def work(transaction: Transaction) -> None:
            row = lock_budget(transaction, budget)
            transaction.execute(
                "stop_budget", name=budget, reason=reason, at=row["now"]
            )
            # of all workers that are refused at once, the first stops it
            if row["stopped"] is None:
                self._hooks.add_stopped_budget(transaction, budget, reason=reason)

        self._database.write(work)
        self._open.pop(budget, None)

    @override
    def open(self, budget: str) -> None:
        def work(transaction: Transaction) -> None:
            lock_budget(transaction, budget)
            transaction.execute("open_budget", name=budget)

        self._database.write(work)

    @override
    def state(self, budget: Budget) -> BudgetState:
        row = self._get(budget.name)
        if row is None:
            return unused_state(budget)
        now = row["now"]
        left = row["closed_until"] - now
        return BudgetState(
            budget=budget,
            limits=limit_states(budget, decode_usage(row["usage"]), now=now),
            taken=row["taken"],
            closed_for=timedelta(microseconds=left) if left > 0 else None,
            closed_reason=row["closed_reason"] if left > 0 else None,
            stopped=row["stopped"],
            paused_at=read_pause(row),
        )

    @override
    def recall(self, budget: Budget) -> BudgetSnapshot | None:
        row = self._get(budget.name)
        if row is None:
            return None
        left = row["closed_until"] - row["now"]
        return BudgetSnapshot(
            usage=decode_usage(row["usage"]),
            now=row["now"],
            closed_for=timedelta(microseconds=left) if left > 0 else None,
            closed_reason=row["closed_reason"] if left > 0 else None,
            stopped=row["stopped"],
            paused_at=read_pause(row),
        )

    @override
    def remember(self, budget: Budget, usage: Usage, *, ahead: int) -> None:
        def work(transaction: Transaction) -> None:
            row = lock_budget(transaction, budget.name)
            local = shift_usage(budget, usage, ahead)
            merged = drop_expired_buckets(
                budget, max_usage(decode_usage(row["usage"]), local), now=row["now"]
            )
            transaction.execute(
                "note_usage", name=budget.name, usage=encode_usage(merged)
            )

        self._database.write(work)

    def _grant_unlimited(self, budget: Budget, longest: timedelta) -> Grant:
        """Grant a token of a budget without limits, unless it is closed or stopped."""
        now = monotonic()
        free = reserve(budget, Usage(), now=NO_SLOT)[1]
        # a token may be used this late, so the last read may be this old
        if now - self._open.get(budget.name, -inf) < MAX_SEND_DELAY.total_seconds():
            return free
        row = self._get(budget.name)
        if row is None:
            self._open[budget.name] = now
            return free
        raise_if_stopped(row, budget.name)
        _, grant = reserve(
            budget, Usage(), now=row["now"], not_before=row["closed_until"]
        )
        if grant.wait > longest:
            raise BudgetClosed(budget.name, wait=grant.wait)
        if not grant.wait:
            self._open[budget.name] = now
        return grant

    def _get(self, name: str) -> SqlRow | None:
        return self._database.read(
            lambda transaction: transaction.one("get_budget", name=name)
        )


def lock_budget(transaction: Transaction, name: str) -> SqlRow:
    """Lock the row of a budget; create it if there is none."""
    row = transaction.one("hold_budget", name=name)
    if row is None:
        transaction.execute("add_budget", name=name)
        row = transaction.one("hold_budget", name=name)
    if row is None:
        raise LookupError(f"budget {name!r} was not stored")
    return row


def unused_state(budget: Budget) -> BudgetState:
    return BudgetState(
        budget=budget, limits=limit_states(budget, Usage(), now=0), taken=0
    )


def raise_if_stopped(row: SqlRow, name: str) -> None:
    if row["stopped"] is not None:
        raise BudgetStopped(name, reason=row["stopped"], wait=BUDGET_POLL_INTERVAL)


def read_pause(row: SqlRow) -> datetime | None:
    is_paused = row["stopped"] is not None or row["closed_until"] > row["now"]
    at = row["paused_at"]
    return instant(at) if is_paused and at is not None else None


def encode_usage(usage: Usage) -> str:
    return json.dumps({"full_at": usage.full_at, "buckets": usage.buckets})


def decode_usage(text: str) -> Usage:
    document = json.loads(text)
    return Usage(
        full_at=document.get("full_at", {}),
        buckets={
            name: {int(number): count for number, count in counts.items()}
            for name, counts in document.get("buckets", {}).items()
        },
    )


def shift_usage(budget: Budget, usage: Usage, ahead: int) -> Usage:
    """Convert usage counted by a clock that is `ahead` microseconds of this one."""
    widths = {limit.window: bucket_width(limit) for limit in budget.limits}
    return Usage(
        full_at={name: at - ahead for name, at in usage.full_at.items()},
        buckets={
            name: {
                # an edge within a bucket counts for the later one, which expires later
                -((ahead - number * widths[name]) // widths[name]): count
                for number, count in counts.items()
            }
            for name, counts in usage.buckets.items()
            if name in widths
        },
    )


def max_usage(first: Usage, second: Usage) -> Usage:
    """Return the higher of two counts, for each limit and bucket."""
    full_at = {
        name: max(first.full_at.get(name, 0), second.full_at.get(name, 0))
        for name in {*first.full_at, *second.full_at}
    }
    buckets = {}
    for name in {*first.buckets, *second.buckets}:
        ours, theirs = first.buckets.get(name, {}), second.buckets.get(name, {})
        buckets[name] = {
            number: max(ours.get(number, 0), theirs.get(number, 0))
            for number in {*ours, *theirs}
        }
    return Usage(full_at=full_at, buckets=buckets)


def drop_expired_buckets(budget: Budget, usage: Usage, *, now: int) -> Usage:
    """Remove the buckets that no limit counts any more."""
    return Usage(
        full_at=usage.full_at,
        buckets={
            limit.window: active_buckets(limit, usage.buckets[limit.window], now)
            for limit in budget.limits
            if limit.window in usage.buckets
        },
    )
