"""How many workers are useful."""

import math
from datetime import timedelta

from penstock.domain.jobs import ImportId
from penstock.domain.scaling import Allowance, Demand, OpenWork, find_demand
from tests.support.builders import NOON, SECOND


def work(dataset="poi", *, due=100, leased=0, region=None, gaps=()) -> OpenWork:
    return OpenWork(
        import_id=ImportId(1),
        dataset=dataset,
        region=region,
        due=due,
        oldest_at=NOON,
        leased=leased,
        page_gaps=gaps,
    )


def allowance(budget="b", *, rate=10.0, is_open=True) -> Allowance:
    return Allowance(budget=budget, rate=rate, is_open=is_open)


def demand(*open_work: OpenWork, **allowances: Allowance) -> list[Demand]:
    return [*find_demand(open_work, allowances, now=NOON + SECOND)]


def test_without_open_jobs_nobody_is_needed():
    assert demand() == []


def test_no_more_workers_are_useful_than_the_budget_feeds():
    half = timedelta(seconds=0.5)

    (found,) = demand(work(leased=3, gaps=[half] * 8), poi=allowance(rate=10))

    assert (found.useful_jobs, found.limited_by) == (5, ("b",))
    assert (found.due_jobs, found.leased_jobs) == (100, 3)
    assert found.oldest_due == SECOND


def test_pages_that_waited_for_the_budget_do_not_ask_for_more_workers():
    gaps = [SECOND, *[10 * SECOND] * 3]

    (found,) = demand(work(gaps=gaps[::-1]), poi=allowance(rate=1))

    assert found.useful_jobs == 10
    (fast,) = demand(work(gaps=[*gaps, SECOND]), poi=allowance(rate=1))
    assert fast.useful_jobs == 1


def test_datasets_that_share_a_budget_share_its_workers():
    (found,) = demand(work(), work("regions"), poi=allowance(), regions=allowance())

    assert found.useful_jobs == 10


def test_each_open_job_of_files_is_useful():
    files = allowance("dataset:shops", rate=math.inf)

    (found,) = demand(work("shops", due=7, leased=2), shops=files)

    assert (found.useful_jobs, found.limited_by) == (9, ())


def test_jobs_of_a_closed_budget_need_nobody():
    (found,) = demand(work(), poi=allowance(is_open=False))

    assert (found.due_jobs, found.useful_jobs, found.oldest_due) == (0, 0, None)
    assert found.closed == ("b",)


def test_regions_have_demands_of_their_own():
    found = demand(work(region="us", due=2), work(region="eu", due=1), poi=allowance())

    assert [(each.region, each.due_jobs) for each in found] == [("eu", 1), ("us", 2)]
