"""The timeline of an import: claims as bars, however many there are."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from penstock.domain.jobs import (
    Claim,
    ClaimOutcome,
    Fence,
    JobId,
    WorkerId,
)
from penstock.entrypoints.dashboard.pages.timeline import (
    MAX_LANES,
    MAX_TICKS,
    Axis,
    choose_step,
    draw_bundles,
    draw_claims,
    draw_ticks,
)
from penstock.ports.claims import ClaimBundle
from tests.support.builders import ANN, BEN, HOUR, MINUTE, NOON, SECOND

AXIS = Axis(NOON, NOON + 100 * SECOND)
NOW = AXIS.ended_at


def claimed(
    since: float,
    until: float | None,
    outcome: ClaimOutcome | None = ClaimOutcome.DONE,
    *,
    owner: WorkerId = ANN,
) -> Claim:
    """Return a claim from one second to another."""
    return Claim(
        job=JobId(7),
        fence=Fence(1),
        shard_key="country:DE",
        owner=owner,
        claimed_at=NOON + since * SECOND,
        ended_at=None if until is None else NOON + until * SECOND,
        outcome=outcome,
        code=None,
    )


def test_a_bar_lasts_as_long_as_its_claim():
    (row,) = draw_claims([claimed(10, 35), claimed(90, None, None)], AXIS, NOW)

    assert [(bar.state, bar.x, bar.width) for bar in row.bars] == [
        ("done", 10, 25),
        ("running", 90, 10),
    ]
    assert row.busy == 35 * SECOND
    assert row.bars[0].title == "country:DE: done, 25 s".replace("25 s", "25\xa0s")


def test_claims_of_a_worker_that_overlap_are_in_lanes():
    (row,) = draw_claims([claimed(0, 20), claimed(10, 30), claimed(20, 40)], AXIS, NOW)

    assert len({bar.y for bar in row.bars}) == 2
    assert row.bars[0].y == row.bars[2].y


def test_lanes_are_bounded():
    (few, many) = (
        draw_claims([claimed(0, 50)] * count, AXIS, NOW)[0] for count in (MAX_LANES, 99)
    )

    assert few.height == many.height


def test_each_worker_has_a_row():
    rows = draw_claims([claimed(0, 1), claimed(2, 3, owner=BEN)], AXIS, NOW)

    assert [row.owner for row in rows] == [ANN, BEN]


@pytest.mark.parametrize("until", [5, -5], ids=["at once", "by a clock put back"])
def test_a_claim_of_a_moment_is_still_seen(until):
    (row,) = draw_claims([claimed(5, until)], AXIS, NOW)

    assert row.bars[0].width > 0
    assert row.busy == timedelta(0)


def test_a_claim_at_the_end_is_seen_too():
    (row,) = draw_claims([claimed(100, None, None)], AXIS, NOW)

    assert row.bars[0].width > 0
    assert row.bars[0].x + row.bars[0].width <= 100


def bundle(
    bucket: int, outcome: ClaimOutcome, claims: int, first: float, last: float
) -> ClaimBundle:
    return ClaimBundle(
        owner=ANN,
        bucket=bucket,
        outcome=outcome,
        claims=claims,
        first_claimed_at=NOON + first * SECOND,
        last_ended_at=NOON + last * SECOND,
        busy=claims * SECOND,
    )


def test_a_bundle_is_filled_in_proportion_and_ends_where_the_next_begins():
    bundles = [
        bundle(0, ClaimOutcome.DONE, 3, 0, 20),
        bundle(0, ClaimOutcome.FAILED, 1, 5, 60),
        bundle(1, ClaimOutcome.DONE, 2, 50, 70),
    ]

    (row,) = draw_bundles(bundles, AXIS, NOW)

    failed, done, following = row.bars
    assert (failed.state, done.state) == ("failed", "done")
    assert done.height == 3 * failed.height
    assert failed.y == done.y + done.height
    assert (failed.x, failed.width) == (0, 50)
    assert (following.x, following.width) == (50, 20)
    assert row.claims == 6
    assert row.busy == 6 * SECOND
    assert failed.title == "4 claims: 1 failed, 3 done"


@pytest.mark.parametrize(
    "length", [SECOND / 9, 3 * SECOND, MINUTE, HOUR, 30 * HOUR, 9999 * HOUR], ids=str
)
def test_the_times_below_are_few_and_round(length: timedelta):
    axis = Axis(NOON + SECOND / 3, NOON + SECOND / 3 + length)

    ticks = draw_ticks(axis, choose_step(axis))

    assert len(ticks) <= MAX_TICKS
    assert all(is_round(tick.at) for tick in ticks)
    assert in_order([tick.x for tick in ticks])


def is_round(at: datetime) -> bool:
    return at.microsecond == 0


def in_order(places: Sequence[float]) -> bool:
    return [*places] == sorted(places)
