"""The request allowance of one provider, decided in whole microseconds.

Limits per second or minute are smooth: requests are spaced, and `burst` of them may
come at once (the generic cell rate algorithm; its one number per limit is the time at
which the bucket would be full again). Limits per hour or day are quotas: at most so
many in any such period, counted in a hundred buckets, so that a day's allowance can be
used as fast as the other limits allow. A reservation takes its place in all limits at
once, at the earliest instant that suits them all, and says how long to wait for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from penstock.domain.times import MICROSECOND

QUOTA_FROM = timedelta(hours=1)
QUOTA_BUCKETS = 100

# a request may arrive this much later than its slot; the bucket is made smaller by it,
# so that late requests which bunch up still fit the declared burst
LATENESS = timedelta(milliseconds=100)
# what of it may pass before the request leaves; the rest is for its way
LATEST_USE = LATENESS / 2

# a store keeps no reservation further ahead than this: a lease has to hold it
MOST_AHEAD = timedelta(hours=1)

# a provider that asks for more than this is not believed
LONGEST_CLOSURE = timedelta(hours=24)
# how long work rests at most before it looks again whether a budget was opened
LONGEST_REST = timedelta(seconds=30)
# what a 429 without Retry-After means
SHORTEST_CLOSURE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """So many requests in a period."""

    requests: int
    period: timedelta

    @property
    def is_quota(self) -> bool:
        return self.period >= QUOTA_FROM

    @property
    def per_second(self) -> float:
        return self.requests / self.period.total_seconds()

    @property
    def window(self) -> str:
        """The name under which its use is kept."""
        return f"{self.period // timedelta(seconds=1)}s"

    def __str__(self) -> str:
        names = {1: "s", 60: "min", 3600: "h", 86400: "day"}
        seconds = int(self.period.total_seconds())
        return f"{self.requests}/{names.get(seconds, f'{seconds}s')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One upstream API or key, shared by everything that names it."""

    name: str
    limits: tuple[Limit, ...]
    burst: int = 1
    stop_on: frozenset[int] = frozenset({401, 403})

    @property
    def per_second(self) -> float:
        """The rate that can be kept up for ever."""
        return min((limit.per_second for limit in self.limits), default=float("inf"))

    @property
    def fastest(self) -> float:
        """The rate at which requests are spaced; a quota only ends it."""
        smooth = [each.per_second for each in self.limits if not each.is_quota]
        return min(smooth, default=self.per_second)

    def duration(self, requests: int) -> timedelta:
        """Return how long so many requests take at least."""
        longest = 0.0
        for limit in self.limits:
            free = limit.requests if limit.is_quota else self.burst
            longest = max(longest, max(requests - free, 0) / limit.per_second)
        return timedelta(seconds=longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What has been reserved of one budget; the same shape in every store."""

    # kept by period alone, so that a changed rate goes on from what was used
    # smooth limits: microseconds at which the bucket is full again
    full_at: Mapping[str, int] = field(default_factory=dict)
    # quotas: bucket number -> requests
    buckets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A reserved token: send after `wait`, or give it back."""

    budget: str
    # microseconds of the limiter's clock
    slot: int
    wait: timedelta
    # what `full_at` became, so that only the last reservation is given back
    full_at: Mapping[str, int]
    # which memory counted it, in a store that may lose its memory
    incarnation: str = ""


def reserve(
    budget: Budget, usage: Usage, *, now: int, not_before: int = 0
) -> tuple[Usage, Grant]:
    """Find the earliest slot that all limits allow, and take it."""
    slot = max(now, not_before)
    # a quota may push the slot into a time where it pushes no further: one more look
    # at the smooth limits is not needed, since they only ever allow more later
    for limit in budget.limits:
        slot = max(slot, earliest(budget, limit, usage, slot))
    full_at, buckets = dict(usage.full_at), dict(usage.buckets)
    for limit in budget.limits:
        if limit.is_quota:
            # what counts now must not be forgotten for a slot that lies ahead
            counted = living(limit, usage.buckets.get(limit.window, {}), now)
            number = slot // bucket_width(limit)
            counted[number] = counted.get(number, 0) + 1
            buckets[limit.window] = counted
        else:
            full = max(full_at.get(limit.window, 0), slot)
            full_at[limit.window] = full + interval(limit)
    taken = Usage(full_at=full_at, buckets=buckets)
    wait = timedelta(microseconds=slot - now)
    return taken, Grant(budget=budget.name, slot=slot, wait=wait, full_at=full_at)


def without_future(budget: Budget, usage: Usage, *, now: int) -> Usage:
    """Forget what lies further ahead than any store keeps: the clock was set back.

    Otherwise nobody would send until it has caught up.
    """
    most = now + MOST_AHEAD // MICROSECOND
    full_at = {
        limit.window: at
        for limit in budget.limits
        if (at := usage.full_at.get(limit.window)) is not None
        and at <= most + depth(budget, limit)
    }
    return replace(usage, full_at=full_at)


def earliest(budget: Budget, limit: Limit, usage: Usage, slot: int) -> int:
    """Return the first instant at or after `slot` that one limit allows."""
    if limit.is_quota:
        counted = living(limit, usage.buckets.get(limit.window, {}), slot)
        room = limit.requests - sum(counted.values())
        for number in sorted(counted):
            if room > 0:
                break
            room += counted[number]
            slot = (number + 1) * bucket_width(limit) + limit.period // MICROSECOND
        return slot
    after = usage.full_at.get(limit.window, 0) + interval(limit)
    return after - depth(budget, limit)


def interval(limit: Limit) -> int:
    """Return the time between two requests, rounded up to whole microseconds."""
    return -(-(limit.period // MICROSECOND) // limit.requests)


def depth(budget: Budget, limit: Limit) -> int:
    """Return the bucket's depth, less what late requests may add to it."""
    one = interval(limit)
    return max(one, budget.burst * one - LATENESS // MICROSECOND)


def bucket_width(limit: Limit) -> int:
    return limit.period // MICROSECOND // QUOTA_BUCKETS


def living(limit: Limit, counted: Mapping[int, int], slot: int) -> dict[int, int]:
    """Keep the buckets that touch the period before `slot`."""
    oldest = (slot - limit.period // MICROSECOND) // bucket_width(limit)
    return {number: count for number, count in counted.items() if number >= oldest}


def give_back(budget: Budget, usage: Usage, grant: Grant) -> Usage:
    """Return an unused token, as far as nobody has reserved behind it.

    A slot in the middle of a queue stays empty: moving a later request into it would
    bunch it with one that already knows its time.
    """
    full_at, buckets = dict(usage.full_at), dict(usage.buckets)
    for limit in budget.limits:
        if limit.is_quota:
            counted = dict(buckets.get(limit.window, {}))
            number = grant.slot // bucket_width(limit)
            if counted.get(number):
                counted[number] -= 1
                buckets[limit.window] = counted
        elif full_at.get(limit.window, 0) == grant.full_at.get(limit.window):
            full_at[limit.window] = full_at[limit.window] - interval(limit)
    return Usage(full_at=full_at, buckets=buckets)


def is_timely(grant: Grant, *, now: int) -> bool:
    """Say whether a request sent now still fits the place it was given."""
    return now - grant.slot <= LATEST_USE // MICROSECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    limit: Limit
    # requests that could be sent at once
    remaining: int
    # until the next one could be sent
    wait: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """What an operator sees of a budget."""

    budget: Budget
    limits: tuple[LimitState, ...]
    taken: int
    closed_for: timedelta | None = None
    closed_reason: str | None = None
    stopped: str | None = None


def remaining(budget: Budget, usage: Usage, limit: Limit, *, now: int) -> int:
    """Count the tokens that one limit would grant without waiting."""
    if limit.is_quota:
        counted = living(limit, usage.buckets.get(limit.window, {}), now)
        return max(limit.requests - sum(counted.values()), 0)
    full = max(usage.full_at.get(limit.window, 0), now)
    return max((depth(budget, limit) - (full - now)) // interval(limit), 0)


def limits_left(budget: Budget, usage: Usage, *, now: int) -> tuple[LimitState, ...]:
    """Count for each limit the tokens that it would grant without waiting."""
    past = without_future(budget, usage, now=now)
    return tuple(
        LimitState(
            limit=limit,
            remaining=remaining(budget, past, limit, now=now),
            wait=timedelta(
                microseconds=max(earliest(budget, limit, past, now) - now, 0)
            ),
        )
        for limit in budget.limits
    )


def closure(asked: timedelta | None) -> timedelta:
    """Return how long a throttled budget stays closed."""
    if asked is None:
        return SHORTEST_CLOSURE
    return min(max(asked, SHORTEST_CLOSURE), LONGEST_CLOSURE)


def without_limit(name: str) -> Budget:
    """Return the budget of a source that names none: it can still be closed."""
    return replace(UNLIMITED, name=name)


UNLIMITED = Budget(name="unlimited", limits=())
