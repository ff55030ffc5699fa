"""Shards are the same in any process and order, and cover what they replace."""

import subprocess
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.dataset import Delta
from penstock.domain.sharding.axes import (
    BboxAxis,
    Bounds,
    ListAxis,
    RangeAxis,
    TimeAxis,
)
from penstock.domain.sharding.parts import Choice, Span, Tile, Window
from penstock.domain.sharding.shard import (
    Shard,
    build_outside_check,
    divide_shard,
    parse_shard_key,
    plan_shards,
)
from tests.support.builders import HOUR, NOON, SECOND, dataset

COUNTRY = ListAxis(name="country", values=("DE", "FR"), send="c", check=("country",))
WINDOW = TimeAxis(
    name="window", start=NOON, step=HOUR, send_until="before", check=("at",)
)
IDS = RangeAxis(name="ids", start=0, until=25, step=10, check=("id",))
AREA = (Decimal("47.2"), Decimal(5), Decimal(49), Decimal(7))
TILE = BboxAxis(name="tile", area=AREA, step=Decimal(1), check=(("lat",), ("lon",)))
UNTIL = Bounds(until=NOON + 2 * HOUR)

VALUES = st.text(max_size=20) | st.sampled_from(
    ["", "|", "%", ":", "%7C", "%25", "%257C", "a|b:c..d", "all", "🔌|世界"]
)
INSTANTS = st.datetimes(
    datetime(1000, 1, 2),  # noqa: DTZ001 (the zone is given beside)
    datetime(9000, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
DEGREES = st.decimals(-180, 180, places=4)


def keys(*axes, bounds=UNTIL) -> list[str]:
    return [shard.key for shard in plan_shards(axes, bounds)]


def test_a_dataset_without_axes_is_one_shard():
    assert keys() == ["all"]
    assert parse_shard_key((), "all").key == "all"


def test_keys_are_readable_and_pinned():
    assert keys(COUNTRY, WINDOW) == [
        "country:DE|window:2026-03-01T12:00:00Z..2026-03-01T13:00:00Z",
        "country:DE|window:2026-03-01T13:00:00Z..2026-03-01T14:00:00Z",
        "country:FR|window:2026-03-01T12:00:00Z..2026-03-01T13:00:00Z",
        "country:FR|window:2026-03-01T13:00:00Z..2026-03-01T14:00:00Z",
    ]
    assert keys(IDS) == ["ids:0..10", "ids:10..20", "ids:20..25"]
    assert keys(TILE) == [
        "tile:47.2,5..48.2,6",
        "tile:47.2,6..48.2,7",
        "tile:48.2,5..49,6",
        "tile:48.2,6..49,7",
    ]


def test_another_process_makes_the_same_keys():
    script = (
        "from tests.unit.test_shard import *;"
        "print(*keys(COUNTRY, WINDOW, IDS, TILE), sep='\\n')"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        text=True,
        env={"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
    )

    assert result.stdout.splitlines() == keys(COUNTRY, WINDOW, IDS, TILE)


@given(st.lists(VALUES, max_size=6))
def test_keys_depend_neither_on_order_nor_on_repeats(values):
    def of(chosen):
        return set(keys(ListAxis(name="x", values=tuple(chosen))))

    assert of(values) == of(reversed(values)) == of(values * 2)


@given(st.lists(VALUES, max_size=6, unique=True))
def test_different_values_have_different_keys(values):
    axis = ListAxis(name="x", values=tuple(values))

    assert len(set(keys(axis, IDS))) == 3 * len(values)


@given(
    value=VALUES,
    other=VALUES,
    start=INSTANTS,
    length=st.timedeltas(timedelta(microseconds=1), timedelta(days=9000)),
    low=st.integers(),
    size=st.integers(1),
    edges=st.tuples(DEGREES, DEGREES, DEGREES, DEGREES),
)
def test_a_shard_is_read_back_from_its_key(
    value, other, start, length, low, size, edges
):
    axes = (COUNTRY, WINDOW, IDS, TILE, ListAxis(name="last", values=()))
    parts = (
        Choice(value),
        Window(start, start + length),
        Span(low, low + size),
        Tile(*edges),
        Choice(other),
    )
    shard = Shard(axes, parts)

    again = parse_shard_key(axes, shard.key)

    assert again == shard
    assert again.key == shard.key


def test_a_million_shards_are_never_held_at_once():
    ids = RangeAxis(name="ids", start=0, until=10_000, step=10)
    more = RangeAxis(name="more", start=0, until=1_000, step=1)

    shards = plan_shards((ids, more), UNTIL)
    planned = sum(1 for _ in islice(shards, 900_000))
    # tracing is slow, and what the rest needs tells whether anything piles up
    tracemalloc.start()
    planned += sum(1 for _ in shards)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert planned == 1_000_000
    assert peak < 100_000


# dividing


def test_the_first_axis_that_can_be_divided_is():
    (shard, *_) = plan_shards((COUNTRY, WINDOW, IDS), UNTIL)

    assert [child.key for child in divide_shard(shard)] == [
        "country:DE|window:2026-03-01T12:00:00Z..2026-03-01T12:30:00Z|ids:0..10",
        "country:DE|window:2026-03-01T12:30:00Z..2026-03-01T13:00:00Z|ids:0..10",
    ]


def test_an_axis_that_is_smallest_leaves_it_to_the_next():
    coarse = TimeAxis(name="window", start=NOON, step=HOUR, smallest=HOUR)
    (shard, *_) = plan_shards((coarse, IDS), UNTIL)

    assert [child.key.partition("|")[2] for child in divide_shard(shard)] == [
        "ids:0..5",
        "ids:5..10",
    ]


@pytest.mark.parametrize("axes", [(), (COUNTRY,)])
def test_what_has_no_divisible_axis_cannot_be_divided(axes):
    (shard, *_) = plan_shards(axes, UNTIL)

    assert divide_shard(shard) == ()


# belonging


DATASET = dataset(axes=(COUNTRY, WINDOW, IDS, TILE))


def row(country="DE", at="2026-03-01T12:30:00Z", number=5, lat=47.5, lon=5.5, **kw):
    result: dict[tuple[str, ...], object] = {
        ("country",): country,
        ("at",): at,
        ("id",): number,
        ("lat",): lat,
        ("lon",): lon,
        ("title",): "x",
    }
    return [result[path] for path in DATASET.paths]


def first_shard() -> Shard:
    return next(plan_shards(DATASET.axes, UNTIL))


def test_a_row_inside_its_shard_belongs():
    assert build_outside_check(DATASET, first_shard(), None)(row()) is None


@pytest.mark.parametrize(
    "edge",
    [
        {"at": "2026-03-01T12:00:00Z"},
        {"at": "2026-03-01T13:00:00+00:00"},
        {"at": "2026-03-01T12:00:00"},
        {"at": "2026-03-01T14:00:00+02:00"},
        {"number": 0},
        {"number": 10},
        {"lat": 47.2},
        {"lat": 48.2, "lon": 6},
        {"country": "de"},
    ],
)
def test_a_row_on_either_edge_belongs(edge):
    assert build_outside_check(DATASET, first_shard(), None)(row(**edge)) is None


@pytest.mark.parametrize(
    ("stranger", "named"),
    [
        ({"country": "FR"}, "country"),
        ({"country": None}, "country"),
        ({"at": "2026-03-01T13:00:01Z"}, "window"),
        ({"at": "2026-03-01T11:59:59.999999Z"}, "window"),
        ({"at": None}, "window"),
        ({"at": "soon"}, "window"),
        ({"at": 12}, "window"),
        ({"number": 11}, "ids"),
        ({"number": None}, "ids"),
        ({"lat": 47.1}, "tile"),
        ({"lon": None}, "tile"),
        ({"lon": {"deep": 1}}, "tile"),
    ],
)
def test_a_row_outside_is_reported_with_its_axis(stranger, named):
    result = build_outside_check(DATASET, first_shard(), None)(row(**stranger))

    assert result is not None
    assert result.startswith(f"{named} is ")


@given(st.lists(st.none() | st.booleans() | st.integers() | st.floats() | st.text()))
def test_any_row_is_judged(values):
    some = (values * 9 + [None] * 9)[: len(DATASET.paths)]

    assert isinstance(
        build_outside_check(DATASET, first_shard(), None)(some), str | None
    )


def test_a_delta_takes_no_row_from_before():
    request = dataset(delta=Delta(send="since", field=("title",)))
    judge = build_outside_check(request, Shard((), ()), NOON)
    place = request.path_index["title",]

    def reported(changed):
        values = [None] * len(request.paths)
        values[place] = changed
        return judge(values)

    assert reported("2026-03-01T12:00:00Z") is None
    assert "before" in str(reported("2026-03-01T11:59:59Z"))
    assert "no time in format" in str(reported(None))


def test_a_row_after_a_window_belongs_where_the_provider_knows_no_end():
    endless = TimeAxis(name="window", start=NOON, step=HOUR, check=("title",))
    windowed = dataset(axes=(endless,))
    (shard, *_) = plan_shards(windowed.axes, UNTIL)

    judge = build_outside_check(windowed, shard, None)

    assert judge([None, (NOON + 9 * HOUR).isoformat()]) is None
    assert judge([None, (NOON - SECOND).isoformat()]) is not None


def test_a_row_below_an_exclusive_bound_belongs_by_one_unit():
    open_below = TimeAxis(
        name="window", start=NOON, step=HOUR, bounds="(]", check=("title",)
    )
    windowed = dataset(axes=(open_below,))
    (shard, *_) = plan_shards(windowed.axes, UNTIL)

    judge = build_outside_check(windowed, shard, None)

    assert judge([None, (NOON - SECOND).isoformat()]) is None
    assert judge([None, (NOON - 2 * SECOND).isoformat()]) is not None
