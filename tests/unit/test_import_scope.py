"""What an import covers is decided from what was asked and what is proven."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.domain.dataset import Delta
from penstock.domain.import_scope import (
    ImportScope,
    axis_bounds,
    decide_scope,
    request_lower_bound,
    time_axis,
)
from penstock.domain.jobs import Mode
from penstock.domain.sharding.axes import Bounds, TimeAxis
from penstock.errors import Misconfigured
from tests.support.builders import HOUR, NOON, dataset

DELTA = Delta(send="since", field=("changed",), overlap=2 * HOUR)
AXIS = TimeAxis(name="window", start=NOON, step=HOUR, check=("made",))
PLAIN = dataset()
CHANGING = dataset(delta=DELTA)
WINDOWED = dataset(axes=(AXIS,))
BOTH = dataset(delta=DELTA, axes=(AXIS,))
SAME = dataset(
    delta=DELTA,
    axes=(TimeAxis(name="w", start=NOON, step=HOUR, check=("changed",)),),
)


def decide(of, mode, watermark=None, **request) -> ImportScope:
    return decide_scope(of, ImportScope(mode=mode, **request), watermark=watermark)


def test_a_full_import_has_no_bounds():
    assert decide(PLAIN, Mode.FULL, watermark=NOON) == ImportScope(mode=Mode.FULL)


@pytest.mark.parametrize("requested", [{"since": NOON}, {"until": NOON}])
def test_a_full_import_takes_no_bounds(requested):
    with pytest.raises(Misconfigured, match="backfill"):
        decide(PLAIN, Mode.FULL, **requested)


def test_a_delta_starts_at_the_watermark_less_the_overlap():
    assert decide(CHANGING, Mode.DELTA, watermark=NOON).since == NOON - 2 * HOUR


def test_a_delta_that_is_reported_its_start_takes_it_literally():
    assert decide(CHANGING, Mode.DELTA, watermark=NOON, since=NOON).since == NOON


def test_a_delta_by_windows_alone_reads_the_last_window_once_more():
    assert decide(WINDOWED, Mode.DELTA, watermark=NOON).since == NOON - HOUR
    assert decide(WINDOWED, Mode.DELTA, watermark=NOON, since=NOON).since == NOON


def test_a_delta_needs_something_to_ask_by():
    with pytest.raises(Misconfigured, match="mode full"):
        decide(PLAIN, Mode.DELTA, watermark=NOON)


def test_a_delta_needs_somewhere_to_start():
    with pytest.raises(Misconfigured, match="no proven import"):
        decide(CHANGING, Mode.DELTA)


def test_a_delta_has_no_end():
    with pytest.raises(Misconfigured, match="until"):
        decide(CHANGING, Mode.DELTA, watermark=NOON, until=NOON)


@pytest.mark.parametrize(
    ("form", "rounded"),
    [
        ("%Y-%m-%dT%H:%M:%S.%f", datetime(2026, 3, 1, 12, 34, 56, 789, tzinfo=UTC)),
        ("%Y-%m-%dT%H:%M:%S", datetime(2026, 3, 1, 12, 34, 56, tzinfo=UTC)),
        ("%Y-%m-%d %H:%M", datetime(2026, 3, 1, 12, 34, tzinfo=UTC)),
        ("%Y-%m-%d", datetime(2026, 3, 1, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("hours", [0, -11, 9])
def test_a_start_is_rounded_down_to_what_the_provider_can_be_reported(
    form, rounded, hours
):
    request = dataset(delta=Delta(send="since", field=("changed",), format=form))
    zone = timezone(timedelta(hours=hours))
    watermark = datetime(2026, 3, 1, 12, 34, 56, 789, tzinfo=UTC).astimezone(zone)

    assert decide(request, Mode.DELTA, watermark=watermark).since == rounded


def test_a_backfill_covers_what_was_requested():
    request = ImportScope(mode=Mode.BACKFILL, since=NOON, until=NOON + HOUR)

    assert decide_scope(WINDOWED, request, watermark=None) == request


def test_a_backfill_may_be_open_where_the_provider_knows_a_lower_bound():
    assert decide(CHANGING, Mode.BACKFILL, since=NOON).since == NOON


@pytest.mark.parametrize(
    ("of", "requested", "result"),
    [
        (WINDOWED, {}, "--from"),
        (WINDOWED, {"until": NOON}, "--from"),
        (WINDOWED, {"since": NOON, "until": NOON}, "later"),
        (PLAIN, {"since": NOON}, "time axis"),
        (CHANGING, {"since": NOON, "until": NOON + HOUR}, "time axis"),
    ],
)
def test_a_backfill_that_cannot_be_requested_is_refused(of, requested, result):
    with pytest.raises(Misconfigured, match=result):
        decide(of, Mode.BACKFILL, **requested)


@pytest.mark.parametrize(
    ("of", "mode", "result"),
    [
        (CHANGING, Mode.DELTA, NOON),
        (CHANGING, Mode.BACKFILL, NOON),
        (CHANGING, Mode.FULL, None),
        (BOTH, Mode.DELTA, NOON),
        (BOTH, Mode.BACKFILL, None),
        (WINDOWED, Mode.DELTA, None),
    ],
)
def test_the_lower_bound_goes_into_requests_where_the_provider_knows_it(
    of, mode, result
):
    assert request_lower_bound(of, mode, NOON) == result


@pytest.mark.parametrize(
    ("of", "mode", "since"),
    [
        (WINDOWED, Mode.FULL, None),
        (WINDOWED, Mode.DELTA, NOON),
        (WINDOWED, Mode.BACKFILL, NOON),
        # windows of another field than the one that changes are all asked
        (BOTH, Mode.DELTA, None),
        (SAME, Mode.DELTA, NOON),
    ],
)
def test_windows_start_at_the_lower_bound_where_they_speak_of_it(of, mode, since):
    bounds = axis_bounds(of, mode, since=NOON, until=NOON + HOUR)

    assert bounds == Bounds(since=since, until=NOON + HOUR)


def test_the_first_time_axis_is_found():
    assert time_axis(BOTH) is AXIS
    assert time_axis(PLAIN) is None
