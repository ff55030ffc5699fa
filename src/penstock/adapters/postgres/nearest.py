"""Find the nearest rows that fit.

If all that fit are known, they only have to be sorted. Otherwise the first ones are
looked for from the place outwards, which an index can do by degrees. Degrees of
longitude are shorter than those of latitude, and begin anew at the date line, so these
rows need not be the nearest; but whatever is as near as the last of them lies in boxes
around the place.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.adapters.postgres.asking import ONE_BY_ONE
from penstock.adapters.postgres.inquiry import Inquiry
from penstock.adapters.postgres.pools import Pool, counted
from penstock.adapters.postgres.searched import (
    has_place,
    in_boxes,
    kilometres,
    place_of,
)
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.searched import Found
from penstock.adapters.sql.selects import Where
from penstock.domain.queries.geo import FARTHEST_KM, Spot, boxes_around
from penstock.domain.queries.search import MOST_CANDIDATES, SearchQuery
from penstock.domain.queries.words import Term

# a box is made for so many times the rows that are wanted
ROOM = 1.5
# beyond that, the date line may be nearer than what lies on this side of it
FAR_EAST = 90


@dataclass(frozen=True, slots=True)
class Outwards:
    """One look for the nearest rows."""

    inquiry: Inquiry
    asked: SearchQuery
    terms: Sequence[Term]
    spot: Spot

    def __call__(self) -> Found:
        limits = self.inquiry.limits
        wanted = min(self.asked.offset + self.asked.limit + 1, MOST_CANDIDATES)
        if not self.terms and not self.asked.conditions:
            return self._from_nearest(wanted, most=wanted)
        most = limits.sorted if self.terms else limits.ranked
        # if a sample has enough, it is not what is told
        enough = limits.sorted_of_sample
        pool = self.inquiry.pool(
            self.asked, self.terms, most=most, enough=enough, of_sample=enough
        )
        found = self._told(pool)
        if not found.is_capped:
            return found
        most = limits.nearest_judged if self.terms else limits.nearest
        return self._from_nearest(wanted, most=most)

    def _from_nearest(self, wanted: int, *, most: int) -> Found:
        """Look at so many rows, or as many as it takes, from the place outwards."""
        reach, fitting = self._reach(wanted, most=most)
        if fitting >= wanted:
            return self._within(reach)
        looked_at, radius = self._looked_at(most=most)
        if looked_at < most:
            # there are no others
            within = self.asked.within
            return self._within(FARTHEST_KM if within is None else within)
        rows = float(looked_at)
        most_rows = self.inquiry.limits.in_box
        share = self.inquiry.share(self.terms, self.asked.conditions)
        while True:
            likely = max(fitting, share * rows, 1)
            grow = min(ROOM * wanted / likely, most_rows / rows)
            if grow <= 1:
                break
            radius, rows = radius * math.sqrt(grow), rows * grow
            is_small = rows <= self.inquiry.limits.judged_in_box
            around = self._around(self._empty(), radius)
            found = self._judged(around) if is_small else self._told(around)
            fitting = found.candidates
            if fitting >= wanted or radius >= FARTHEST_KM:
                return found
            # what was expected did not come true
            share = 0.0
        # too few of so many fit; some others are better than none
        most = self.inquiry.limits.ranked
        pool = self.inquiry.pool(self.asked, self.terms, most=most)
        return self._told(self._around(pool, radius))

    def _reach(self, wanted: int, *, most: int) -> tuple[float, int]:
        """Return how far the last of those lies that are wanted, and how many fit."""
        pool = self._empty()
        where, dataset = pool.where, pool.of.dataset
        fits = " and ".join([str(where), *self._has_words(pool)])
        key = ", ".join(map(quoted, dataset.key))
        away = kilometres(dataset, self.spot, where)
        parts = [
            f"(select {key}, {away} as _km from ({rows}) as _near "
            f"where {fits} limit {wanted:d})"
            for rows in self._sorted(where, most=most)
        ]
        ((fitting, reach),) = self.inquiry.ask(
            "select count(*), max(_km) from (select _km from "
            # each row once, from whichever side it was seen
            f"({' union '.join(parts)}) as _fitting order by _km limit {wanted:d}) "
            "as _first",
            where.given,
            settings=ONE_BY_ONE,
        )
        return reach or 0.0, fitting

    def _looked_at(self, *, most: int) -> tuple[int, float]:
        """Return how many rows there were to look at, and how far they go."""
        where = self._empty().where
        away = kilometres(self.inquiry.of.dataset, self.spot, where)
        first, *_ = self._sorted(where, most=most)
        ((rows, radius),) = self.inquiry.ask(
            f"select count(*), max({away}) from ({first}) as _near",
            where.given,
            settings=ONE_BY_ONE,
        )
        return rows, radius or 0.0

    def _sorted(self, where: Where, *, most: int) -> Iterator[str]:
        """Compose the rows that are nearest by degrees."""
        of = self.inquiry.of
        around = Where(where.dialect, where.given)
        around.clauses.append(has_place(of.dataset))
        if self.asked.within is not None:
            boxes = boxes_around(self.spot, self.asked.within)
            around.clauses.append(f"({in_boxes(of.dataset, boxes, where)})")
        starts = [self.spot.lon]
        if abs(self.spot.lon) > FAR_EAST:
            # where the place would be, seen from beyond the date line
            starts.append(self.spot.lon - math.copysign(360, self.spot.lon))
        for lon in starts:
            start = f"point({where.mark(lon)}, {where.mark(self.spot.lat)})"
            yield (
                f"select * from {of.name} where {around} "
                f"order by {place_of(of.dataset)} <-> {start} limit {most:d}"
            )

    def _within(self, km: float) -> Found:
        return self._judged(self._around(self._empty(), km))

    def _around(self, pool: Pool, km: float) -> Pool:
        """Add the rows that fit within a distance."""
        dataset, where = pool.of.dataset, pool.where
        boxes = in_boxes(dataset, boxes_around(self.spot, km), where)
        away = kilometres(dataset, self.spot, where)
        within = f"({boxes}) and {away} <= {where.mark(km)}"
        most = self.inquiry.limits.around
        pool.add("_around", within, *self._has_words(pool), limit=most + 1)
        pool.capped = f"({pool.capped} or {counted('_around')} > {most})"
        return pool

    def _empty(self) -> Pool:
        limits = self.inquiry.limits
        return self.inquiry.empty_pool(self.asked, most=limits.around)

    def _has_words(self, pool: Pool) -> Sequence[str]:
        return [pool.judged(self.terms)] if self.terms else []

    def _judged(self, pool: Pool) -> Found:
        # a box is small: rather judge its rows than read all that have the words
        told = self.inquiry.told
        return told(self.asked, self.terms, pool, settings=ONE_BY_ONE)

    def _told(self, pool: Pool) -> Found:
        return self.inquiry.told(self.asked, self.terms, pool)
