"""Facets: counts of rows by the values of fields, of all rows or a sample."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from penstock.adapters.postgres.record_table import DIALECT, json_value
from penstock.adapters.postgres.search.candidates import CandidateQuery, table_sample
from penstock.adapters.postgres.search.query import SearchSqlBuilder
from penstock.adapters.postgres.search.session import (
    BITMAP_SETTINGS,
    INDEX_SCAN_SETTINGS,
)
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.table_protocols import FacetCount, FacetCounts
from penstock.adapters.sqlstore.where_builder import Where
from penstock.domain.dataset import Field, FieldType
from penstock.domain.formats import parse_instant
from penstock.domain.search.facets import RANGED_TYPES
from penstock.domain.search.search_query import MAX_FACET_VALUES, FacetQuery
from penstock.domain.search.tokenizer import Term

# the smallest part of a table for which its pages are sampled
MIN_SAMPLED_SHARE = 0.15
PARSERS: Mapping[FieldType, Callable[[Any], object]] = {
    FieldType.DECIMAL: Decimal,
    FieldType.DATE: date.fromisoformat,
    FieldType.TIMESTAMP: parse_instant,
}


def count_facets(
    builder: SearchSqlBuilder, query: FacetQuery, terms: Sequence[Term]
) -> FacetCounts:
    max_rows = builder.limits.counted
    percent = None if terms else sample_percent(builder, query)
    if percent is not None:
        candidates = builder.empty_candidates(query, most=max_rows)
        source = table_sample(builder.of.name, percent=percent)
        candidates.add("_sampled", source=source, limit=max_rows)
        candidates.capped = "true"
        found = count_values(builder, query, candidates, settings=INDEX_SCAN_SETTINGS)
        # fewer where the server's statistics of the table are missing
        if found.rows >= max_rows // 10:
            return found
    limits = builder.limits
    candidates = builder.candidates(
        query,
        terms,
        most=max_rows,
        enough=limits.enough_of_sample,
        of_sample=limits.counted_of_sample,
    )
    return count_values(
        builder,
        query,
        candidates,
        settings=BITMAP_SETTINGS if terms else INDEX_SCAN_SETTINGS,
    )


def sample_percent(builder: SearchSqlBuilder, query: FacetQuery) -> float | None:
    """Return the percentage of a large table that has enough matching rows."""
    # including the deleted rows, which are read as well
    rows = estimate(builder, Where(DIALECT, clauses=["true"]))
    where = Where(DIALECT)
    where.add(*query.conditions)
    matching = estimate(builder, where)
    max_rows = builder.limits.counted
    if matching < 3 * max_rows or matching < MIN_SAMPLED_SHARE * rows:
        return None
    return 150 * max_rows / matching


def estimate(builder: SearchSqlBuilder, where: Where) -> float:
    plan = builder.session(
        f"explain (format json) select from {builder.of.name} where {where}",
        where.given,
        settings={"jit": "off"},
    )
    return float(plan[0][0][0]["Plan"]["Plan Rows"])


def count_values(
    builder: SearchSqlBuilder,
    query: FacetQuery,
    candidates: CandidateQuery,
    *,
    settings: Mapping[str, str],
) -> FacetCounts:
    counts = ", ".join(
        f"{value_counts(field)}, count({quote(field.name)})" for field in query.by
    )
    ((rows, is_sampled, *found),) = builder.session(
        f"{candidates}, _counted as materialized (select * from _candidates "
        f"limit {builder.limits.counted:d}) "
        f"select count(*), {candidates.capped}, {counts} from _counted",
        candidates.where.given,
        settings=settings,
    )
    pairs = zip(found[::2], found[1::2], strict=True)
    return FacetCounts(
        fields=[
            FacetCount(counted=parse_values(field, counted), filled=filled)
            for field, (counted, filled) in zip(query.by, pairs, strict=True)
        ],
        rows=rows,
        is_sampled=is_sampled,
    )


def value_counts(field: Field) -> str:
    """Return a JSON array of the values of a field with their rows, most rows first."""
    name = quote(field.name)
    # JSON numbers would be read as floats; 1.10 and 1.1 are one value
    shown = (
        f"trim_scale({name})::text"
        if field.type is FieldType.DECIMAL
        else json_value(field)
    )
    # ranges are built from all values
    limit = "" if field.type in RANGED_TYPES else f"limit {MAX_FACET_VALUES:d}"
    return (
        "(select json_agg(json_build_array(_value, _rows)) from ("
        f"select {shown} as _value, count(*) as _rows from _counted "
        f"where {name} is not null group by {name} order by _rows desc, {name} {limit}"
        ") as _values)"
    )


def parse_values(
    field: Field, counted: Sequence[Sequence[Any]] | None
) -> dict[object, int]:
    parse = PARSERS.get(field.type)
    return {
        value if parse is None else parse(value): rows for value, rows in counted or ()
    }
