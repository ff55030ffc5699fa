"""Look for rows from a place outwards."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.adapters.postgres.asking import Asking
from penstock.adapters.postgres.pools import Pool
from penstock.adapters.postgres.searched import (
    has_place,
    in_boxes,
    kilometres,
    place_of,
)
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.selects import Where
from penstock.domain.queries.geo import Spot, boxes_around
from penstock.domain.queries.search import SearchQuery
from penstock.domain.queries.words import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """What was found among the rows that are nearest by degrees."""

    looked_at: int
    # how many of them fit
    fitting: int
    # how far away the last of those that are wanted is, in kilometres
    reach: float | None


def nearest(
    ask: Asking,
    pool: Pool,
    asked: SearchQuery,
    spot: Spot,
    *,
    terms: Sequence[Term],
    wanted: int,
    most: int,
) -> Nearest:
    """Look at the rows that are nearest by degrees, for as many as are wanted.

    Degrees of longitude are shorter than those of latitude, and begin anew at the date
    line; so this only tells how far one has to look.
    """
    of, where = pool.of, pool.where
    dataset = of.dataset
    fits = [str(where)]
    if terms:
        fits.append(pool.has(terms))
    around = Where(where.dialect, where.given)
    around.clauses.append(has_place(dataset))
    if asked.within is not None:
        around.clauses.append(
            f"({in_boxes(dataset, boxes_around(spot, asked.within), where)})"
        )
    # also from where the place would be beyond the date line
    starts = [spot.lon, spot.lon - 360 if spot.lon > 0 else spot.lon + 360]
    parts = [
        f"(select * from {of.name} where {around} order by {place_of(dataset)} "
        f"<-> point({where.mark(lon)}, {where.mark(spot.lat)}) limit {most:d})"
        for lon in starts
    ]
    key = ", ".join(map(quoted, dataset.key))
    away = kilometres(dataset, spot, where)
    found = ask(
        f"with near as materialized ({' union all '.join(parts)}), "
        f"once as materialized (select distinct on ({key}) * from near), "
        f"fitting as materialized ("
        f"select {away} as km from once where {' and '.join(fits)}) "
        "select (select count(*) from once), (select count(*) from fitting), "
        f"(select max(km) from "
        f"(select km from fitting order by km limit {wanted:d}) as first)",
        where.given,
    )
    looked_at, fitting, reach = found[0]
    return Nearest(looked_at=looked_at, fitting=fitting, reach=reach)
