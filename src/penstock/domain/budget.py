"""The request allowance of one provider, decided in whole microseconds.

Limits per second or minute are smooth: requests are spaced, and `burst` of them may
come at once (the generic cell rate algorithm; its one number per limit is the time at
which the bucket would be full again). Limits per hour or day are quotas: a maximum in
any such period, counted in a hundred buckets, so that a day's allowance can be used as
fast as the other limits allow. A reservation takes the earliest slot that all limits
allow, and returns how long to wait for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from penstock.domain.formats import MICROSECOND

MIN_QUOTA_PERIOD = timedelta(hours=1)
QUOTA_BUCKETS = 100

# a request may arrive this much later than its slot; the bucket is smaller by as much,
# so that late requests which bunch up still fit the declared burst
MAX_LATENESS = timedelta(milliseconds=100)
# the part of it that may pass before the request is sent; the rest is for the network
MAX_SEND_DELAY = MAX_LATENESS / 2

# no store keeps a reservation further ahead than this: a lease has to last that long
MAX_RESERVATION_AHEAD = timedelta(hours=1)

# a longer Retry-After is cut to this
MAX_CLOSURE = timedelta(hours=24)
# how often waiting work checks whether a budget was opened
BUDGET_POLL_INTERVAL = timedelta(seconds=30)
# for a 429 without Retry-After
MIN_CLOSURE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A number of requests in a period."""

    requests: int
    period: timedelta

    @property
    def is_quota(self) -> bool:
        return self.period >= MIN_QUOTA_PERIOD

    @property
    def per_second(self) -> float:
        return self.requests / self.period.total_seconds()

    @property
    def window(self) -> str:
        """The name under which its usage is stored."""
        return f"{self.period // timedelta(seconds=1)}s"

    def __str__(self) -> str:
        names = {1: "s", 60: "min", 3600: "h", 86400: "day"}
        seconds = int(self.period.total_seconds())
        return f"{self.requests}/{names.get(seconds, f'{seconds}s')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one upstream API or key, shared by all sources that name it."""

    name: str
    limits: tuple[Limit, ...]
    burst: int = 1
    stop_on: frozenset[int] = frozenset({401, 403})

    @property
    def per_second(self) -> float:
        """The rate that can be sustained."""
        return min((limit.per_second for limit in self.limits), default=float("inf"))

    @property
    def pacing_rate(self) -> float:
        """The rate at which requests are spaced while no quota is used up."""
        smooth = [limit.per_second for limit in self.limits if not limit.is_quota]
        return min(smooth, default=self.per_second)

    def duration(self, requests: int) -> timedelta:
        """Return the minimum time that a number of requests takes."""
        longest = 0.0
        for limit in self.limits:
            free = limit.requests if limit.is_quota else self.burst
            longest = max(longest, max(requests - free, 0) / limit.per_second)
        return timedelta(seconds=longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What has been reserved of one budget; the same in every store."""

    # keyed by period alone, so that a changed rate continues from what was used
    # smooth limits: microseconds at which the bucket is full again
    full_at: Mapping[str, int] = field(default_factory=dict)
    # quotas: bucket number -> requests
    buckets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A reserved token: send after `wait`, or return it."""

    budget: str
    # microseconds of the limiter's clock
    slot: int
    wait: timedelta
    # `full_at` after it, so that only the last reservation can be returned
    full_at: Mapping[str, int]
    # which state of the store counted it, where a store may lose its state
    incarnation: str = ""


def reserve(
    budget: Budget, usage: Usage, *, now: int, not_before: int = 0
) -> tuple[Usage, Grant]:
    """Find the earliest slot that all limits allow, and take it."""
    slot = max(now, not_before)
    # one pass is enough: where a quota moves the slot, smooth limits still allow it,
    # since they only ever allow more later
    for limit in budget.limits:
        slot = max(slot, earliest_slot(budget, limit, usage, slot))
    full_at, buckets = dict(usage.full_at), dict(usage.buckets)
    for limit in budget.limits:
        if limit.is_quota:
            # for a slot in the future, buckets that count now must stay
            counted = active_buckets(limit, usage.buckets.get(limit.window, {}), now)
            number = slot // bucket_width(limit)
            counted[number] = counted.get(number, 0) + 1
            buckets[limit.window] = counted
        else:
            full = max(full_at.get(limit.window, 0), slot)
            full_at[limit.window] = full + request_interval(limit)
    taken = Usage(full_at=full_at, buckets=buckets)
    wait = timedelta(microseconds=slot - now)
    return taken, Grant(budget=budget.name, slot=slot, wait=wait, full_at=full_at)


def drop_future_usage(budget: Budget, usage: Usage, *, now: int) -> Usage:
    """Drop reservations further ahead than any store keeps: the clock was set back.

    Otherwise no request would be sent until the clock has caught up.
    """
    latest = now + MAX_RESERVATION_AHEAD // MICROSECOND
    full_at = {
        limit.window: at
        for limit in budget.limits
        if (at := usage.full_at.get(limit.window)) is not None
        and at <= latest + bucket_depth(budget, limit)
    }
    return replace(usage, full_at=full_at)


def earliest_slot(budget: Budget, limit: Limit, usage: Usage, slot: int) -> int:
    """Return the first instant at or after `slot` that one limit allows."""
    if limit.is_quota:
        counted = active_buckets(limit, usage.buckets.get(limit.window, {}), slot)
        room = limit.requests - sum(counted.values())
        for number in sorted(counted):
            if room > 0:
                break
            room += counted[number]
            slot = (number + 1) * bucket_width(limit) + limit.period // MICROSECOND
        return slot
    after = usage.full_at.get(limit.window, 0) + request_interval(limit)
    return after - bucket_depth(budget, limit)


def request_interval(limit: Limit) -> int:
    """Return the time between two requests, rounded up to whole microseconds."""
    return -(-(limit.period // MICROSECOND) // limit.requests)


def bucket_depth(budget: Budget, limit: Limit) -> int:
    """Return the bucket's depth, less the allowance for late requests."""
    one = request_interval(limit)
    return max(one, budget.burst * one - MAX_LATENESS // MICROSECOND)


def bucket_width(limit: Limit) -> int:
    return limit.period // MICROSECOND // QUOTA_BUCKETS


def active_buckets(
    limit: Limit, counted: Mapping[int, int], slot: int
) -> dict[int, int]:
    """Return the buckets that overlap the period before `slot`."""
    oldest = (slot - limit.period // MICROSECOND) // bucket_width(limit)
    return {number: count for number, count in counted.items() if number >= oldest}


def return_grant(budget: Budget, usage: Usage, grant: Grant) -> Usage:
    """Return an unused token, unless there is a later reservation.

    A slot in the middle of a queue stays unused: moving a later request into it would
    bunch it with one that already has its time.
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
            full_at[limit.window] = full_at[limit.window] - request_interval(limit)
    return Usage(full_at=full_at, buckets=buckets)


def is_timely(grant: Grant, *, now: int) -> bool:
    """Return whether a request sent now still fits its slot."""
    return now - grant.slot <= MAX_SEND_DELAY // MICROSECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    limit: Limit
    # requests that could be sent at once
    remaining: int
    # until the next one could be sent
    wait: timedelta = timedelta()
    # since the last request that it allowed, if there is a wait
    waited: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """The state of a budget, as shown to operators."""

    budget: Budget
    limits: tuple[LimitState, ...]
    taken: int
    closed_for: timedelta | None = None
    closed_reason: str | None = None
    stopped: str | None = None
    # since when it is closed or stopped, by the database's clock; none: unknown
    paused_at: datetime | None = None


def remaining_requests(budget: Budget, usage: Usage, limit: Limit, *, now: int) -> int:
    """Return how many tokens one limit would grant without waiting."""
    if limit.is_quota:
        counted = active_buckets(limit, usage.buckets.get(limit.window, {}), now)
        return max(limit.requests - sum(counted.values()), 0)
    full = max(usage.full_at.get(limit.window, 0), now)
    return max(
        (bucket_depth(budget, limit) - (full - now)) // request_interval(limit), 0
    )


def limit_states(budget: Budget, usage: Usage, *, now: int) -> tuple[LimitState, ...]:
    """Return for each limit how many tokens it would grant without waiting."""
    current = drop_future_usage(budget, usage, now=now)
    return tuple(
        LimitState(
            limit=limit,
            remaining=remaining_requests(budget, current, limit, now=now),
            wait=timedelta(
                microseconds=max(earliest_slot(budget, limit, current, now) - now, 0)
            ),
            waited=timedelta(
                microseconds=max(now - last_slot(budget, limit, current, now), 0)
            ),
        )
        for limit in budget.limits
    )


def last_slot(budget: Budget, limit: Limit, usage: Usage, now: int) -> int:
    """Return when a limit last allowed a request; for a quota, within a bucket."""
    if limit.is_quota:
        counted = active_buckets(limit, usage.buckets.get(limit.window, {}), now)
        used = [number for number, count in counted.items() if count]
        return max(used) * bucket_width(limit) if used else now
    return earliest_slot(budget, limit, usage, now) - request_interval(limit)


def closure_duration(retry_after: timedelta | None) -> timedelta:
    """Return how long a throttled budget stays closed."""
    if retry_after is None:
        return MIN_CLOSURE
    return min(max(retry_after, MIN_CLOSURE), MAX_CLOSURE)


def unlimited_budget(name: str) -> Budget:
    """Return the budget of a source that names none: it can still be closed."""
    return replace(UNLIMITED, name=name)


UNLIMITED = Budget(name="unlimited", limits=())
