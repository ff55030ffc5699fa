"""What the database must record, so that limits hold when Redis loses its data.

Usage is recorded before the first token of an incarnation is granted, and again before
more tokens than a hundredth of the smallest quota would be unrecorded. So after a loss
exactly that many are added to the recorded ones, however old the record is; and a quota
below a hundred is recorded token by token.
"""

from datetime import timedelta

from penstock.domain.budget import Budget, Usage, bucket_depth, bucket_width
from penstock.domain.formats import MICROSECOND
from penstock.ports import BudgetSnapshot

NOTES_PER_QUOTA = 100
# Clocks that differ by less count as equal: two measurements of their difference are
# never the same, and usage recorded in two buckets would count twice.
SAME_CLOCK = timedelta(seconds=10) // MICROSECOND


def is_record_due(budget: Budget, unnoted: int) -> bool:
    """Return whether usage must be recorded before tokens are granted.

    Below zero, the database has no record of this incarnation at all.
    """
    quotas = [limit for limit in budget.limits if limit.is_quota]
    return unnoted < 0 or (bool(quotas) and unnoted > max_unnoted(budget))


def max_unnoted(budget: Budget) -> int:
    """Return how many tokens may be granted without a record in the database."""
    quotas = [limit.requests for limit in budget.limits if limit.is_quota]
    return min(quotas, default=0) // NOTES_PER_QUOTA


def clock_ahead(now: int, other: int) -> int:
    """Return how far a clock is ahead of another, rounded so that it is stable."""
    return round((now - other) / SAME_CLOCK) * SAME_CLOCK


def was_used(snapshot: BudgetSnapshot | None) -> bool:
    """Return whether a token was ever granted; a budget may be closed before that."""
    if snapshot is None:
        return False
    return bool(snapshot.usage.full_at or snapshot.usage.buckets)


def starting_usage(
    budget: Budget, snapshot: BudgetSnapshot | None, *, now: int
) -> Usage:
    """Return the usage with which a new incarnation of a budget starts.

    After a loss its token buckets are empty, since a whole burst may just have been
    sent; and the quotas count the recorded usage, one bucket longer because clocks
    differ, and what may have been taken since.
    """
    if snapshot is None or not was_used(snapshot):
        return Usage()
    buckets = {}
    for limit in budget.limits:
        if limit.is_quota:
            width = bucket_width(limit)
            shift = -(-(now - snapshot.now + SAME_CLOCK) // width)
            recorded = snapshot.usage.buckets.get(limit.window, {})
            counted = {number + shift: count for number, count in recorded.items()}
            counted[now // width] = counted.get(now // width, 0) + max_unnoted(budget)
            buckets[limit.window] = counted
    full_at = {
        limit.window: now + bucket_depth(budget, limit)
        for limit in budget.limits
        if not limit.is_quota
    }
    return Usage(full_at=full_at, buckets=buckets)
