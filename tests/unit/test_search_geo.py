"""Boxes around a place hold all that is near, also at the poles and the date line."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.search.geo import (
    EARTH_RADIUS_KM,
    MAX_DISTANCE_KM,
    GeoBox,
    GeoPoint,
    boxes_around,
    destination_point,
    distance,
    polygon_around,
)

SPOTS = st.builds(GeoPoint, st.floats(-90, 90), st.floats(-180, 180))


def is_inside(corners: Sequence[GeoPoint], spot: GeoPoint) -> bool:
    """Say whether a shape without dents holds a place: each side has it on its left."""
    sides = zip(corners, [*corners[1:], corners[0]], strict=True)
    return all(
        (there.lon - here.lon) * (spot.lat - here.lat)
        <= (there.lat - here.lat) * (spot.lon - here.lon)
        for here, there in sides
    )


def holds(box: GeoBox, spot: GeoPoint) -> bool:
    return box.south <= spot.lat <= box.north and box.west <= spot.lon <= box.east


@given(SPOTS, SPOTS, st.floats(0, 20_100))
def test_what_is_near_lies_in_a_box(one, other, km):
    if distance(one, other) <= km:
        assert any(holds(box, other) for box in boxes_around(one, km))


@given(SPOTS, SPOTS)
def test_a_place_lies_in_the_boxes_of_its_own_distance(one, other):
    assert any(holds(box, other) for box in boxes_around(one, distance(one, other)))


@given(
    st.builds(GeoPoint, st.floats(-70, 70), st.floats(-170, 170)),
    st.floats(0, 200),
    st.floats(0, 1),
    st.floats(0, 2 * math.pi),
)
def test_what_is_near_lies_in_the_ring(spot, km, part, bearing):
    ring = polygon_around(spot, km)

    assert ring is not None
    assert is_inside(
        ring, destination_point(spot, part * km / EARTH_RADIUS_KM, bearing)
    )
    # and hardly more does
    assert max(distance(spot, corner) for corner in ring) < 1.04 * km + 0.002


def test_a_place_lies_where_it_is_said_to():
    assert distance(
        GeoPoint(50, 9), destination_point(GeoPoint(50, 9), 0.01, 1)
    ) == pytest.approx(0.01 * EARTH_RADIUS_KM)


@pytest.mark.parametrize(
    ("spot", "km"),
    [
        (GeoPoint(50, 179.9), 50),
        (GeoPoint(50, -179.9), 50),
        (GeoPoint(80, 9), 5),
        (GeoPoint(0, 0), 300),
    ],
    ids=["date line", "from beyond it", "near a pole", "too large"],
)
def test_there_is_no_ring_where_degrees_are_no_measure(spot, km):
    assert polygon_around(spot, km) is None


@given(SPOTS, SPOTS)
def test_the_way_back_is_as_long(one, other):
    assert distance(one, other) == pytest.approx(distance(other, one))
    assert 0 <= distance(one, other) <= MAX_DISTANCE_KM + 1e-6


@pytest.mark.parametrize(
    ("one", "other", "km"),
    [
        (GeoPoint(52.52, 13.405), GeoPoint(48.8566, 2.3522), 877.46),
        (GeoPoint(0, 179.5), GeoPoint(0, -179.5), 111.19),
        (GeoPoint(90, 0), GeoPoint(-90, 77), 20_015.11),
        (GeoPoint(89, 0), GeoPoint(89, 180), 222.39),
    ],
    ids=["Berlin-Paris", "date line", "pole to pole", "over the pole"],
)
def test_distances_are_those_of_the_sphere(one, other, km):
    assert distance(one, other) == pytest.approx(km, abs=0.01)


def test_small_boxes_are_small():
    (box,) = boxes_around(GeoPoint(60, 10), 1)

    assert box.north - box.south < 0.02
    assert box.east - box.west < 0.04
    assert len(boxes_around(GeoPoint(60, 179.999), 1)) == 2
    assert boxes_around(GeoPoint(89.999, 5), 1)[0].west == -180
