"""Find the nearest rows that match.

If few rows match, all of them are sorted by distance. Otherwise rows are read outwards
from the center, which an index can do by degrees. Degrees of longitude are shorter than
those of latitude, and wrap around at the date line, so these rows need not be the
nearest; but all rows that are as near as the last of them lie in a ring around the
center, or in boxes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.adapters.postgres.search.candidates import CandidateQuery, count_of
from penstock.adapters.postgres.search.planner import SearchPlan
from penstock.adapters.postgres.search.query import SearchSqlBuilder
from penstock.adapters.postgres.search.session import INDEX_SCAN_SETTINGS
from penstock.adapters.postgres.search.sql import (
    has_coordinates,
    in_circle,
    kilometres,
    point_of,
)
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.table_protocols import FoundRow
from penstock.adapters.sqlstore.where_builder import Where
from penstock.domain.search.geo import MAX_DISTANCE_KM, GeoPoint
from penstock.domain.search.search_query import (
    MAX_CANDIDATES,
    MIN_EXACT_MATCHES,
    SearchQuery,
)
from penstock.domain.search.tokenizer import Term

# a ring is made for more rows than requested, by so many standard deviations (the root
# of their number); where the posting lists are read anyway, a wider one costs little
MARGIN, WIDE_MARGIN = 2.5, 6.0
# if the share of the requested rows, or the growth over the ring before, is below this,
# the estimate of the density was wrong
MIN_FOUND_SHARE, MIN_GROWTH = 0.25, 1.2
# how many times more rows the next ring should have, at least
NEXT_RING_FACTOR = 2.0
# microseconds to read a row that has the words, and to sort it
SORT_COST = 3.0
# kilometres
MIN_RADIUS = 0.1
# the least cosine of the latitude, since estimates near a pole are useless
MIN_COSINE = 0.2
# degrees of longitude beyond which rows across the date line may be nearer
DATE_LINE_LONGITUDE = 90


class OutsideRing(Exception):
    """Rows with the words are rarer around the center than in the whole table."""


@dataclass(slots=True)
class DistanceRing:
    """A ring around the center, with estimates of its rows."""

    radius: float
    rows: float
    # rows that match, before it grew
    expected: float

    def grow(self, factor: float, *, max_rows: float) -> None:
        rows = min(self.rows * factor, max_rows)
        self.radius *= math.sqrt(rows / self.rows)
        self.rows = rows


@dataclass(frozen=True, slots=True)
class NearestSearch:
    """One search for the nearest rows."""

    builder: SearchSqlBuilder
    query: SearchQuery
    terms: Sequence[Term]
    center: GeoPoint

    def __call__(self) -> FoundRow:
        limits = self.builder.limits
        # at least so many that the caller can tell mistyped words, which few rows have
        requested = max(self.query.offset + self.query.limit + 1, MIN_EXACT_MATCHES)
        requested = min(requested, MAX_CANDIDATES)
        if not self.terms and not self.query.conditions:
            return self._from_nearest(requested, most=requested)
        plan = None
        if self.terms:
            plan = self.builder.plan(self.terms, self.query.conditions)
        most = limits.nearest_judged if self.terms else limits.nearest
        are_many = plan is not None and (plan.rows_with_words or 0) > 2 * limits.sorted
        if (
            plan is not None
            and not are_many
            and self._is_cheaper_around(plan, requested)
        ):
            try:
                return self._from_nearest(
                    requested, most=most, plan=plan, is_required=False
                )
            except OutsideRing:
                pass
        if not are_many:
            found = self._sort_all(plan)
            if not found.is_capped:
                return found
        return self._from_nearest(requested, most=most, plan=plan)

    def _is_cheaper_around(self, plan: SearchPlan, requested: int) -> bool:
        """Return whether reading outwards is cheaper than sorting all that match."""
        if not plan.rows_with_words:
            return False
        around = min(
            plan.check_cost * rows_for(requested, margin=MARGIN) / plan.share,
            plan.list_cost_around(rows_for(requested, margin=WIDE_MARGIN) / plan.share),
        )
        return SORT_COST * plan.rows_with_words > around

    def _sort_all(self, plan: SearchPlan | None) -> FoundRow:
        """Sort all rows that match, if they are few enough."""
        limits = self.builder.limits
        most = limits.sorted if self.terms else limits.ranked
        # if a sample has enough, there are too many: its rows are not the result
        enough = limits.sorted_of_sample
        candidates = self.builder.candidates(
            self.query,
            self.terms,
            most=most,
            enough=enough,
            of_sample=enough,
            plan=plan,
        )
        return self._best_matches(candidates)

    def _from_nearest(
        self,
        requested: int,
        *,
        most: int,
        plan: SearchPlan | None = None,
        is_required: bool = True,
    ) -> FoundRow:
        """Read up to so many rows outwards from the center, and then rings around it.

        With `is_required` false, all that match could be sorted instead: then
        `OutsideRing` is raised where hardly any are near.
        """
        share, matching = 0.0 if plan is None else plan.share, 0
        # too few will match; a small number shows the density
        if 0 < share * most < requested:
            most = min(most, self.builder.limits.nearest_known)
        else:
            distance, matching = self._nearest_matches(requested, most=most)
            if matching >= requested:
                return self._within(distance)
        read, radius = self._nearest_rows(most=most)
        if read < most:
            # there are no others
            return self._within(self._max_distance)
        rows = self._rows_in_circle(read)
        ring = DistanceRing(radius, rows, max(matching, share * rows, 1))
        return self._in_rings(ring, requested, plan=plan, is_required=is_required)

    def _in_rings(
        self,
        ring: DistanceRing,
        requested: int,
        *,
        plan: SearchPlan | None,
        is_required: bool,
    ) -> FoundRow:
        """Read all rows of a ring, and of larger ones, until there are enough."""
        limits, min_factor, before = self.builder.limits, 1.0, 0
        has_measured = False
        while ring.rows < limits.in_box:
            checked, listed = (
                max(rows_for(requested, margin=margin) / ring.expected, min_factor)
                for margin in (MARGIN, WIDE_MARGIN)
            )
            is_checked = plan is None or (
                plan.check_cost * checked * ring.rows
                <= plan.list_cost_around(listed * ring.rows)
            )
            ring.grow(checked if is_checked else listed, max_rows=limits.in_box)
            ring.radius = min(ring.radius, self._max_distance)
            found = self._in_ring(ring, None if is_checked else plan)
            matching = found.candidates
            if matching >= requested or ring.radius >= self._max_distance:
                return found
            is_stuck = matching < max(MIN_FOUND_SHARE * requested, MIN_GROWTH * before)
            if is_stuck and not is_required:
                raise OutsideRing
            if is_stuck and not has_measured:
                # many rows may be at one point
                read, radius = self._nearest_rows(most=limits.nearest)
                if read < limits.nearest:
                    return self._within(self._max_distance)
                if radius > ring.radius:
                    ring.radius, ring.rows = radius, self._rows_in_circle(read)
                has_measured = True
            ring.expected = max(matching - math.sqrt(matching), 1)
            min_factor, before = NEXT_RING_FACTOR, matching
        if not is_required:
            raise OutsideRing
        # too few of so many match; some farther ones are better than none
        candidates = self.builder.candidates(
            self.query, self.terms, most=limits.ranked, plan=plan
        )
        return self._best_matches(self._around(candidates, ring.radius))

    def _in_ring(self, ring: DistanceRing, plan: SearchPlan | None) -> FoundRow:
        """Check all rows of a ring, or look them up in the posting lists."""
        if plan is None:
            return self._within(ring.radius)
        terms = plan.expand_prefix(self.terms)
        return self._best_matches(self._around(self._empty(), ring.radius, terms))

    @property
    def _max_distance(self) -> float:
        within = self.query.within
        return MAX_DISTANCE_KM if within is None else min(within, MAX_DISTANCE_KM)

    def _rows_in_circle(self, read: int) -> float:
        """Return how many rows are as near as the farthest of those that were read.

        A circle in degrees is an ellipse in kilometres; the circle around it has more.
        """
        return read / max(math.cos(math.radians(self.center.lat)), MIN_COSINE)

    def _nearest_matches(self, requested: int, *, most: int) -> tuple[float, int]:
        """Return the distance of the last requested match, and how many there are."""
        candidates = self._empty()
        where, dataset = candidates.where, candidates.of.dataset
        matches = " and ".join([str(where), *self._has_words(candidates)])
        key = ", ".join(map(quote, dataset.key))
        distance = kilometres(dataset, self.center, where)
        parts = [
            f"(select {key}, {distance} as _km from ({rows}) as _near "
            f"where {matches} limit {requested:d})"
            for rows in self._by_degrees(where, most=most)
        ]
        ((matching, farthest),) = self.builder.session(
            "select count(*), max(_km) from (select _km from "
            # `union` removes rows that were read from both sides
            f"({' union '.join(parts)}) as _matching order by _km limit {requested:d}) "
            "as _first",
            where.given,
            settings=INDEX_SCAN_SETTINGS,
        )
        return farthest or 0.0, matching

    def _nearest_rows(self, *, most: int) -> tuple[int, float]:
        """Return the number of the nearest rows, and the distance of the farthest."""
        where = self._empty().where
        distance = kilometres(self.builder.of.dataset, self.center, where)
        first, *_ = self._by_degrees(where, most=most)
        ((rows, radius),) = self.builder.session(
            f"select count(*), max({distance}) from ({first}) as _near",
            where.given,
            settings=INDEX_SCAN_SETTINGS,
        )
        return rows, max(radius or 0.0, MIN_RADIUS)

    def _by_degrees(self, where: Where, *, most: int) -> Iterator[str]:
        """Yield selects of the rows that are nearest by degrees."""
        of = self.builder.of
        around = Where(where.dialect, where.given)
        around.clauses.append(has_coordinates(of.dataset))
        if self.query.within is not None:
            circle = in_circle(of.dataset, self.center, self.query.within, where)
            around.clauses.append(f"({circle})")
        starts = [self.center.lon]
        if abs(self.center.lon) > DATE_LINE_LONGITUDE:
            # the same point, as seen from beyond the date line
            starts.append(self.center.lon - math.copysign(360, self.center.lon))
        for lon in starts:
            start = f"point({where.param(lon)}, {where.param(self.center.lat)})"
            yield (
                f"select * from {of.name} where {around} "
                f"order by {point_of(of.dataset)} <-> {start} limit {most:d}"
            )

    def _within(self, km: float) -> FoundRow:
        candidates = self._around(self._empty(), km)
        # a ring is small: checking its rows is cheaper than reading the posting lists
        return self.builder.best_matches(
            self.query, self.terms, candidates, settings=INDEX_SCAN_SETTINGS
        )

    def _around(
        self, candidates: CandidateQuery, km: float, terms: Sequence[Term] | None = None
    ) -> CandidateQuery:
        """Add the matching rows within a distance; `terms` use the posting lists."""
        dataset, where = candidates.of.dataset, candidates.where
        circle = in_circle(dataset, self.center, km, where)
        distance = kilometres(dataset, self.center, where)
        within = f"({circle}) and {distance} <= {where.param(km)}"
        most = self.builder.limits.around
        has_words = (
            self._has_words(candidates) if terms is None else [candidates.has(terms)]
        )
        candidates.add("_around", within, *has_words, limit=most + 1)
        candidates.capped = f"({candidates.capped} or {count_of('_around')} > {most})"
        return candidates

    def _empty(self) -> CandidateQuery:
        limits = self.builder.limits
        return self.builder.empty_candidates(self.query, most=limits.around)

    def _has_words(self, candidates: CandidateQuery) -> Sequence[str]:
        return [candidates.matches(self.terms)] if self.terms else []

    def _best_matches(self, candidates: CandidateQuery) -> FoundRow:
        return self.builder.best_matches(self.query, self.terms, candidates)


def rows_for(requested: int, *, margin: float) -> float:
    """Return how many rows to expect so that the requested ones are surely there."""
    return requested + margin * math.sqrt(requested)
