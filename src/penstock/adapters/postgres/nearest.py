"""Find the nearest rows that fit.

If all that fit are known, they only have to be sorted. Otherwise the first ones are
looked for from the place outwards, which an index can do by degrees. Degrees of
longitude are shorter than those of latitude, and begin anew at the date line, so these
rows need not be the nearest; but whatever is as near as the last of them lies in a ring
around the place, or in boxes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.adapters.postgres.asking import ONE_BY_ONE
from penstock.adapters.postgres.inquiry import Inquiry
from penstock.adapters.postgres.pools import Pool, counted
from penstock.adapters.postgres.searched import (
    has_place,
    in_circle,
    kilometres,
    place_of,
)
from penstock.adapters.postgres.ways import Ways
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.searched import Found
from penstock.adapters.sql.selects import Where
from penstock.domain.queries.geo import FARTHEST_KM, Spot
from penstock.domain.queries.search import MOST_CANDIDATES, TOO_FEW, SearchQuery
from penstock.domain.queries.words import Term

# a ring is made for more rows than are wanted, by so many times the root of their
# number, which is what it varies by; where the lists of words are read anyway, a wider
# one costs little
ROOM, WIDE = 2.5, 6.0
# if fewer than this part of them are found, or hardly more than in the ring before,
# rows do not lie as it was thought
FAR_TOO_FEW, HARDLY_MORE = 0.25, 1.2
# how many times larger the next ring is, at least
NEXT = 2.0
# microseconds that it takes to read a row that has the words, and to sort it
SORTED = 3.0
# kilometres below which all rows are at one spot
ONE_SPOT = 0.1
# how much shorter a degree of longitude may be, before a pole spoils any guess
NARROWEST = 0.2
# beyond that, the date line may be nearer than what lies on this side of it
FAR_EAST = 90


class LieElsewhere(Exception):
    """Rows with the words are rarer here than all over the table."""


@dataclass(slots=True)
class Ring:
    """Some way around a place, as it is thought to be."""

    radius: float
    # that lie there
    rows: float
    # how many fit of those that were there before it grew
    expected: float

    def grow(self, times: float, *, most: float) -> None:
        rows = min(self.rows * times, most)
        self.radius *= math.sqrt(rows / self.rows)
        self.rows = rows


@dataclass(frozen=True, slots=True)
class Outwards:
    """One look for the nearest rows."""

    inquiry: Inquiry
    asked: SearchQuery
    terms: Sequence[Term]
    spot: Spot

    def __call__(self) -> Found:
        limits = self.inquiry.limits
        # whether words are mistyped is told by how many rows have them
        wanted = max(self.asked.offset + self.asked.limit + 1, TOO_FEW)
        wanted = min(wanted, MOST_CANDIDATES)
        if not self.terms and not self.asked.conditions:
            return self._from_nearest(wanted, most=wanted)
        ways = None
        if self.terms:
            ways = self.inquiry.ways(self.terms, self.asked.conditions)
        most = limits.nearest_judged if self.terms else limits.nearest
        are_many = ways is not None and (ways.having or 0) > 2 * limits.sorted
        if ways is not None and not are_many and self._is_less_around(ways, wanted):
            try:
                return self._from_nearest(wanted, most=most, ways=ways, insist=False)
            except LieElsewhere:
                pass
        if not are_many:
            found = self._all(ways)
            if not found.is_capped:
                return found
        return self._from_nearest(wanted, most=most, ways=ways)

    def _is_less_around(self, ways: Ways, wanted: int) -> bool:
        """Say whether it is less work to look around than to sort all that fit."""
        if not ways.having:
            return False
        around = min(
            ways.judging * rows_for(wanted, room=ROOM) / ways.share,
            ways.listing_around(rows_for(wanted, room=WIDE) / ways.share),
        )
        return SORTED * ways.having > around

    def _all(self, ways: Ways | None) -> Found:
        """Sort all rows that fit, if they are few enough."""
        limits = self.inquiry.limits
        most = limits.sorted if self.terms else limits.ranked
        # if a sample has enough, it is not what is told
        enough = limits.sorted_of_sample
        pool = self.inquiry.pool(
            self.asked,
            self.terms,
            most=most,
            enough=enough,
            of_sample=enough,
            ways=ways,
        )
        return self._told(pool)

    def _from_nearest(
        self, wanted: int, *, most: int, ways: Ways | None = None, insist: bool = True
    ) -> Found:
        """Look at so many rows, or as many as it takes, from the place outwards.

        If all that fit could be sorted as well, nobody insists: `LieElsewhere` is
        raised where hardly any are here.
        """
        share, fitting = 0.0 if ways is None else ways.share, 0
        # too few will fit; how densely rows lie here is soon known
        if 0 < share * most < wanted:
            most = min(most, self.inquiry.limits.nearest_known)
        else:
            reach, fitting = self._reach(wanted, most=most)
            if fitting >= wanted:
                return self._within(reach)
        looked_at, radius = self._looked_at(most=most)
        if looked_at < most:
            # there are no others
            return self._within(self._farthest)
        rows = self._in_circle(looked_at)
        ring = Ring(radius, rows, max(fitting, share * rows, 1))
        return self._in_rings(ring, wanted, ways=ways, insist=insist)

    def _in_rings(
        self, ring: Ring, wanted: int, *, ways: Ways | None, insist: bool
    ) -> Found:
        """Take all rows of a ring, and of larger ones, until there are enough."""
        limits, least, before = self.inquiry.limits, 1.0, 0
        has_looked = False
        while ring.rows < limits.in_box:
            judged, listed = (
                max(rows_for(wanted, room=room) / ring.expected, least)
                for room in (ROOM, WIDE)
            )
            is_judged = ways is None or (
                ways.judging * judged * ring.rows
                <= ways.listing_around(listed * ring.rows)
            )
            ring.grow(judged if is_judged else listed, most=limits.in_box)
            ring.radius = min(ring.radius, self._farthest)
            found = self._in_ring(ring, None if is_judged else ways)
            fitting = found.candidates
            if fitting >= wanted or ring.radius >= self._farthest:
                return found
            is_stuck = fitting < max(FAR_TOO_FEW * wanted, HARDLY_MORE * before)
            if is_stuck and not insist:
                raise LieElsewhere
            if is_stuck and not has_looked:
                # many rows may lie at one spot
                looked_at, farther = self._looked_at(most=limits.nearest)
                if looked_at < limits.nearest:
                    return self._within(self._farthest)
                if farther > ring.radius:
                    ring.radius, ring.rows = farther, self._in_circle(looked_at)
                has_looked = True
            ring.expected = max(fitting - math.sqrt(fitting), 1)
            least, before = NEXT, fitting
        if not insist:
            raise LieElsewhere
        # too few of so many fit; some others are better than none
        most = limits.ranked
        pool = self.inquiry.pool(self.asked, self.terms, most=most, ways=ways)
        return self._told(self._around(pool, ring.radius))

    def _in_ring(self, ring: Ring, ways: Ways | None) -> Found:
        """Judge all rows of a ring, or look for them in the lists of the words."""
        if ways is None:
            return self._within(ring.radius)
        terms = ways.by_words(self.terms)
        return self._told(self._around(self._empty(), ring.radius, terms))

    @property
    def _farthest(self) -> float:
        within = self.asked.within
        return FARTHEST_KM if within is None else min(within, FARTHEST_KM)

    def _in_circle(self, looked_at: int) -> float:
        """Return how many rows lie as near as the farthest that was looked at.

        What is round in degrees is an ellipse; as far as its ends there are more.
        """
        return looked_at / max(math.cos(math.radians(self.spot.lat)), NARROWEST)

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
        return rows, max(radius or 0.0, ONE_SPOT)

    def _sorted(self, where: Where, *, most: int) -> Iterator[str]:
        """Compose the rows that are nearest by degrees."""
        of = self.inquiry.of
        around = Where(where.dialect, where.given)
        around.clauses.append(has_place(of.dataset))
        if self.asked.within is not None:
            circle = in_circle(of.dataset, self.spot, self.asked.within, where)
            around.clauses.append(f"({circle})")
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

    def _around(
        self, pool: Pool, km: float, terms: Sequence[Term] | None = None
    ) -> Pool:
        """Add the rows that fit within a distance; the words may be given otherwise."""
        dataset, where = pool.of.dataset, pool.where
        circle = in_circle(dataset, self.spot, km, where)
        away = kilometres(dataset, self.spot, where)
        within = f"({circle}) and {away} <= {where.mark(km)}"
        most = self.inquiry.limits.around
        has_words = self._has_words(pool) if terms is None else [pool.has(terms)]
        pool.add("_around", within, *has_words, limit=most + 1)
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


def rows_for(wanted: int, *, room: float) -> float:
    """Return how many rows to expect so that those that are wanted will be there."""
    return wanted + room * math.sqrt(wanted)
