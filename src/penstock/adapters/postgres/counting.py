"""Count rows by the values of fields, or a sample of them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from penstock.adapters.postgres.asking import BY_WORDS, ONE_BY_ONE
from penstock.adapters.postgres.inquiry import Inquiry
from penstock.adapters.postgres.pools import Pool, drawn
from penstock.adapters.postgres.served import DIALECT, told
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.searched import Tallies, Tally
from penstock.adapters.sql.selects import Where
from penstock.domain.dataset import Field, FieldType
from penstock.domain.queries.facets import RANGED
from penstock.domain.queries.search import MOST_VALUES, FacetQuery
from penstock.domain.queries.words import Term
from penstock.domain.text import parse_instant

# the smallest part of a table for which rows are drawn from all over it
SMALLEST_SHARE = 0.15
READERS: Mapping[FieldType, Callable[[Any], object]] = {
    FieldType.DATE: date.fromisoformat,
    FieldType.TIMESTAMP: parse_instant,
}


def tallies(inquiry: Inquiry, asked: FacetQuery, terms: Sequence[Term]) -> Tallies:
    most = inquiry.limits.counted
    percent = None if terms else percent_of(inquiry, asked)
    if percent is not None:
        pool = inquiry.empty_pool(asked, most=most)
        source = drawn(inquiry.of.name, percent=percent)
        pool.add("_drawn", source=source, limit=most)
        pool.capped = "true"
        found = tallied(inquiry, asked, pool, settings=ONE_BY_ONE)
        # unless the server has known nothing of the table
        if found.rows >= most // 10:
            return found
    limits = inquiry.limits
    pool = inquiry.pool(
        asked,
        terms,
        most=most,
        enough=limits.enough_of_sample,
        of_sample=limits.counted_of_sample,
    )
    return tallied(inquiry, asked, pool, settings=BY_WORDS if terms else ONE_BY_ONE)


def percent_of(inquiry: Inquiry, asked: FacetQuery) -> float | None:
    """Return which part of a large table holds enough rows that fit."""
    # deleted rows have to be passed by, too
    rows = estimate(inquiry, Where(DIALECT, clauses=["true"]))
    where = Where(DIALECT)
    where.add(*asked.conditions)
    fitting = estimate(inquiry, where)
    most = inquiry.limits.counted
    if fitting < 3 * most or fitting < SMALLEST_SHARE * rows:
        return None
    return 150 * most / fitting


def estimate(inquiry: Inquiry, where: Where) -> float:
    plan = inquiry.ask(
        f"explain (format json) select from {inquiry.of.name} where {where}",
        where.given,
        settings={"jit": "off"},
    )
    return float(plan[0][0][0]["Plan"]["Plan Rows"])


def tallied(
    inquiry: Inquiry, asked: FacetQuery, pool: Pool, *, settings: Mapping[str, str]
) -> Tallies:
    counts = ", ".join(
        f"{tally(field)}, count({quoted(field.name)})" for field in asked.by
    )
    ((rows, is_sampled, *found),) = inquiry.ask(
        f"{pool}, _looked_at as materialized (select * from _pool "
        f"limit {inquiry.limits.counted:d}) "
        f"select count(*), {pool.capped}, {counts} from _looked_at",
        pool.where.given,
        settings=settings,
    )
    pairs = zip(found[::2], found[1::2], strict=True)
    return Tallies(
        fields=[
            Tally(counted=typed(field, counted), filled=filled)
            for field, (counted, filled) in zip(asked.by, pairs, strict=True)
        ],
        rows=rows,
        is_sampled=is_sampled,
    )


def tally(field: Field) -> str:
    """Compose the values of a field, each with its rows, the most frequent first."""
    name = quoted(field.name)
    # ranges are made of all of them
    limit = "" if field.type in RANGED else f"limit {MOST_VALUES:d}"
    return (
        "(select json_agg(json_build_array(_value, _rows)) from ("
        f"select {told(field)} as _value, count(*) as _rows from _looked_at "
        f"where {name} is not null group by {name} order by _rows desc, {name} {limit}"
        ") as _counted)"
    )


def typed(field: Field, counted: Sequence[Sequence[Any]] | None) -> dict[object, int]:
    read = READERS.get(field.type)
    return {
        value if read is None else read(value): rows for value, rows in counted or ()
    }
