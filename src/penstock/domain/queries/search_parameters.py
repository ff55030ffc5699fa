"""Read searches from the parameters of a URL, in the manner of lists."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.domain.queries.geo import FARTHEST_KM, Spot
from penstock.domain.queries.parameters import (
    MOST_ROWS,
    Reading,
    is_text,
    number,
    read_fields,
    read_limit,
    split,
)
from penstock.domain.queries.query import field_named
from penstock.domain.queries.search import FacetQuery, SearchQuery
from penstock.domain.queries.words import Words, is_unspaced

SEARCH = frozenset({"q", "near", "within", "limit", "cursor", "fields"})
SUGGEST = frozenset({"q", "limit"})
FACETS = frozenset({"q", "by"})
SHORTEST, LONGEST = 2, 100
# the best are few: who wants more goes on, or asks for it
USUALLY_FOUND = 20
USUALLY_SUGGESTED, MOST_SUGGESTIONS = 10, 20
MOST_FACETS = 10
MOST_DEGREES = Spot(lat=90, lon=180)
SPACES = re.compile(r"\s+")


def read_search(
    dataset: Dataset, given: Iterable[tuple[str, str]], *, most: int = MOST_ROWS
) -> tuple[SearchQuery, str | None]:
    """Return the search that was asked, and its cursor as it was written."""
    reading = Reading(dataset)
    own, conditions = split(reading, given, reserved=SEARCH)
    near = read_near(reading, own.get("near"))
    if "q" not in own and "near" not in own:
        reading.flaw("q", "missing", "is missing; give q, or near, or both")
    query = SearchQuery(
        dataset=dataset,
        words=read_words(reading, own.get("q")),
        conditions=conditions,
        near=near,
        within=read_within(reading, own.get("within"), has_near="near" in own),
        fields=read_fields(reading, own.get("fields")),
        limit=read_limit(reading, own.get("limit"), usual=USUALLY_FOUND, most=most),
    )
    reading.finish()
    return query, own.get("cursor")


def read_suggest(
    dataset: Dataset, given: Iterable[tuple[str, str]]
) -> tuple[Words, int]:
    """Return what was typed, and how many completions are wanted."""
    reading = Reading(dataset)
    own, conditions = split(reading, given, reserved=SUGGEST)
    for each in conditions:
        reading.flaw(each.field.name, "unknown-parameter", "does not narrow words down")
    if "q" not in own:
        reading.flaw("q", "missing", "is missing; give the beginning of a word")
    words = read_words(reading, own.get("q"))
    limit = read_limit(
        reading, own.get("limit"), usual=USUALLY_SUGGESTED, most=MOST_SUGGESTIONS
    )
    reading.finish()
    return words or Words(""), limit


def read_facets(dataset: Dataset, given: Iterable[tuple[str, str]]) -> FacetQuery:
    """Return which rows are to be counted, and by which fields."""
    reading = Reading(dataset)
    own, conditions = split(reading, given, reserved=FACETS)
    query = FacetQuery(
        dataset=dataset,
        by=read_by(reading, own.get("by")),
        words=read_words(reading, own.get("q")),
        conditions=conditions,
    )
    reading.finish()
    return query


def read_words(reading: Reading, text: str | None) -> Words | None:
    if text is None:
        return None
    if not reading.dataset.search:
        told = (
            "needs a dataset that is searched in; name its text fields in "
            f"'search' of datasets.{reading.dataset.name}"
        )
        reading.flaw("q", "not-searchable", told)
        return None
    if "\x00" in text or not is_text(text):
        reading.flaw("q", "value", "holds a character that no text has")
        return None
    words = Words(SPACES.sub(" ", text).strip())
    length = len(words.text)
    if length > LONGEST:
        reading.flaw("q", "length", f"has {length} characters; {LONGEST} are allowed")
    elif not words.folded:
        reading.flaw("q", "no-word", "holds no word; give letters or digits")
    elif length < SHORTEST and not is_unspaced(words.folded):
        told = f"is too short; give {SHORTEST} to {LONGEST} characters"
        reading.flaw("q", "length", told)
    return words


def read_near(reading: Reading, text: str | None) -> Spot | None:
    if text is None:
        return None
    if reading.dataset.geo is None:
        told = (
            "needs a dataset with places; name the fields of latitude and longitude "
            f"in 'geo' of datasets.{reading.dataset.name}"
        )
        reading.flaw("near", "no-places", told)
        return None
    degrees = [number(part.strip()) for part in text.split(",")]
    match degrees:
        case [float(lat), float(lon)] if (
            abs(lat) <= MOST_DEGREES.lat and abs(lon) <= MOST_DEGREES.lon
        ):
            return Spot(lat, lon)
    told = "is written latitude,longitude in degrees: near=52.52,13.40"
    reading.flaw("near", "value", told)
    return None


def read_within(reading: Reading, text: str | None, *, has_near: bool) -> float | None:
    if text is None:
        return None
    if not has_near:
        reading.flaw("within", "needs-near", "needs near: the place to measure from")
    km = number(text.strip())
    if km is None or km <= 0:
        told = "must be a number of kilometres above 0: within=2.5"
        reading.flaw("within", "value", told)
        return None
    # beyond that, everything is within it
    return None if km >= FARTHEST_KM else km


def read_by(reading: Reading, text: str | None) -> tuple[Field, ...]:
    dataset = reading.dataset
    counted = [
        name
        for name in dataset.filter
        if field_named(dataset, name).type is not FieldType.JSON
    ]
    if text is None:
        wanted = counted[:MOST_FACETS]
    else:
        wanted = [each.strip() for each in text.split(",")]
    if not counted:
        told = f"finds no field to count by; name some in 'filter' of {dataset.name}"
        reading.flaw("by", "not-counted", told)
    elif len(wanted) > MOST_FACETS:
        told = f"names {len(wanted)} fields; {MOST_FACETS} are allowed"
        reading.flaw("by", "too-many", told)
    for name in (unique := [*dict.fromkeys(wanted)]):
        if name not in counted and counted:
            close = get_close_matches(name, counted, n=1)
            remedy = (
                f"did you mean {close[0]!r}?" if close else f"use {', '.join(counted)}"
            )
            told = f"{name!r} is not counted by; {remedy}"
            reading.flaw("by", "not-counted", told)
    return tuple(field_named(dataset, name) for name in unique if name in counted)
