"""Parts of an axis meet exactly, whatever the zone, the pole or the antimeridian."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.sharding.axes import (
    BboxAxis,
    Bounds,
    ListAxis,
    RangeAxis,
    TimeAxis,
    ValuesFrom,
)
from penstock.domain.sharding.parts import Span, Tile, Window
from penstock.domain.time_formats import format_unit
from penstock.errors import Misconfigured
from tests.support.builders import HOUR, MINUTE, NOON, SECOND

BERLIN, KATHMANDU = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kathmandu")
DAY = timedelta(days=1)
ZONES = st.sampled_from(
    [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Asia/Kathmandu")]
)
INSTANTS = st.datetimes(
    datetime(2026, 1, 1),  # noqa: DTZ001 (the zone is given beside)
    datetime(2027, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


def divided(axis, part) -> tuple[Any, ...]:
    """Cut a part, unless the pieces would be too small."""
    chunks = axis.cut(part)
    return () if any(axis.is_small(chunk) for chunk in chunks) else chunks


def windows(axis: TimeAxis, until: datetime, since: datetime | None = None):
    return list(axis.parts(Bounds(since=since, until=until)))


def hours(start: datetime, **declared) -> TimeAxis:
    return TimeAxis(name="window", start=start, step=HOUR, **declared)


# time


def test_windows_are_half_open_and_cover_the_whole():
    found = windows(hours(NOON), NOON + 2.5 * HOUR)

    assert found == [
        Window(NOON, NOON + HOUR),
        Window(NOON + HOUR, NOON + 2 * HOUR),
        Window(NOON + 2 * HOUR, NOON + 2.5 * HOUR),
    ]


@given(
    start=INSTANTS,
    length=st.timedeltas(timedelta(), timedelta(days=3)),
    step=st.timedeltas(MINUTE, 2 * DAY),
)
def test_windows_meet_exactly(start, length, step):
    axis = TimeAxis(name="w", start=start, step=step, format="%Y-%m-%dT%H:%M:%S.%f")

    found = windows(axis, start + length)

    assert all(one.end == following.start for one, following in pairwise(found))
    assert all(timedelta() < each.end - each.start <= step for each in found)
    covered = sum((each.end - each.start for each in found), timedelta())
    assert covered == length


@pytest.mark.parametrize(
    "change",
    [datetime(2026, 3, 29, tzinfo=BERLIN), datetime(2026, 10, 25, tzinfo=BERLIN)],
    ids=["an hour is left out", "an hour comes twice"],
)
def test_windows_meet_where_the_clocks_change(change):
    found = windows(hours(change), change + DAY)

    there = change.astimezone(UTC)
    expected = windows(hours(there), (change + DAY).astimezone(UTC))
    assert [each.text for each in found] == [each.text for each in expected]
    assert all(
        each.end.astimezone(UTC) - each.start.astimezone(UTC) == HOUR for each in found
    )


@given(start=INSTANTS, since=INSTANTS, until=INSTANTS, zone=ZONES)
def test_bounds_in_any_zone_give_the_same_windows(start, since, until, zone):
    def some(*result):
        start, since, until = result
        axis = hours(start)
        parts = axis.parts(Bounds(since=since, until=until))
        return [each.text for each in islice(parts, 50)]

    elsewhere = [each.astimezone(zone) for each in (start, since, until)]

    assert some(*elsewhere) == some(start, since, until)


def test_windows_of_a_later_start_fall_on_the_same_edges():
    found = windows(hours(NOON), NOON + 3 * HOUR, since=NOON + 1.5 * HOUR)

    assert found == [
        Window(NOON + 1.5 * HOUR, NOON + 2 * HOUR),
        Window(NOON + 2 * HOUR, NOON + 3 * HOUR),
    ]


def test_a_declared_end_is_retained():
    assert windows(hours(NOON, until=NOON + HOUR), NOON + DAY) == [
        Window(NOON, NOON + HOUR)
    ]


@pytest.mark.parametrize("until", [NOON, NOON - HOUR])
def test_no_time_is_no_window(until):
    assert windows(hours(NOON), until) == []


def test_a_time_that_the_format_cannot_tell_is_left_to_the_next_import():
    days = TimeAxis(name="day", start=NOON.replace(hour=0), step=DAY, format="%Y-%m-%d")

    (only,) = windows(days, NOON + DAY)

    assert only.end == NOON.replace(hour=0) + DAY


def test_a_later_start_is_rounded_down_to_what_the_format_can_tell():
    found = windows(hours(NOON), NOON + HOUR, since=NOON + 90.7 * SECOND)

    assert found[0].start == NOON + 90 * SECOND


@pytest.mark.parametrize(
    ("form", "unit"),
    [
        ("%Y-%m-%dT%H:%M:%S.%fZ", timedelta(microseconds=1)),
        ("%Y-%m-%dT%H:%M:%SZ", SECOND),
        ("%s", SECOND),
        ("%Y-%m-%dT%TZ", SECOND),
        ("%Y-%m-%d %H:%M", MINUTE),
        ("%Y%m%d%H", HOUR),
        ("%Y-%m-%d", DAY),
    ],
)
def test_a_format_tells_its_smallest_unit(form, unit):
    assert format_unit(form) == unit


@pytest.mark.parametrize(
    ("bounds", "form", "sent"),
    [
        ("[)", "%Y-%m-%dT%H:%M:%SZ", "2026-03-01T12:00:00Z"),
        ("[]", "%Y-%m-%dT%H:%M:%SZ", "2026-03-01T12:00:00Z"),
        ("(]", "%Y-%m-%dT%H:%M:%SZ", "2026-03-01T11:59:59Z"),
        ("()", "%Y-%m-%dT%H:%M", "2026-03-01T11:59"),
        ("(]", "%Y-%m-%dT%H:%M:%S.%f", "2026-03-01T11:59:59.999999"),
        ("[)", "%s", "1772366400"),
    ],
)
def test_an_exclusive_bound_asks_one_unit_earlier(bounds, form, sent):
    axis = hours(NOON, send_from="since", bounds=bounds, format=form)

    assert axis.parameters(Window(NOON, NOON + HOUR)) == {"since": sent}


def test_bounds_are_sent_in_utc():
    axis = hours(NOON, send_from="since", send_until="before")
    local = NOON.astimezone(KATHMANDU)

    assert axis.parameters(Window(local, local + HOUR)) == {
        "since": "2026-03-01T12:00:00Z",
        "before": "2026-03-01T13:00:00Z",
    }


def test_an_axis_that_sends_nothing_has_no_parameters():
    assert hours(NOON).parameters(Window(NOON, NOON + HOUR)) == {}
    assert ListAxis(name="x", values=("a",)).parameters(Span(1, 2)) == {}


@given(
    start=INSTANTS,
    length=st.timedeltas(timedelta(microseconds=1), timedelta(days=400)),
    smallest=st.timedeltas(SECOND, DAY),
)
def test_a_divided_window_is_covered_exactly(start, length, smallest):
    axis = hours(start, smallest=smallest)
    whole = Window(start, start + length)

    halves = divided(axis, whole)

    if halves:
        first, second = halves
        assert isinstance(first, Window)
        assert isinstance(second, Window)
        assert (first.start, second.end) == (whole.start, whole.end)
        assert first.end == second.start
        assert min(first.end - first.start, second.end - second.start) >= smallest
    else:
        assert length < 2 * max(smallest, SECOND) + 2 * SECOND


def test_a_window_is_divided_at_what_the_format_can_tell():
    days = TimeAxis(name="day", start=NOON, step=DAY, format="%Y-%m-%d")

    assert divided(days, Window(NOON, NOON + 3 * DAY)) == (
        Window(NOON, NOON + DAY),
        Window(NOON + DAY, NOON + 3 * DAY),
    )
    assert divided(days, Window(NOON, NOON + DAY)) == ()


# ranges


@given(
    start=st.integers(-1000, 1000), size=st.integers(0, 5000), step=st.integers(7, 900)
)
def test_spans_hold_each_number_once(start, size, step):
    axis = RangeAxis(name="ids", start=start, until=start + size, step=step)

    found = list(axis.parts(Bounds(until=NOON)))

    numbers = [n for span in found for n in range(span.start, span.end)]
    assert numbers == list(range(start, start + size))


@given(st.integers(), st.integers(1, 10_000), st.integers(1, 50))
def test_a_divided_span_is_covered_exactly(start, size, smallest):
    axis = RangeAxis(name="ids", start=0, until=1, step=1, smallest=smallest)

    halves = divided(axis, Span(start, start + size))

    if halves:
        first, second = halves
        assert isinstance(first, Span)
        assert isinstance(second, Span)
        assert (first.start, second.end) == (start, start + size)
        assert first.end == second.start
        assert min(first.end - first.start, second.end - second.start) >= smallest
    else:
        assert size < 2 * smallest


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [("[)", "10", "20"), ("(]", "9", "19"), ("[]", "10", "19"), ("()", "9", "20")],
)
def test_a_span_is_requested_as_the_provider_counts(bounds, low, high):
    axis = RangeAxis(
        name="ids",
        start=0,
        until=99,
        step=10,
        send_from="gt",
        send_until="lt",
        bounds=bounds,
    )

    assert axis.parameters(Span(10, 20)) == {"gt": low, "lt": high}


# areas


def tiles(*area: str | int, step: str = "1", **declared) -> list[Tile]:
    south, west, north, east = map(Decimal, area)
    axis = BboxAxis(
        name="tile", area=(south, west, north, east), step=Decimal(step), **declared
    )
    return list(axis.parts(Bounds(until=NOON)))


def surface(found) -> Decimal:
    return sum(
        ((each.north - each.south) * (each.east - each.west) for each in found),
        Decimal(),
    )


def overlap(one: Tile, other: Tile) -> bool:
    return max(one.south, other.south) < min(one.north, other.north) and max(
        one.west, other.west
    ) < min(one.east, other.east)


@given(
    corner=st.tuples(st.decimals(-90, 89, places=3), st.decimals(-180, 179, places=3)),
    size=st.tuples(
        st.decimals("0.001", 1, places=3), st.decimals("0.001", 1, places=3)
    ),
    step=st.decimals("0.25", 2, places=3),
)
def test_tiles_cover_an_area_without_overlap(corner, size, step):
    south, west = corner
    north, east = south + size[0], west + size[1]
    found = tiles(south, west, north, east, step=str(step))

    assert surface(found) == size[0] * size[1]
    assert not any(
        overlap(one, other)
        for index, one in enumerate(found)
        for other in found[:index]
    )
    assert (min(t.south for t in found), max(t.north for t in found)) == (south, north)
    assert (min(t.west for t in found), max(t.east for t in found)) == (west, east)


def test_the_whole_earth_is_covered_up_to_the_poles():
    found = tiles(-90, -180, 90, 180, step="7")

    assert surface(found) == 180 * 360
    assert {max(t.north for t in found), -min(t.south for t in found)} == {90}
    assert {max(t.east for t in found), -min(t.west for t in found)} == {180}


def test_an_area_across_the_antimeridian_is_covered_on_both_sides():
    found = tiles(-20, 177, -16, "-178.5", step="2")

    assert surface(found) == 4 * Decimal("4.5")
    assert all(t.west < t.east for t in found)
    assert {(t.west, t.east) for t in found} == {
        (Decimal(177), Decimal(179)),
        (Decimal(179), Decimal(180)),
        (Decimal(-180), Decimal("-178.5")),
    }


def test_neighbours_share_their_edge_to_the_last_digit():
    found = tiles(0, 0, "0.1", 1, step="0.1")

    assert [t.text for t in found][:4] == [
        "0,0..0.1,0.1",
        "0,0.1..0.1,0.2",
        "0,0.2..0.1,0.3",
        "0,0.3..0.1,0.4",
    ]


TILE_AXIS = BboxAxis(
    name="tile",
    area=(Decimal(0), Decimal(0), Decimal(1), Decimal(1)),
    step=Decimal(1),
    smallest=Decimal("0.01"),
)


@given(
    st.decimals(-90, 89, places=4),
    st.decimals(-180, 179, places=4),
    st.decimals("0.0001", 90, places=4),
    st.decimals("0.0001", 90, places=4),
)
def test_a_divided_tile_is_covered_exactly(south, west, height, width):
    whole = Tile(south, west, south + height, west + width)

    quarters = divided(TILE_AXIS, whole)

    if quarters:
        assert len(quarters) == 4
        assert surface(quarters) == height * width
        assert not any(
            overlap(one, other)
            for index, one in enumerate(quarters)
            for other in quarters[:index]
        )
    else:
        assert min(height, width) < 2 * TILE_AXIS.smallest


def test_dividing_stops_at_the_smallest():
    part: object = Tile(Decimal(0), Decimal(0), Decimal(1), Decimal(1))
    depth = 0
    while smaller := divided(TILE_AXIS, part):
        part, depth = smaller[0], depth + 1

    assert depth == 6


def test_a_tile_is_sent_as_declared():
    tile = Tile(Decimal("47.20"), Decimal("-0.0"), Decimal(48), Decimal("1E+1"))
    one = BboxAxis(
        name="t",
        area=TILE_AXIS.area,
        step=Decimal(1),
        send="box",
        format="({south},{west}),({north},{east})",
    )
    four = BboxAxis(
        name="t",
        area=TILE_AXIS.area,
        step=Decimal(1),
        send={"south": "minlat", "east": "maxlon"},
    )

    assert one.parameters(tile) == {"box": "(47.2,0),(48,10)"}
    assert four.parameters(tile) == {"minlat": "47.2", "maxlon": "10"}


# lists


def test_a_value_is_sent_as_it_is():
    axis = ListAxis(name="x", values=("a|b%",), send="q")
    (part,) = axis.parts(Bounds(until=NOON))

    assert axis.parameters(part) == {"q": "a|b%"}
    assert axis.parse(part.text) == part


def test_values_of_another_dataset_must_be_read_first():
    axis = ListAxis(name="region", values=ValuesFrom(dataset="regions", field="id"))

    with pytest.raises(Misconfigured, match="regions"):
        list(axis.parts(Bounds(until=NOON)))
