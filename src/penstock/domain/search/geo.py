"""Points on the globe: distances, and boxes and polygons around a point."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# the mean radius of the earth; a sphere is wrong by half a percent at most
EARTH_RADIUS_KM = 6371.0088
# half of the circumference: nothing is farther away
MAX_DISTANCE_KM = math.pi * EARTH_RADIUS_KM
# limits of a polygon, and its corners: with a larger radius, or nearer to a pole, its
# sides, which are straight in degrees, would no longer enclose the circle
MAX_POLYGON_KM = 200.0
MAX_POLYGON_LATITUDE = 70.0
CORNERS = 16


@dataclass(frozen=True, slots=True)
class GeoPoint:
    """A point in degrees."""

    lat: float
    lon: float


@dataclass(frozen=True, slots=True)
class GeoBox:
    """The area between two latitudes and two longitudes, edges included."""

    south: float
    north: float
    west: float
    east: float


def distance(one: GeoPoint, other: GeoPoint) -> float:
    """Return the great-circle distance in kilometres."""
    lat, other_lat = math.radians(one.lat), math.radians(other.lat)
    across = math.radians(other.lon - one.lon)
    half = (
        math.sin((other_lat - lat) / 2) ** 2
        + math.cos(lat) * math.cos(other_lat) * math.sin(across / 2) ** 2
    )
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(half)))


def boxes_around(spot: GeoPoint, km: float) -> Sequence[GeoBox]:
    """Return boxes that together contain every point within a distance.

    There are two where the circle crosses the date line. A circle over a pole gives one
    box of all longitudes.
    """
    # a little more, so that rounding excludes no point on the edge
    angle = km / EARTH_RADIUS_KM * (1 + 1e-9) + 1e-12
    reach = math.degrees(angle)
    south, north = spot.lat - reach, spot.lat + reach
    if south <= -90 or north >= 90:  # noqa: PLR2004 (the poles)
        return [GeoBox(max(south, -90.0), min(north, 90.0), -180.0, 180.0)]
    aside = math.degrees(
        math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(spot.lat))))
    )
    west, east = spot.lon - aside, spot.lon + aside
    if west < -180:  # noqa: PLR2004 (the date line)
        return [
            GeoBox(south, north, -180.0, east),
            GeoBox(south, north, west + 360, 180.0),
        ]
    if east > 180:  # noqa: PLR2004 (the date line)
        return [
            GeoBox(south, north, west, 180.0),
            GeoBox(south, north, -180.0, east - 360),
        ]
    return [GeoBox(south, north, west, east)]


def polygon_around(spot: GeoPoint, km: float) -> Sequence[GeoPoint] | None:
    """Return the corners of a polygon that contains every point within a distance.

    It is hardly larger than the circle, where a box is a quarter larger. Returns None
    if it would cross the date line, or be too large.
    """
    if km > MAX_POLYGON_KM or abs(spot.lat) > MAX_POLYGON_LATITUDE:
        return None
    # its sides are a hundredth of the radius outside of the circle
    angle = max(km, 0.001) / EARTH_RADIUS_KM * 1.01 / math.cos(math.pi / CORNERS)
    corners = [
        destination_point(spot, angle, 2 * math.pi * number / CORNERS)
        for number in range(CORNERS)
    ]
    is_in_range = all(abs(corner.lon) < 180 for corner in corners)  # noqa: PLR2004 (the date line)
    return corners if is_in_range else None


def destination_point(spot: GeoPoint, angle: float, bearing: float) -> GeoPoint:
    """Return the point at a distance and bearing; its longitude may exceed 180."""
    lat = math.radians(spot.lat)
    there = math.asin(
        math.sin(lat) * math.cos(angle)
        + math.cos(lat) * math.sin(angle) * math.cos(bearing)
    )
    across = math.atan2(
        math.sin(bearing) * math.sin(angle) * math.cos(lat),
        math.cos(angle) - math.sin(lat) * math.sin(there),
    )
    return GeoPoint(math.degrees(there), spot.lon + math.degrees(across))
