"""Budgets in Redis, shared by all processes that reach it.

The server decides in one script, by its own clock; concurrent threads of one process
share a call. The state may be lost: the server is killed, restarts with an old copy,
fails over to a lagging replica, evicts the key. Over any time, the loss included, no
more than rate x time + one burst is sent all the same:

- The state has an incarnation id, which contains the id of the server run. Counts of
  another run are ignored, and a token of another incarnation is not confirmed: what
  was reserved in a lost state is void.
- The database records usage. Without a record, a budget was never used and starts with
  a full bucket. With one, it starts with empty buckets and the recorded quotas (see
  `budget_recovery`).
- Usage is recorded before the tokens that make it due are granted. If that fails, they
  are given back and `StoreUnavailable` is raised: at most a hundredth of a quota is
  unrecorded, however long the database is down. Budgets without a quota continue,
  since they need the database only to start.
- Closures and stops are written to the database first. They are written to Redis even
  if the database is down; an opening is not.

All processes that share a namespace on a server must share the database, too.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from redis import Redis
from typing_extensions import override

from penstock.adapters.redis.budget_recovery import (
    clock_ahead,
    is_record_due,
    starting_usage,
)
from penstock.adapters.redis.budget_state import (
    BudgetReply,
    BudgetStateReader,
    KnownBudget,
    StoppedBudget,
    UnknownBudget,
    usage_fields,
)
from penstock.adapters.redis.call_batcher import CallBatcher
from penstock.adapters.redis.client import server_url
from penstock.adapters.redis.lua_scripts import LuaScripts
from penstock.domain.budget import (
    BUDGET_POLL_INTERVAL,
    Budget,
    BudgetState,
    Grant,
    Usage,
    is_timely,
    limit_states,
)
from penstock.errors import (
    BudgetClosed,
    BudgetStopped,
    Misconfigured,
    Snooze,
    StoreUnavailable,
)
from penstock.ports import Budgets, BudgetSnapshot, DurableBudgets

# what one call may reserve for a process: others need tokens, too
BATCH_WINDOW = timedelta(milliseconds=100)
MAX_BATCH = 100
# how often the state may be lost within one call
MAX_LOSSES = 10


class RedisBudgets(Budgets):
    """The client must come from `client.connect`, which never sends a command twice."""

    def __init__(
        self,
        client: Redis,
        lasting: DurableBudgets,
        *,
        namespace: str = "penstock",
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._server = server_url(client)
        self._state = BudgetStateReader(
            LuaScripts(client, namespace=namespace, clock=clock)
        )
        self._durable = lasting
        self._batchers: dict[Budget, CallBatcher[timedelta, Grant | Snooze]] = {}
        self._lock = threading.Lock()

    @override
    def take(self, budget: Budget, *, longest: timedelta) -> Grant:
        result = self._batcher(budget)(longest)
        if isinstance(result, Snooze):
            raise result
        return result

    @override
    def confirm(self, grant: Grant) -> bool:
        known = self._state.read(grant.budget, "closed_until", "stopped")
        if isinstance(known, UnknownBudget) or known.incarnation != grant.incarnation:
            return False
        stopped = known.fields["stopped"]
        if stopped is not None:
            raise BudgetStopped(grant.budget, reason=stopped, wait=BUDGET_POLL_INTERVAL)
        left = known.number("closed_until") - known.now
        if left > 0:
            raise BudgetClosed(grant.budget, wait=timedelta(microseconds=left))
        return is_timely(grant, now=known.now)

    @override
    def give_back(self, budget: Budget, grant: Grant) -> None:
        self._state.give_back(budget, grant)

    @override
    def close(self, budget: str, *, wait: timedelta, reason: str) -> None:
        try:
            self._durable.close(budget, wait=wait, reason=reason)
        finally:
            self._state.close(budget, wait=wait, reason=reason)

    @override
    def stop(self, budget: str, *, reason: str) -> None:
        try:
            self._durable.stop(budget, reason=reason)
        finally:
            self._state.stop(budget, reason=reason)

    @override
    def open(self, budget: str) -> None:
        self._durable.open(budget)
        self._state.open(budget)

    @override
    def state(self, budget: Budget) -> BudgetState:
        fields = "taken", "closed_until", "closed_reason", "stopped"
        reply = self._state.read(budget.name, *fields, *usage_fields(budget))
        if isinstance(reply, UnknownBudget):
            return recovered_state(budget, self._durable.recall(budget), now=reply.now)
        left = reply.number("closed_until") - reply.now
        is_paused = left > 0 or reply.fields["stopped"] is not None
        return BudgetState(
            budget=budget,
            limits=limit_states(budget, reply.usage(budget), now=reply.now),
            taken=reply.number("taken"),
            closed_for=timedelta(microseconds=left) if left > 0 else None,
            closed_reason=reply.fields["closed_reason"] if left > 0 else None,
            stopped=reply.fields["stopped"],
            paused_at=self._paused_at(budget) if is_paused else None,
        )

    def _paused_at(self, budget: Budget) -> datetime | None:
        # what is shown of a budget must not depend on the database
        with suppress(StoreUnavailable):
            snapshot = self._durable.recall(budget)
            return None if snapshot is None else snapshot.paused_at
        return None

    def _batcher(self, budget: Budget) -> CallBatcher[timedelta, Grant | Snooze]:
        with self._lock:
            if budget not in self._batchers:

                def take_all(longest: Sequence[timedelta]) -> Sequence[Grant | Snooze]:
                    return self._take_all(budget, longest)

                self._batchers[budget] = CallBatcher(
                    take_all, most=max_batch_size(budget)
                )
            return self._batchers[budget]

    def _take_all(
        self, budget: Budget, longest: Sequence[timedelta]
    ) -> Sequence[Grant | Snooze]:
        for _ in range(MAX_LOSSES):
            reply = self._state.take(budget, longest)
            match reply:
                case UnknownBudget():
                    self._create_state(budget, reply)
                case StoppedBudget():
                    return [
                        BudgetStopped(
                            budget.name, reason=reply.reason, wait=BUDGET_POLL_INTERVAL
                        )
                        for _ in longest
                    ]
                case BudgetReply():
                    if self._ensure_recorded(budget, reply):
                        return reply.results
        raise StoreUnavailable(
            f"{self._server}: it repeatedly loses budget {budget.name!r}; "
            "check that it is not flushed, and that maxmemory-policy keeps keys in use"
        )

    def _create_state(self, budget: Budget, lost: UnknownBudget) -> None:
        snapshot = self._durable.recall(budget)
        usage = starting_usage(budget, snapshot, now=lost.now)
        # if another process was faster, the next attempt reads its state
        self._state.create(budget, lost, usage, snapshot)

    def _ensure_recorded(self, budget: Budget, reply: BudgetReply) -> bool:
        """Record usage if due; return False if the tokens are void."""
        if not reply.grants or not is_record_due(budget, reply.unnoted):
            return True
        try:
            return self._record_usage(budget, reply.incarnation)
        except (StoreUnavailable, Misconfigured):
            self._give_back_all(budget, reply.grants)
            raise

    def _record_usage(self, budget: Budget, incarnation: str) -> bool:
        known = self._state.read(budget.name, "reserved", *usage_fields(budget))
        if not isinstance(known, KnownBudget) or known.incarnation != incarnation:
            return False
        snapshot = self._durable.recall(budget)
        if snapshot is None:
            # creates the row, which has the time of the database
            self._durable.remember(budget, Usage(), ahead=0)
            snapshot = self._durable.recall(budget)
        ahead = clock_ahead(known.now, snapshot.now) if snapshot else 0
        self._durable.remember(budget, known.usage(budget), ahead=ahead)
        return self._state.note_recorded(budget.name, known)

    def _give_back_all(self, budget: Budget, grants: Sequence[Grant]) -> None:
        # a smooth limit can only take back the last token
        for grant in reversed(grants):
            # a token that cannot be returned is only wasted
            with suppress(StoreUnavailable, Misconfigured):
                self._state.give_back(budget, grant)


def max_batch_size(budget: Budget) -> int:
    """Return how many tokens one call may reserve."""
    fitting = budget.pacing_rate * BATCH_WINDOW.total_seconds()
    return max(int(min(fitting, MAX_BATCH)), 1)


def recovered_state(
    budget: Budget, snapshot: BudgetSnapshot | None, *, now: int
) -> BudgetState:
    """Return the state with which a new incarnation would start."""
    usage = starting_usage(budget, snapshot, now=now)
    return BudgetState(
        budget=budget,
        limits=limit_states(budget, usage, now=now),
        taken=0,
        closed_for=snapshot.closed_for if snapshot else None,
        closed_reason=snapshot.closed_reason if snapshot else None,
        stopped=snapshot.stopped if snapshot else None,
        paused_at=snapshot.paused_at if snapshot else None,
    )
