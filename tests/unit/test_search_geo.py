"""Boxes around a place hold all that is near, also at the poles and the date line."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.queries.geo import (
    FARTHEST_KM,
    RADIUS_KM,
    Box,
    Spot,
    at,
    boxes_around,
    distance,
    ring_around,
)

SPOTS = st.builds(Spot, st.floats(-90, 90), st.floats(-180, 180))


def is_inside(corners: Sequence[Spot], spot: Spot) -> bool:
    """Say whether a shape without dents holds a place: each side has it on its left."""
    sides = zip(corners, [*corners[1:], corners[0]], strict=True)
    return all(
        (there.lon - here.lon) * (spot.lat - here.lat)
        <= (there.lat - here.lat) * (spot.lon - here.lon)
        for here, there in sides
    )


def holds(box: Box, spot: Spot) -> bool:
    return box.south <= spot.lat <= box.north and box.west <= spot.lon <= box.east


@given(SPOTS, SPOTS, st.floats(0, 20_100))
def test_what_is_near_lies_in_a_box(one, other, km):
    if distance(one, other) <= km:
        assert any(holds(box, other) for box in boxes_around(one, km))


@given(SPOTS, SPOTS)
def test_a_place_lies_in_the_boxes_of_its_own_distance(one, other):
    assert any(holds(box, other) for box in boxes_around(one, distance(one, other)))


@given(
    st.builds(Spot, st.floats(-70, 70), st.floats(-170, 170)),
    st.floats(0, 200),
    st.floats(0, 1),
    st.floats(0, 2 * math.pi),
)
def test_what_is_near_lies_in_the_ring(spot, km, part, bearing):
    ring = ring_around(spot, km)

    assert ring is not None
    assert is_inside(ring, at(spot, part * km / RADIUS_KM, bearing))
    # and hardly more does
    assert max(distance(spot, corner) for corner in ring) < 1.04 * km + 0.002


def test_a_place_lies_where_it_is_said_to():
    assert distance(Spot(50, 9), at(Spot(50, 9), 0.01, 1)) == pytest.approx(
        0.01 * RADIUS_KM
    )


@pytest.mark.parametrize(
    ("spot", "km"),
    [
        (Spot(50, 179.9), 50),
        (Spot(50, -179.9), 50),
        (Spot(80, 9), 5),
        (Spot(0, 0), 300),
    ],
    ids=["date line", "from beyond it", "near a pole", "too large"],
)
def test_there_is_no_ring_where_degrees_are_no_measure(spot, km):
    assert ring_around(spot, km) is None


@given(SPOTS, SPOTS)
def test_the_way_back_is_as_long(one, other):
    assert distance(one, other) == pytest.approx(distance(other, one))
    assert 0 <= distance(one, other) <= FARTHEST_KM + 1e-6


@pytest.mark.parametrize(
    ("one", "other", "km"),
    [
        (Spot(52.52, 13.405), Spot(48.8566, 2.3522), 877.46),
        (Spot(0, 179.5), Spot(0, -179.5), 111.19),
        (Spot(90, 0), Spot(-90, 77), 20_015.11),
        (Spot(89, 0), Spot(89, 180), 222.39),
    ],
    ids=["Berlin-Paris", "date line", "pole to pole", "over the pole"],
)
def test_distances_are_those_of_the_sphere(one, other, km):
    assert distance(one, other) == pytest.approx(km, abs=0.01)


def test_small_boxes_are_small():
    (box,) = boxes_around(Spot(60, 10), 1)

    assert box.north - box.south < 0.02
    assert box.east - box.west < 0.04
    assert len(boxes_around(Spot(60, 179.999), 1)) == 2
    assert boxes_around(Spot(89.999, 5), 1)[0].west == -180
