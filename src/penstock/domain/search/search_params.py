"""Parse searches, suggestions and facets from the parameters of a URL."""

import re
from collections.abc import Iterable

from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.domain.formats import is_unicode
from penstock.domain.search import value_syntax
from penstock.domain.search.filter_params import (
    MAX_ROWS,
    ParamReader,
    read_fields,
    read_limit,
    split_params,
)
from penstock.domain.search.geo import MAX_DISTANCE_KM, GeoPoint
from penstock.domain.search.query import field_named
from penstock.domain.search.search_query import FacetQuery, SearchQuery
from penstock.domain.search.tokenizer import SearchTerms, is_unspaced

SEARCH_PARAMS = frozenset({"q", "near", "within", "limit", "cursor", "fields"})
SUGGEST_PARAMS = frozenset({"q", "limit"})
FACET_PARAMS = frozenset({"q", "by"})
MIN_QUERY_LENGTH = 2
MAX_QUERY_LENGTH = 100
DEFAULT_SEARCH_LIMIT = 20
DEFAULT_SUGGESTIONS = 10
MAX_SUGGESTIONS = 20
MAX_FACETS = 10
MAX_DEGREES = GeoPoint(lat=90, lon=180)
SPACES = re.compile(r"\s+")


def read_search(
    dataset: Dataset, given: Iterable[tuple[str, str]], *, most: int = MAX_ROWS
) -> tuple[SearchQuery, str | None]:
    """Return the requested search, and its cursor as text."""
    reader = ParamReader(dataset)
    own, conditions = split_params(reader, given, reserved=SEARCH_PARAMS)
    near = read_near(reader, own.get("near"))
    if "q" not in own and "near" not in own:
        reader.flaw("q", "missing", "is missing; give q, or near, or both")
    query = SearchQuery(
        dataset=dataset,
        words=read_words(reader, own.get("q")),
        conditions=conditions,
        near=near,
        within=read_within(reader, own.get("within"), has_near="near" in own),
        fields=read_fields(reader, own.get("fields")),
        limit=read_limit(
            reader, own.get("limit"), default=DEFAULT_SEARCH_LIMIT, most=most
        ),
    )
    reader.finish()
    return query, own.get("cursor")


def read_suggest(
    dataset: Dataset, given: Iterable[tuple[str, str]]
) -> tuple[SearchTerms, int]:
    """Return the text to complete, and the maximum number of completions."""
    reader = ParamReader(dataset)
    own, conditions = split_params(reader, given, reserved=SUGGEST_PARAMS)
    for condition in conditions:
        detail = "does not narrow words down"
        reader.flaw(condition.field.name, "unknown-parameter", detail)
    if "q" not in own:
        reader.flaw("q", "missing", "is missing; give the beginning of a word")
    words = read_words(reader, own.get("q"))
    limit = read_limit(
        reader, own.get("limit"), default=DEFAULT_SUGGESTIONS, most=MAX_SUGGESTIONS
    )
    reader.finish()
    return words or SearchTerms(""), limit


def read_facets(dataset: Dataset, given: Iterable[tuple[str, str]]) -> FacetQuery:
    """Return which rows to count, and by which fields."""
    reader = ParamReader(dataset)
    own, conditions = split_params(reader, given, reserved=FACET_PARAMS)
    query = FacetQuery(
        dataset=dataset,
        by=read_by(reader, own.get("by")),
        words=read_words(reader, own.get("q")),
        conditions=conditions,
    )
    reader.finish()
    return query


def read_words(reader: ParamReader, text: str | None) -> SearchTerms | None:
    if text is None:
        return None
    if not reader.dataset.search:
        detail = (
            "needs a dataset that is searched in; name its text fields in "
            f"'search' of datasets.{reader.dataset.name}"
        )
        reader.flaw("q", "not-searchable", detail)
        return None
    if "\x00" in text or not is_unicode(text):
        reader.flaw("q", "value", "holds a character that no text has")
        return None
    words = SearchTerms(SPACES.sub(" ", text).strip())
    length = len(words.text)
    if length > MAX_QUERY_LENGTH:
        reader.flaw(
            "q", "length", f"has {length} characters; {MAX_QUERY_LENGTH} are allowed"
        )
    elif not words.folded:
        reader.flaw("q", "no-word", "holds no word; give letters or digits")
    elif length < MIN_QUERY_LENGTH and not is_unspaced(words.folded):
        detail = (
            f"is too short; give {MIN_QUERY_LENGTH} to {MAX_QUERY_LENGTH} characters"
        )
        reader.flaw("q", "length", detail)
    return words


def read_near(reader: ParamReader, text: str | None) -> GeoPoint | None:
    if text is None:
        return None
    if reader.dataset.geo is None:
        detail = (
            "needs a dataset with places; name the fields of latitude and longitude "
            f"in 'geo' of datasets.{reader.dataset.name}"
        )
        reader.flaw("near", "no-places", detail)
        return None
    degrees = [value_syntax.number(part.strip()) for part in text.split(",")]
    match degrees:
        case [float(lat), float(lon)] if (
            abs(lat) <= MAX_DEGREES.lat and abs(lon) <= MAX_DEGREES.lon
        ):
            return GeoPoint(lat, lon)
    detail = "is written latitude,longitude in degrees: near=52.52,13.40"
    reader.flaw("near", "value", detail)
    return None


def read_within(
    reader: ParamReader, text: str | None, *, has_near: bool
) -> float | None:
    if text is None:
        return None
    if not has_near:
        reader.flaw("within", "needs-near", "needs near: the place to measure from")
    km = value_syntax.number(text.strip())
    if km is None or km <= 0:
        detail = "must be a number of kilometres above 0: within=2.5"
        reader.flaw("within", "value", detail)
        return None
    # nothing is farther away, so the filter would have no effect
    return None if km >= MAX_DISTANCE_KM else km


def read_by(reader: ParamReader, text: str | None) -> tuple[Field, ...]:
    dataset = reader.dataset
    counted = [
        name
        for name in dataset.filter
        if field_named(dataset, name).type is not FieldType.JSON
    ]
    if text is None:
        requested = counted[:MAX_FACETS]
    else:
        requested = [part.strip() for part in text.split(",")]
    if not counted:
        detail = f"finds no field to count by; name some in 'filter' of {dataset.name}"
        reader.flaw("by", "not-counted", detail)
    elif len(requested) > MAX_FACETS:
        detail = f"names {len(requested)} fields; {MAX_FACETS} are allowed"
        reader.flaw("by", "too-many", detail)
    for name in (unique := [*dict.fromkeys(requested)]):
        if name not in counted and counted:
            remedy = reader.remedy(name, counted, otherwise=f"use {', '.join(counted)}")
            detail = f"{name!r} is not counted by; {remedy}"
            reader.flaw("by", "not-counted", detail)
    return tuple(field_named(dataset, name) for name in unique if name in counted)
