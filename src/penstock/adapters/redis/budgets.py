"""Budgets in Redis, shared by all processes that reach it.

The server decides in one script, by its own clock; threads of one process that ask at
the same time share a call. Its memory may be lost: the server is killed, comes back
with an old copy, fails over to a replica that lags, drops the key. Over any time, the
loss included, no more than rate x time + one burst is sent all the same:

- A memory has a name, its incarnation, which holds that of the server's run. What
  another run has counted is not believed, and a token of another incarnation is not
  confirmed: what was reserved in a lost memory is void.
- The database keeps notes. Without one, a budget was never used and begins with a full
  bucket. With one, it begins with empty buckets and the noted quotas (see `notes`).
- A note is written before the tokens that make it due are handed out. If it cannot be,
  they are given back and `StoreUnavailable` is raised: what the database does not know
  is at most a hundredth of a quota, however long it is down. Budgets without a
  quota go on, since they need the database only to begin.
- Closures and stops are written to the database first. They reach the server even if
  the database is down; an opening does not.

All processes that share a namespace on a server must share the database, too.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from redis import Redis
from typing_extensions import override

from penstock.adapters.redis.client import place_of
from penstock.adapters.redis.combine import Combined
from penstock.adapters.redis.memory import (
    Answered,
    Known,
    Memory,
    Stopped,
    Unknown,
    usage_fields,
)
from penstock.adapters.redis.notes import clock_ahead, is_due, starting_usage
from penstock.adapters.redis.scripts import Scripts
from penstock.domain.budget import (
    LONGEST_REST,
    Budget,
    BudgetState,
    Grant,
    Usage,
    is_timely,
    limits_left,
)
from penstock.errors import (
    BudgetClosed,
    BudgetStopped,
    Misconfigured,
    Snooze,
    StoreUnavailable,
)
from penstock.ports import Budgets, LastingBudgets, Remembered

# what one call may reserve for a process: others stand in the line, too
AT_ONCE = timedelta(milliseconds=100)
MOST_AT_ONCE = 100
# how often a memory may be lost within one call
MOST_LOSSES = 10


class RedisBudgets(Budgets):
    """The client must come from `client.connect`, which never sends a command twice."""

    def __init__(
        self,
        client: Redis,
        lasting: LastingBudgets,
        *,
        namespace: str = "penstock",
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._place = place_of(client)
        self._memory = Memory(Scripts(client, namespace=namespace, clock=clock))
        self._lasting = lasting
        self._lines: dict[Budget, Combined[timedelta, Grant | Snooze]] = {}
        self._lock = threading.Lock()

    @override
    def take(self, budget: Budget, *, longest: timedelta) -> Grant:
        answer = self._line(budget)(longest)
        if isinstance(answer, Snooze):
            raise answer
        return answer

    @override
    def confirm(self, grant: Grant) -> bool:
        known = self._memory.look(grant.budget, "closed_until", "stopped")
        if isinstance(known, Unknown) or known.incarnation != grant.incarnation:
            return False
        stopped = known.fields["stopped"]
        if stopped is not None:
            raise BudgetStopped(grant.budget, reason=stopped, wait=LONGEST_REST)
        left = known.number("closed_until") - known.now
        if left > 0:
            raise BudgetClosed(grant.budget, wait=timedelta(microseconds=left))
        return is_timely(grant, now=known.now)

    @override
    def give_back(self, budget: Budget, grant: Grant) -> None:
        self._memory.give_back(budget, grant)

    @override
    def close(self, budget: str, *, wait: timedelta, reason: str) -> None:
        try:
            self._lasting.close(budget, wait=wait, reason=reason)
        finally:
            self._memory.close(budget, wait=wait, reason=reason)

    @override
    def stop(self, budget: str, *, reason: str) -> None:
        try:
            self._lasting.stop(budget, reason=reason)
        finally:
            self._memory.stop(budget, reason=reason)

    @override
    def open(self, budget: str) -> None:
        self._lasting.open(budget)
        self._memory.open(budget)

    @override
    def state(self, budget: Budget) -> BudgetState:
        said = "taken", "closed_until", "closed_reason", "stopped"
        told = self._memory.look(budget.name, *said, *usage_fields(budget))
        if isinstance(told, Unknown):
            return remembered_state(budget, self._lasting.recall(budget), now=told.now)
        left = told.number("closed_until") - told.now
        return BudgetState(
            budget=budget,
            limits=limits_left(budget, told.usage(budget), now=told.now),
            taken=told.number("taken"),
            closed_for=timedelta(microseconds=left) if left > 0 else None,
            closed_reason=told.fields["closed_reason"] if left > 0 else None,
            stopped=told.fields["stopped"],
        )

    def _line(self, budget: Budget) -> Combined[timedelta, Grant | Snooze]:
        with self._lock:
            if budget not in self._lines:

                def take_all(longest: Sequence[timedelta]) -> Sequence[Grant | Snooze]:
                    return self._take_all(budget, longest)

                self._lines[budget] = Combined(take_all, most=most_at_once(budget))
            return self._lines[budget]

    def _take_all(
        self, budget: Budget, longest: Sequence[timedelta]
    ) -> Sequence[Grant | Snooze]:
        for _ in range(MOST_LOSSES):
            told = self._memory.take(budget, longest)
            match told:
                case Unknown():
                    self._begin(budget, told)
                case Stopped():
                    return [
                        BudgetStopped(
                            budget.name, reason=told.reason, wait=LONGEST_REST
                        )
                        for _ in longest
                    ]
                case Answered():
                    if self._is_noted(budget, told):
                        return told.answers
        raise StoreUnavailable(
            f"{self._place}: it forgets budget {budget.name!r} again and again; "
            "check that nobody flushes it, and that maxmemory-policy keeps keys in use"
        )

    def _begin(self, budget: Budget, lost: Unknown) -> None:
        remembered = self._lasting.recall(budget)
        usage = starting_usage(budget, remembered, now=lost.now)
        # who comes second has to look at what the first one made
        self._memory.create(budget, lost, usage, remembered)

    def _is_noted(self, budget: Budget, told: Answered) -> bool:
        """Say whether the tokens may be handed out; False if they are void."""
        if not told.grants or not is_due(budget, told.unnoted):
            return True
        try:
            return self._note(budget, told.incarnation)
        except (StoreUnavailable, Misconfigured):
            self._return(budget, told.grants)
            raise

    def _note(self, budget: Budget, incarnation: str) -> bool:
        known = self._memory.look(budget.name, "reserved", *usage_fields(budget))
        if not isinstance(known, Known) or known.incarnation != incarnation:
            return False
        remembered = self._lasting.recall(budget)
        if remembered is None:
            # makes the place, which brings its clock
            self._lasting.remember(budget, Usage(), ahead=0)
            remembered = self._lasting.recall(budget)
        ahead = clock_ahead(known.now, remembered.now) if remembered else 0
        self._lasting.remember(budget, known.usage(budget), ahead=ahead)
        return self._memory.noted(budget.name, known)

    def _return(self, budget: Budget, grants: Sequence[Grant]) -> None:
        # a smooth limit takes back only the last one
        for grant in reversed(grants):
            # a token that cannot be returned is only lost
            with suppress(StoreUnavailable, Misconfigured):
                self._memory.give_back(budget, grant)


def most_at_once(budget: Budget) -> int:
    """Return how many tokens one call may reserve."""
    fitting = budget.fastest * AT_ONCE.total_seconds()
    return max(int(min(fitting, MOST_AT_ONCE)), 1)


def remembered_state(
    budget: Budget, remembered: Remembered | None, *, now: int
) -> BudgetState:
    """Return the state with which a memory would begin."""
    usage = starting_usage(budget, remembered, now=now)
    return BudgetState(
        budget=budget,
        limits=limits_left(budget, usage, now=now),
        taken=0,
        closed_for=remembered.closed_for if remembered else None,
        closed_reason=remembered.closed_reason if remembered else None,
        stopped=remembered.stopped if remembered else None,
    )
