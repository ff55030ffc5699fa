"""What the database must know, so that a server which forgets breaks no promise.

A note is due before the first token of a memory is handed out, and again before more
tokens than a hundredth of the smallest quota would be unknown to the database. So after
a loss exactly that many are counted on top of the notes, however long ago they were
written; and a quota below a hundred is noted token by token.
"""

from datetime import timedelta

from penstock.domain.budget import (
    Budget,
    Usage,
    bucket_width,
    depth,
)
from penstock.domain.times import MICROSECOND
from penstock.ports import Remembered

NOTES_A_QUOTA = 100
# Clocks that differ by less are taken for one: their difference is never measured twice
# alike, and a count noted under two numbers counts twice.
SAME_CLOCK = timedelta(seconds=10) // MICROSECOND


def is_due(budget: Budget, unnoted: int) -> bool:
    """Say whether tokens may only be handed out once the database knows of them.

    Below zero, it does not even know that this memory exists.
    """
    quotas = [limit for limit in budget.limits if limit.is_quota]
    return unnoted < 0 or (bool(quotas) and unnoted > most_unnoted(budget))


def most_unnoted(budget: Budget) -> int:
    """Return how many tokens may be used without the knowledge of the database."""
    quotas = [limit.requests for limit in budget.limits if limit.is_quota]
    return min(quotas, default=0) // NOTES_A_QUOTA


def clock_ahead(now: int, theirs: int) -> int:
    """Return how far a clock is ahead of another, in steps that do not flicker."""
    return round((now - theirs) / SAME_CLOCK) * SAME_CLOCK


def was_used(remembered: Remembered | None) -> bool:
    """Say whether a token was ever handed out; a budget may be closed before that."""
    if remembered is None:
        return False
    return bool(remembered.usage.full_at or remembered.usage.buckets)


def starting_usage(budget: Budget, remembered: Remembered | None, *, now: int) -> Usage:
    """Return what to assume of a budget whose memory begins now.

    After a loss its buckets are empty, since a whole burst may just have been sent; and
    the quotas count what was noted, a bucket longer for the sake of the clocks, and
    what may have been taken since.
    """
    if remembered is None or not was_used(remembered):
        return Usage()
    buckets = {}
    for limit in budget.limits:
        if limit.is_quota:
            width = bucket_width(limit)
            later = -(-(now - remembered.now + SAME_CLOCK) // width)
            noted = remembered.usage.buckets.get(limit.window, {})
            counted = {number + later: count for number, count in noted.items()}
            counted[now // width] = counted.get(now // width, 0) + most_unnoted(budget)
            buckets[limit.window] = counted
    full_at = {
        limit.window: now + depth(budget, limit)
        for limit in budget.limits
        if not limit.is_quota
    }
    return Usage(full_at=full_at, buckets=buckets)
