"""Look for rows from a place outwards."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.adapters.postgres.asking import ONE_BY_ONE, Asking
from penstock.adapters.postgres.pools import Pool
from penstock.adapters.postgres.searched import (
    has_place,
    in_boxes,
    kilometres,
    place_of,
)
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.selects import Where
from penstock.domain.queries.geo import FARTHEST_KM, Spot, boxes_around
from penstock.domain.queries.search import SearchQuery
from penstock.domain.queries.words import Term

# beyond that, the date line may be nearer than what lies on this side of it
FAR_EAST = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """What was learned from the rows that are nearest in degrees."""

    # within how many kilometres all rows lie that are wanted, if that is known
    reach: float | None
    # how far away those are that were looked at, how many, and how many of them fit
    radius: float = 0.0
    looked_at: int = 0
    fitting: int = 0


def nearest(
    ask: Asking,
    pool: Pool,
    asked: SearchQuery,
    spot: Spot,
    terms: Sequence[Term],
    *,
    wanted: int,
    most: int,
) -> Nearest:
    """Find out how far the rows that are wanted lie, by those nearest in degrees.

    Degrees of longitude are shorter than those of latitude, and begin anew at the date
    line, so these rows need not be the nearest; but as many lie within the distance of
    the last of them.
    """
    where = pool.where
    dataset = pool.of.dataset
    fits = " and ".join([str(where), *([pool.has(terms)] if terms else [])])
    around = Where(where.dialect, where.given)
    around.clauses.append(has_place(dataset))
    if asked.within is not None:
        boxes = in_boxes(dataset, boxes_around(spot, asked.within), where)
        around.clauses.append(f"({boxes})")
    starts = [spot.lon]
    if abs(spot.lon) > FAR_EAST:
        # where the place would be, seen from beyond the date line
        starts.append(spot.lon - 360 if spot.lon > 0 else spot.lon + 360)
    sorted_rows = [
        f"select * from {pool.of.name} where {around} order by {place_of(dataset)} "
        f"<-> point({where.mark(lon)}, {where.mark(spot.lat)}) limit {most:d}"
        for lon in starts
    ]
    key = ", ".join(map(quoted, dataset.key))
    away = kilometres(dataset, spot, where)
    parts = [
        f"(select {key}, {away} as _km from ({rows}) as near "
        f"where {fits} limit {wanted:d})"
        for rows in sorted_rows
    ]
    ((fitting, reach),) = ask(
        "select count(*), max(_km) from (select _km from "
        # each row once, from whichever side it was seen
        f"({' union '.join(parts)}) as fitting order by _km limit {wanted:d}) "
        "as first",
        where.given,
        settings=ONE_BY_ONE,
    )
    if fitting >= wanted:
        return Nearest(reach=reach)
    ((looked_at, radius),) = ask(
        f"select count(*), max({away}) from ({sorted_rows[0]}) as near",
        where.given,
        settings=ONE_BY_ONE,
    )
    if looked_at < most:
        # there are no others
        return Nearest(reach=FARTHEST_KM if asked.within is None else asked.within)
    return Nearest(reach=None, radius=radius, looked_at=looked_at, fitting=fitting)
