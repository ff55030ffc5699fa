"""The points of the sandbox: selected, encoded once, and changed under one lock."""

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
from penstock.sandbox.point_store import PointStore
from penstock.sandbox.query import PointQuery, SortOrder, select
from penstock.sandbox.reference_data import hydrate

RECENT = timedelta(days=180)
CACHE_BYTES = 512 * 1024 * 1024
DUPLICATES_IN_A_PAGE = 0.07

EVERYTHING = PointQuery(limit=None, order=SortOrder.ID, compact=True)

Form = tuple[bool, bool]


class Catalogue:
    def __init__(self, options: SandboxOptions) -> None:
        self._options = options
        self._store = PointStore(
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

    def choose(self, query: PointQuery, *, skip: int = 0) -> list[int]:
        """Return the ids that a query selects, after leaving out the first ones."""
        with self._lock:
            if not skip:
                return list(select(self._store, query))
            wide = replace(query, limit=query.limit and query.limit + skip)
            return list(islice(select(self._store, wide), skip, None))

    def encode(self, ids: Sequence[int], query: PointQuery) -> bytes:
        """Return a JSON array of these points."""
        return b"[" + b",".join(self._encode_points(ids, query)) + b"]"

    def stream(self, query: PointQuery, *, batch: int = 1000) -> Iterator[bytes]:
        """Yield a JSON array of all points that a query selects, in chunks."""
        ids = self.choose(query)
        yield b"["
        comma = b""
        for start in range(0, len(ids), batch):
            with self._lock:
                present = [i for i in ids[start : start + batch] if i in self._store]
            if present:
                yield comma + self.encode(present, query)[1:-1]
                comma = b","
        yield b"]"

    def double(self, ids: list[int], limit: int | None) -> list[int]:
        """Repeat some points of some pages in place, never beyond the limit."""
        if not ids or not self._options.duplicates:
            return ids
        # Seeded by content: the same request returns the same repeats.
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
        """Return what a client without faults would see now, by id."""
        selected = None if countries is None else frozenset(countries)
        query = replace(EVERYTHING, countries=selected, compact=compact)
        with self._lock:
            self._refresh_day()
            ids = self.choose(query)
            return {i: self._present(i, (compact, True)) for i in ids}

    def flaws(self) -> dict[int, str]:
        """Return what is wrong with each invalid point, by id."""
        with self._lock:
            found = ((i, self._store.flaw(i)) for i in self._store.ids())
            return {point_id: flaw for point_id, flaw in found if flaw}

    def edit(self, point_id: int, changes: Mapping[str, Any] | None = None) -> None:
        """Change fields by dotted path; by default the title."""
        with self._lock:
            if changes is None:
                title = self._store.point(point_id)["AddressInfo"]["Title"]
                changes = {"AddressInfo.Title": f"{(title or '').strip()} (edited)"}
            self._store.edit(point_id, changes, minute=points.minute_of(self.now()))
            self._drop_cached(point_id)

    def remove(self, point_id: int) -> None:
        with self._lock:
            self._store.remove(point_id)
            self._drop_cached(point_id)

    def add(self) -> int:
        """Add a point and return its id."""
        with self._lock:
            return self._store.add(minute=points.minute_of(self.now()))

    def any_id(self, number: float) -> int | None:
        """Return the id at this share, from 0 up to 1, of all points."""
        with self._lock:
            count = len(self._store)
            return self._store.at(int(number * count)) if count else None

    def status(self) -> dict[str, Any]:
        """Return the body of /v3/system/status."""
        with self._lock:
            newest = self._store.at(-1) if len(self._store) else None
            created = None if newest is None else self._store.created(newest)
            return {
                "SystemVersion": "sandbox",
                "POIDataLastModified": points.timestamp(self._store.last_modified()),
                "POIDataLastCreated": created and points.timestamp(created),
                "MaxPOIId": newest or 0,
                "DataHash": f"{len(self._store)}-{self._store.last_modified()}",
            }

    def _encode_points(self, ids: Sequence[int], query: PointQuery) -> list[bytes]:
        form = (query.compact, query.verbose)
        with self._lock:
            self._refresh_day()
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
                self._clear_cache()
            return texts

    def _present(self, point_id: int, form: Form) -> dict[str, Any]:
        compact, verbose = form
        point = self._store.point(point_id)
        if self._options.small:
            return point
        recent = self._store.modified(point_id) >= self._recent_from
        point = point | {"IsRecentlyVerified": recent}
        if not compact:
            point = hydrate(point)
        return point if verbose else _without_nulls(point)

    def _refresh_day(self) -> None:
        # `IsRecentlyVerified` depends on the day: cached texts expire at midnight.
        midnight = self.now().replace(hour=0, minute=0, second=0, microsecond=0)
        recent_from = points.minute_of(midnight - RECENT)
        if recent_from != self._recent_from:
            self._recent_from = recent_from
            self._clear_cache()

    def _drop_cached(self, point_id: int) -> None:
        for encoded in self._encoded.values():
            encoded.pop(point_id, None)

    def _clear_cache(self) -> None:
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
