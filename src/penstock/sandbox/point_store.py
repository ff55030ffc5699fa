"""Which points exist, where and since when, and their changes."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from heapq import merge
from itertools import accumulate
from random import Random
from typing import Any

from penstock.sandbox import points
from penstock.sandbox.geography import COUNTRIES, PLACES

FIRST_MINUTE = points.minute_of(datetime(2014, 1, 1, tzinfo=UTC))
LAST_MINUTE = points.minute_of(datetime(2026, 6, 1, tzinfo=UTC))
# One bulk import of the real data set this minute on a quarter of all points.
BULK_MINUTE = points.minute_of(datetime(2017, 11, 4, 14, 4, tzinfo=UTC))
_POOL = 40_000
_GAPS = (1, 1, 1, 1, 2, 2, 3, 8)


class PointStore:
    """The points of one seed.

    Only the id, place and minute of each point are stored, by id in flat arrays, so
    that a million points load in about a second; the rest is generated on demand.
    """

    def __init__(
        self, *, records: int, seed: int, bad: float = 0.0, small: bool = False
    ) -> None:
        self._seed = seed
        self._bad = bad
        self._build = points.small_point if small else points.full_point
        self._edited: dict[int, dict[str, Any]] = {}
        ids = array("I", accumulate(_random("ids", seed).choices(_GAPS, k=records)))
        self._ids = ids
        self.max_id = ids[-1] if ids else 0
        self._place_by_id = array("H", bytes(2 * (self.max_id + 1)))
        self._modified_by_id = array("I", bytes(4 * (self.max_id + 1)))
        self._ids_by_country = {country.id: array("I") for country in COUNTRIES}
        self._fill()

    def _fill(self) -> None:
        records = len(self._ids)
        dates = _random("dates", self._seed)
        pool = [BULK_MINUTE] * (_POOL // 4)
        pool += dates.choices(range(FIRST_MINUTE, LAST_MINUTE), k=_POOL - len(pool))
        places = _random("places", self._seed).choices(
            range(len(PLACES)), weights=[place.weight for place in PLACES], k=records
        )
        lists = [self._ids_by_country[place.country.id] for place in PLACES]
        minutes = dates.choices(pool, k=records)
        for point_id, place, minute in zip(self._ids, places, minutes, strict=True):
            self._place_by_id[point_id] = place
            self._modified_by_id[point_id] = minute
            lists[place].append(point_id)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, point_id: int) -> bool:
        index = bisect_left(self._ids, point_id)
        return index < len(self._ids) and self._ids[index] == point_id

    def at(self, index: int) -> int:
        """Return the id at this position in ascending order."""
        return self._ids[index]

    def ids(
        self,
        countries: Iterable[int] | None = None,
        *,
        after: int = 0,
        descending: bool = False,
    ) -> Iterator[int]:
        """Yield the ids above `after`, in order, lazily."""
        if countries is None:
            return _above(self._ids, after, descending=descending)
        lists = [
            _above(self._ids_by_country[country], after, descending=descending)
            for country in countries
            if country in self._ids_by_country
        ]
        return iter(merge(*lists, reverse=descending))

    def modified(self, point_id: int) -> int:
        """Return the minute of the last change."""
        return self._modified_by_id[point_id]

    def last_modified(self) -> int:
        return max(self._modified_by_id, default=0)

    def created(self, point_id: int) -> int:
        if edited := self._edited.get(point_id):
            created = edited.get("DateCreated", edited["DateLastStatusUpdate"])
            return points.minute_of(datetime.fromisoformat(created))
        draw = points.draws(self._seed, point_id)
        return points.created_minute(self._modified_by_id[point_id], draw)

    def place_index(self, point_id: int) -> int:
        return self._place_by_id[point_id]

    def is_edited(self, point_id: int) -> bool:
        return point_id in self._edited

    def coordinates(self, point_id: int) -> tuple[float, float]:
        if edited := self._edited.get(point_id):
            address = edited["AddressInfo"]
            return address["Latitude"], address["Longitude"]
        place = PLACES[self._place_by_id[point_id]]
        return points.coordinates(place, points.draws(self._seed, point_id))

    def point(self, point_id: int) -> dict[str, Any]:
        """Return the point as a compact, verbose response shows it."""
        if edited := self._edited.get(point_id):
            return edited
        point = self._sound_point(point_id)
        kind = self._flaw_kind(point_id)
        return point if kind is None else points.spoil(point, kind)[0]

    def flaw(self, point_id: int) -> str | None:
        """Return what is wrong with an invalid point."""
        kind = self._flaw_kind(point_id)
        if kind is None or point_id in self._edited:
            return None
        return points.spoil(self._sound_point(point_id), kind)[1]

    def edit(self, point_id: int, changes: Mapping[str, Any], *, minute: int) -> None:
        """Change fields by dotted path, `AddressInfo.Title` say; this removes flaws."""
        if point_id not in self:
            raise KeyError(point_id)
        before = self._edited.get(point_id) or self._sound_point(point_id)
        point = {**before, "AddressInfo": dict(before["AddressInfo"])}
        for path, value in changes.items():
            *parents, name = path.split(".")
            target = point
            for parent in parents:
                target = target[parent]
            target[name] = value
        point["DateLastStatusUpdate"] = points.timestamp(minute)
        self._edited[point_id] = point
        self._modified_by_id[point_id] = minute
        was = before["AddressInfo"]["CountryID"]
        now = point["AddressInfo"]["CountryID"]
        if was != now:
            _discard(self._ids_by_country[was], point_id)
            ids = self._ids_by_country.setdefault(now, array("I"))
            ids.insert(bisect_left(ids, point_id), point_id)

    def remove(self, point_id: int) -> None:
        """Remove a point without a trace, as the provider does."""
        if point_id not in self:
            raise KeyError(point_id)
        _discard(self._ids, point_id)
        for ids in self._ids_by_country.values():
            _discard(ids, point_id)
        # Its data stays readable: a request in progress may have selected it already.

    def add(self, *, minute: int) -> int:
        """Add a point with a new highest id, created in this minute."""
        self.max_id = point_id = self.max_id + 1
        place = points.draws(self._seed, point_id)[29] % len(PLACES)
        self._ids.append(point_id)
        self._ids_by_country[PLACES[place].country.id].append(point_id)
        self._place_by_id.append(place)
        self._modified_by_id.append(minute)
        point = self._sound_point(point_id)
        if "DateCreated" in point:
            point["DateCreated"] = points.timestamp(minute)
        self._edited[point_id] = point
        return point_id

    def _sound_point(self, point_id: int) -> dict[str, Any]:
        place = PLACES[self._place_by_id[point_id]]
        modified = self._modified_by_id[point_id]
        return self._build(self._seed, point_id, place, modified)

    def _flaw_kind(self, point_id: int) -> int | None:
        if not self._bad:
            return None
        draw = points.draws(self._seed, point_id)
        return draw[30] if draw[31] < self._bad * points.DRAW_RANGE else None


def _random(purpose: str, seed: int) -> Random:
    # One generator per purpose: a larger store starts with the points of a smaller.
    return Random(f"{purpose}:{seed}")  # noqa: S311 - repeatable on purpose


def _above(ids: "array[int]", after: int, *, descending: bool) -> Iterator[int]:
    start = bisect_right(ids, after)
    positions = range(start, len(ids))
    return map(ids.__getitem__, reversed(positions) if descending else positions)


def _discard(ids: "array[int]", point_id: int) -> None:
    index = bisect_left(ids, point_id)
    if index < len(ids) and ids[index] == point_id:
        del ids[index]
