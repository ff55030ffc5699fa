"""Places on the globe: how far apart, and which boxes hold all that is near."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# the mean radius of the earth; a sphere is wrong by half a percent at most
RADIUS_KM = 6371.0088
# half of the way around: nothing is farther away
FARTHEST_KM = math.pi * RADIUS_KM


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in degrees."""

    lat: float
    lon: float


@dataclass(frozen=True, slots=True)
class Box:
    """All places between two latitudes and two longitudes, edges included."""

    south: float
    north: float
    west: float
    east: float


def distance(one: Spot, other: Spot) -> float:
    """Return the way along the great circle, in kilometres."""
    lat, other_lat = math.radians(one.lat), math.radians(other.lat)
    across = math.radians(other.lon - one.lon)
    half = (
        math.sin((other_lat - lat) / 2) ** 2
        + math.cos(lat) * math.cos(other_lat) * math.sin(across / 2) ** 2
    )
    return 2 * RADIUS_KM * math.asin(min(1.0, math.sqrt(half)))


def boxes_around(spot: Spot, km: float) -> Sequence[Box]:
    """Return boxes that together hold every place within a distance.

    There are two where the circle lies across the date line. One that reaches over a
    pole holds all longitudes.
    """
    # a little more, so that no rounding leaves out what lies on the edge
    angle = km / RADIUS_KM * (1 + 1e-9) + 1e-12
    reach = math.degrees(angle)
    south, north = spot.lat - reach, spot.lat + reach
    if south <= -90 or north >= 90:  # noqa: PLR2004 (the poles)
        return [Box(max(south, -90.0), min(north, 90.0), -180.0, 180.0)]
    aside = math.degrees(
        math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(spot.lat))))
    )
    west, east = spot.lon - aside, spot.lon + aside
    if west < -180:  # noqa: PLR2004 (the date line)
        return [
            Box(south, north, -180.0, east),
            Box(south, north, west + 360, 180.0),
        ]
    if east > 180:  # noqa: PLR2004 (the date line)
        return [
            Box(south, north, west, 180.0),
            Box(south, north, -180.0, east - 360),
        ]
    return [Box(south, north, west, east)]
