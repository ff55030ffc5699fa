"""How many workers there is work for, and how many of them the budgets can feed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.domain.jobs import ImportId

# of a page nobody has been seen to fetch yet
ASSUMED_PAGE_TIME = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWork:
    """The open jobs of a running import, by the database's clock."""

    import_id: ImportId
    dataset: str
    region: str | None
    # counted up to a limit
    due: int
    # since when the first of them is due
    oldest_at: datetime | None
    leased: int
    # between the latest pages of its jobs
    page_gaps: Sequence[timedelta] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a budget allows; a closed one allows nothing for now."""

    budget: str
    # requests per second; infinite without a limit
    rate: float
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What an autoscaler needs to know about a region."""

    region: str | None
    # without those whose budget is closed
    due_jobs: int
    oldest_due: timedelta | None
    leased_jobs: int
    # jobs that can be worked at the same time before workers wait for the budget
    useful_jobs: int
    # budgets that allow fewer than there are open jobs
    limited_by: tuple[str, ...]
    # closed or stopped budgets that open jobs wait for
    closed: tuple[str, ...]


def find_demand(
    work: Sequence[OpenWork], allowances: Mapping[str, Allowance], *, now: datetime
) -> Sequence[Demand]:
    """Return the demand of each region that has open jobs; allowances by dataset."""
    regions = sorted({each.region for each in work}, key=lambda name: name or "")
    return [
        region_demand(
            region, [each for each in work if each.region == region], allowances, now
        )
        for region in regions
    ]


def region_demand(
    region: str | None,
    work: Sequence[OpenWork],
    allowances: Mapping[str, Allowance],
    now: datetime,
) -> Demand:
    open_work = [each for each in work if allowances[each.dataset].is_open]
    oldest = [each.oldest_at for each in open_work if each.oldest_at is not None]
    by_budget: dict[str, list[OpenWork]] = {}
    for each in open_work:
        by_budget.setdefault(allowances[each.dataset].budget, []).append(each)
    useful, limited = 0, []
    for budget, members in by_budget.items():
        wanted = sum(each.due + each.leased for each in members)
        feedable = fed_by(allowances[members[0].dataset].rate, members)
        useful += min(wanted, feedable)
        if feedable < wanted:
            limited.append(budget)
    closed = {allowances[each.dataset].budget for each in work if each not in open_work}
    return Demand(
        region=region,
        due_jobs=sum(each.due for each in open_work),
        oldest_due=max(now - min(oldest), timedelta()) if oldest else None,
        leased_jobs=sum(each.leased for each in open_work),
        useful_jobs=useful,
        limited_by=tuple(sorted(limited)),
        closed=tuple(sorted(closed)),
    )


def fed_by(rate: float, work: Sequence[OpenWork]) -> int:
    """Return how many jobs at a time use up a rate, by Little's law."""
    if math.isinf(rate):
        return sum(each.due + each.leased for each in work)
    gaps = sorted(gap for each in work for gap in each.page_gaps)
    # most pages of a saturated budget wait for it: the fast ones tell what a page takes
    page_time = gaps[len(gaps) // 4] if gaps else ASSUMED_PAGE_TIME
    return max(1, math.ceil(rate * page_time.total_seconds()))
