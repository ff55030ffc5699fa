"""Write what was used of a budget into one column, and compare two such counts."""

import json

from penstock.domain.budget import Budget, Usage, bucket_width, living


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


def shifted(budget: Budget, usage: Usage, ahead: int) -> Usage:
    """Return what was counted by a clock ahead of ours, as our clock has it."""
    widths = {each.window: bucket_width(each) for each in budget.limits}
    return Usage(
        full_at={name: at - ahead for name, at in usage.full_at.items()},
        buckets={
            name: {
                # an edge within a bucket counts for the later one: it is kept longer
                -((ahead - number * widths[name]) // widths[name]): count
                for number, count in counted.items()
            }
            for name, counted in usage.buckets.items()
            if name in widths
        },
    )


def higher(one: Usage, other: Usage) -> Usage:
    """Return the higher count of two, limit by limit and bucket by bucket."""
    full_at = {
        name: max(one.full_at.get(name, 0), other.full_at.get(name, 0))
        for name in {*one.full_at, *other.full_at}
    }
    buckets = {}
    for name in {*one.buckets, *other.buckets}:
        mine, theirs = one.buckets.get(name, {}), other.buckets.get(name, {})
        buckets[name] = {
            number: max(mine.get(number, 0), theirs.get(number, 0))
            for number in {*mine, *theirs}
        }
    return Usage(full_at=full_at, buckets=buckets)


def living_usage(budget: Budget, usage: Usage, *, now: int) -> Usage:
    """Forget the buckets that no limit looks at any more."""
    return Usage(
        full_at=usage.full_at,
        buckets={
            limit.window: living(limit, usage.buckets[limit.window], now)
            for limit in budget.limits
            if limit.window in usage.buckets
        },
    )
