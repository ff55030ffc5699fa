"""The points as answers show them: chosen, encoded once, and changed under one lock."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from threading import RLock
from typing import Any

import msgspec

from penstock.sandbox import points
from penstock.sandbox.options import SandboxOptions
from penstock.sandbox.query import Order, Query, select
from penstock.sandbox.reference import hydrate
from penstock.sandbox.world import World

RECENT = timedelta(days=180)
CACHE_BYTES = 512 * 1024 * 1024
DUPLICATES_IN_A_PAGE = 0.07

EVERYTHING = Query(limit=None, order=Order.ID, compact=True)

Form = tuple[bool, bool]


class Catalogue:
    def __init__(self, options: SandboxOptions) -> None:
        self._options = options
        self._world = World(
            records=options.records,
            seed=options.seed,
            bad=options.bad,
            small=options.small,
        )
        self._encoded: dict[Form, dict[int, bytes]] = {}
        self._encoded_bytes = 0
        self._recent_from = 0
        self._lock = RLock()

    def now(self) -> datetime:
        """Return the provider's time, which may differ from the host's."""
        return datetime.now(UTC) + self._options.clock_skew

    def choose(self, query: Query, *, skip: int = 0) -> list[int]:
        """Return the ids that a query selects, after leaving out the first ones."""
        with self._lock:
            if not skip:
                return list(select(self._world, query))
            wide = replace(query, limit=query.limit and query.limit + skip)
            return list(islice(select(self._world, wide), skip, None))

    def encode(self, ids: Sequence[int], query: Query) -> bytes:
        """Return a JSON array of these points."""
        return b"[" + b",".join(self._encode_each(ids, query)) + b"]"

    def stream(self, query: Query, *, batch: int = 1000) -> Iterator[bytes]:
        """Yield a JSON array of all points that a query selects, piece by piece."""
        ids = self.choose(query)
        yield b"["
        comma = b""
        for start in range(0, len(ids), batch):
            with self._lock:
                present = [i for i in ids[start : start + batch] if i in self._world]
            if present:
                yield comma + self.encode(present, query)[1:-1]
                comma = b","
        yield b"]"

    def double(self, ids: list[int], limit: int | None) -> list[int]:
        """Repeat some points of some pages in place, never beyond the limit."""
        if not ids or not self._options.duplicates:
            return ids
        # By content, not by chance: asking again shows the same repeats.
        random = Random(f"{self._options.seed}:{ids[0]}:{len(ids)}")  # noqa: S311
        if random.random() >= self._options.duplicates:
            return ids
        unlucky = random.randrange(len(ids))
        doubled: list[int] = []
        for index, point_id in enumerate(ids):
            repeat = index == unlucky or random.random() < DUPLICATES_IN_A_PAGE
            doubled += [point_id, point_id] if repeat else [point_id]
        return doubled[:limit]

    def expected(
        self, countries: Iterable[int] | None = None, *, compact: bool = True
    ) -> dict[int, dict[str, Any]]:
        """Return the truth: what a client without faults would see now, by id."""
        wanted = None if countries is None else frozenset(countries)
        query = replace(EVERYTHING, countries=wanted, compact=compact)
        with self._lock:
            self._turn_day()
            ids = self.choose(query)
            return {i: self._present(i, (compact, True)) for i in ids}

    def flaws(self) -> dict[int, str]:
        """Return what is wrong with each invalid point, by id."""
        with self._lock:
            found = ((i, self._world.flaw(i)) for i in self._world.ids())
            return {point_id: flaw for point_id, flaw in found if flaw}

    def edit(self, point_id: int, changes: Mapping[str, Any] | None = None) -> None:
        """Change fields by dotted path; by default the title."""
        with self._lock:
            if changes is None:
                title = self._world.point(point_id)["AddressInfo"]["Title"]
                changes = {"AddressInfo.Title": f"{(title or '').strip()} (edited)"}
            self._world.edit(point_id, changes, minute=points.minute_of(self.now()))
            self._forget(point_id)

    def remove(self, point_id: int) -> None:
        with self._lock:
            self._world.remove(point_id)
            self._forget(point_id)

    def add(self) -> int:
        """Add a point and return its id."""
        with self._lock:
            return self._world.add(minute=points.minute_of(self.now()))

    def any_id(self, number: float) -> int | None:
        """Return the id at this share, from 0 up to 1, of all points."""
        with self._lock:
            count = len(self._world)
            return self._world.at(int(number * count)) if count else None

    def status(self) -> dict[str, Any]:
        """Return the body of /v3/system/status."""
        with self._lock:
            newest = self._world.at(-1) if len(self._world) else None
            created = None if newest is None else self._world.created(newest)
            return {
                "SystemVersion": "sandbox",
                "POIDataLastModified": points.timestamp(self._world.last_modified()),
                "POIDataLastCreated": created and points.timestamp(created),
                "MaxPOIId": newest or 0,
                "DataHash": f"{len(self._world)}-{self._world.last_modified()}",
            }

    def _encode_each(self, ids: Sequence[int], query: Query) -> list[bytes]:
        form = (query.compact, query.verbose)
        with self._lock:
            self._turn_day()
            encoded = self._encoded.setdefault(form, {})
            texts = []
            for point_id in ids:
                text = encoded.get(point_id)
                if text is None:
                    text = msgspec.json.encode(self._present(point_id, form))
                    encoded[point_id] = text
                    self._encoded_bytes += len(text)
                texts.append(text)
            if self._encoded_bytes > CACHE_BYTES:
                self._forget_all()
            return texts

    def _present(self, point_id: int, form: Form) -> dict[str, Any]:
        compact, verbose = form
        point = self._world.point(point_id)
        if self._options.small:
            return point
        recent = self._world.modified(point_id) >= self._recent_from
        point = point | {"IsRecentlyVerified": recent}
        if not compact:
            point = hydrate(point)
        return point if verbose else _without_nulls(point)

    def _turn_day(self) -> None:
        # `IsRecentlyVerified` is judged when a point is read: no text outlives its day.
        midnight = self.now().replace(hour=0, minute=0, second=0, microsecond=0)
        recent_from = points.minute_of(midnight - RECENT)
        if recent_from != self._recent_from:
            self._recent_from = recent_from
            self._forget_all()

    def _forget(self, point_id: int) -> None:
        for encoded in self._encoded.values():
            encoded.pop(point_id, None)

    def _forget_all(self) -> None:
        self._encoded.clear()
        self._encoded_bytes = 0


def _without_nulls(point: dict[str, Any]) -> dict[str, Any]:
    # Recursing only into what can hold nulls matters: this runs for every point.
    return {
        name: _without_nulls(value)
        if isinstance(value, dict)
        else [_without_nulls(item) for item in value]
        if isinstance(value, list)
        else value
        for name, value in point.items()
        if value is not None
    }
