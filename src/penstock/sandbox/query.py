"""Queries: parsed as leniently as by the real provider, then filtered and ordered."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from itertools import islice
from math import asin, cos, radians, sin, sqrt

from penstock.sandbox.geography import COUNTRY_BY_ISO, PLACES
from penstock.sandbox.point_store import PointStore

DEFAULT_LIMIT = 100
DEFAULT_RADIUS_KM = 50.0
KM_PER_MILE = 1.609344
KM_PER_DEGREE = 111.2
EARTH_RADIUS_KM = 6371.0

Box = tuple[float, float, float, float]

_BOX = re.compile(r"\(([^,()]+),([^,()]+)\),\(([^,()]+),([^,()]+)\)")
_EXACT = {
    "operatorid": "OperatorID",
    "usagetypeid": "UsageTypeID",
    "statustypeid": "StatusTypeID",
    "dataproviderid": "DataProviderID",
    "chargepointid": "ID",
    "id": "ID",
}


class SortOrder(Enum):
    ID_DESCENDING = auto()
    ID = auto()
    MODIFIED = auto()
    CREATED = auto()
    SPATIAL = auto()
    DISTANCE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class PointQuery:
    """Which points, in which order and format; the box is south, west, north, east."""

    limit: int | None = DEFAULT_LIMIT
    after: int = 0
    countries: frozenset[int] | None = None
    box: Box | None = None
    near: tuple[float, float] | None = None
    radius_km: float = DEFAULT_RADIUS_KM
    since: datetime | None = None
    before: datetime | None = None
    created_since: datetime | None = None
    exact: tuple[tuple[str, frozenset[int]], ...] = ()
    order: SortOrder = SortOrder.ID_DESCENDING
    compact: bool = False
    verbose: bool = True


def parse(parameters: Mapping[str, str]) -> PointQuery:
    """Parse parameters with lower-case names; invalid ones are ignored."""
    box = _box(parameters.get("boundingbox", ""))
    near = None if box else _near(parameters)
    return PointQuery(
        limit=max(0, integer(parameters.get("maxresults"), DEFAULT_LIMIT)),
        after=integer(parameters.get("greaterthanid"), 0),
        countries=_countries(parameters),
        box=box,
        near=near,
        radius_km=_radius(parameters),
        since=moment(parameters.get("modifiedsince")),
        created_since=moment(parameters.get("createdsince")),
        exact=tuple(
            (field, numbers)
            for name, field in _EXACT.items()
            if (numbers := _integers(parameters.get(name, "")))
        ),
        order=_order(parameters.get("sortby", ""), box, near),
        compact=truth(parameters.get("compact"), default=False),
        verbose=truth(parameters.get("verbose"), default=True),
    )


def select(store: PointStore, query: PointQuery) -> Iterator[int]:
    """Yield the ids that match, in order, at most as many as the limit."""
    ids = _filtered(store, query)
    match query.order:
        case SortOrder.ID | SortOrder.ID_DESCENDING:
            pass
        case SortOrder.MODIFIED:
            ids = iter(sorted(ids, key=lambda i: (store.modified(i), _scatter(i))))
        case SortOrder.CREATED:
            ids = iter(sorted(ids, key=lambda i: (store.created(i), _scatter(i))))
        case SortOrder.SPATIAL:
            ids = iter(sorted(ids, key=lambda i: (store.place_index(i), _scatter(i))))
        case SortOrder.DISTANCE:
            centre = query.near or (0.0, 0.0)
            ids = iter(
                sorted(ids, key=lambda i: _distance_km(centre, store.coordinates(i)))
            )
    return islice(ids, query.limit)


def integer(text: str | None, default: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        return default


def moment(text: str | None) -> datetime | None:
    """Parse a date or time, in UTC if it has no time zone."""
    try:
        value = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def truth(text: str | None, *, default: bool) -> bool:
    return {"true": True, "false": False}.get((text or "").strip().lower(), default)


def _filtered(store: PointStore, query: PointQuery) -> Iterator[int]:
    ids = store.ids(
        query.countries,
        after=query.after,
        descending=query.order is SortOrder.ID_DESCENDING,
    )
    if query.since:
        since = query.since.timestamp()
        ids = (i for i in ids if store.modified(i) * 60 >= since)
    if query.before:
        before = query.before.timestamp()
        ids = (i for i in ids if store.modified(i) * 60 < before)
    if query.created_since:
        created = query.created_since.timestamp()
        ids = (i for i in ids if store.created(i) * 60 >= created)
    if query.box:
        ids = _inside(store, ids, query.box)
    if query.near:
        ids = _around(store, ids, query.near, query.radius_km)
    for field, values in query.exact:
        ids = _matching(store, ids, field, values)
    return ids


def _matching(
    store: PointStore, ids: Iterable[int], field: str, values: frozenset[int]
) -> Iterator[int]:
    return (i for i in ids if store.point(i).get(field) in values)


def _inside(store: PointStore, ids: Iterable[int], box: Box) -> Iterator[int]:
    """Keep what lies in the box; all four edges belong to it."""
    south, west, north, east = box
    # Towns far from the box are skipped without generating their points.
    close = {
        index
        for index, place in enumerate(PLACES)
        if south - place.spread <= place.latitude <= north + place.spread
        and west - place.spread <= place.longitude <= east + place.spread
    }
    for point_id in ids:
        if store.place_index(point_id) in close or store.is_edited(point_id):
            latitude, longitude = store.coordinates(point_id)
            if south <= latitude <= north and west <= longitude <= east:
                yield point_id


def _around(
    store: PointStore, ids: Iterable[int], centre: tuple[float, float], radius_km: float
) -> Iterator[int]:
    high = radius_km / KM_PER_DEGREE
    wide = high / max(0.01, cos(radians(min(89.0, abs(centre[0]) + high))))
    latitude, longitude = centre
    box = (latitude - high, longitude - wide, latitude + high, longitude + wide)
    for point_id in _inside(store, ids, box):
        if _distance_km(centre, store.coordinates(point_id)) <= radius_km:
            yield point_id


def _distance_km(one: tuple[float, float], other: tuple[float, float]) -> float:
    a, b = radians(one[0]), radians(other[0])
    across = sin(radians(other[1] - one[1]) / 2) ** 2 * cos(a) * cos(b)
    return 2 * EARTH_RADIUS_KM * asin(sqrt(min(1.0, sin((b - a) / 2) ** 2 + across)))


def _scatter(point_id: int) -> int:
    # The provider has no second sort key: ties come in an order that is not the id's.
    return point_id * 2_654_435_761 % 4_294_967_296


def _integers(text: str) -> frozenset[int]:
    items = (item.strip() for item in text.split(","))
    return frozenset(int(item) for item in items if re.fullmatch(r"-?[0-9]+", item))


def _countries(parameters: Mapping[str, str]) -> frozenset[int] | None:
    # An unknown code drops the filter: all countries are returned.
    named = COUNTRY_BY_ISO.get(parameters.get("countrycode", "").strip().upper())
    by_code = frozenset({named.id}) if named else None
    by_id = _integers(parameters.get("countryid", "")) or None
    if by_code is not None and by_id is not None:
        return by_code & by_id
    return by_code if by_id is None else by_id


def _box(text: str) -> Box | None:
    match = _BOX.fullmatch(text.replace(" ", ""))
    if not match:
        return None
    try:
        a, b, c, d = (float(number) for number in match.groups())
    except ValueError:
        return None
    south, north = sorted(max(-90.0, min(90.0, number)) for number in (a, c))
    west, east = sorted(max(-180.0, min(180.0, number)) for number in (b, d))
    return south, west, north, east


def _near(parameters: Mapping[str, str]) -> tuple[float, float] | None:
    try:
        latitude = float(parameters["latitude"])
        longitude = float(parameters["longitude"])
    except (KeyError, ValueError):
        return None
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):  # noqa: PLR2004 - degrees
        return None
    return latitude, longitude


def _radius(parameters: Mapping[str, str]) -> float:
    try:
        distance = float(parameters["distance"])
    except (KeyError, ValueError):
        return DEFAULT_RADIUS_KM
    unit = parameters.get("distanceunit", "").lower()
    return distance if unit == "km" else distance * KM_PER_MILE


def _order(text: str, box: Box | None, near: tuple[float, float] | None) -> SortOrder:
    if near:
        return SortOrder.DISTANCE
    named = {
        "id_asc": SortOrder.ID,
        "modified_asc": SortOrder.MODIFIED,
        "created_asc": SortOrder.CREATED,
    }
    return named.get(
        text.lower(), SortOrder.SPATIAL if box else SortOrder.ID_DESCENDING
    )
