"""Places on the globe: how far apart, and which boxes hold all that is near."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# the mean radius of the earth; a sphere is wrong by half a percent at most
RADIUS_KM = 6371.0088
# half of the way around: nothing is farther away
FARTHEST_KM = math.pi * RADIUS_KM
# how far a ring may reach, from where, and of how many corners: farther or nearer to a
# pole its sides, which are straight in degrees, would no longer go round the circle
LARGEST_RING_KM, HIGHEST_RING, CORNERS = 200.0, 70.0, 16


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


def ring_around(spot: Spot, km: float) -> Sequence[Spot] | None:
    """Return the corners of a shape that holds every place within a distance.

    It holds hardly more than that, where a box holds a quarter more. There is none that
    would cross the date line, or be too large.
    """
    if km > LARGEST_RING_KM or abs(spot.lat) > HIGHEST_RING:
        return None
    # its sides touch the circle but for a hundredth
    angle = max(km, 0.001) / RADIUS_KM * 1.01 / math.cos(math.pi / CORNERS)
    corners = [
        at(spot, angle, 2 * math.pi * number / CORNERS) for number in range(CORNERS)
    ]
    return corners if all(abs(each.lon) < 180 for each in corners) else None  # noqa: PLR2004 (the date line)


def at(spot: Spot, angle: float, bearing: float) -> Spot:
    """Return the place that lies so far away in a direction; its longitude goes on."""
    lat = math.radians(spot.lat)
    there = math.asin(
        math.sin(lat) * math.cos(angle)
        + math.cos(lat) * math.sin(angle) * math.cos(bearing)
    )
    across = math.atan2(
        math.sin(bearing) * math.sin(angle) * math.cos(lat),
        math.cos(angle) - math.sin(lat) * math.sin(there),
    )
    return Spot(math.degrees(there), spot.lon + math.degrees(across))
