"""SQL expressions that search indexes and queries share."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.where_builder import Where
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.search.geo import (
    EARTH_RADIUS_KM,
    GeoBox,
    GeoPoint,
    boxes_around,
    polygon_around,
)
from penstock.domain.search.query import field_named
from penstock.domain.search.ranking import (
    PHRASE_IN_FIELD,
    PHRASE_IS_FIELD,
    PHRASE_STARTS_FIELD,
    field_weight,
    match_patterns,
)
from penstock.domain.search.tokenizer import Term

# one row of so many is in a small index of its own, for words that too many rows have
SAMPLE_RATIO = 64

# hashes of key values, which never change
HASHES: Mapping[FieldType, str] = {
    FieldType.TEXT: "hashtextextended({}, 0)",
    FieldType.INT: "hashint8extended({}, 0)",
    FieldType.FLOAT: "hashfloat8extended({}, 0)",
    FieldType.DECIMAL: "hash_numeric_extended({}, 0)",
    FieldType.BOOL: "hashint4extended({}::integer, 0)",
    FieldType.DATE: "hashint4extended({} - date '2000-01-01', 0)",
    FieldType.TIMESTAMP: "interval_hash_extended({} - timestamptz '2000-01-01Z', 0)",
}


def text_of(dataset: Dataset) -> str:
    """Return all searched fields as one text."""
    return " || ' ' || ".join(f"coalesce({quote(name)}, '')" for name in dataset.search)


def short_text_of(dataset: Dataset) -> str:
    """Return the part of it whose words are indexed; see `penstock_words`."""
    return f"left({text_of(dataset)}, 10000)"


def fields_of(dataset: Dataset) -> str:
    """Return the searched fields as the term dictionary stores them."""
    return ",".join(dataset.search)


def words_of(dataset: Dataset) -> str:
    return f"penstock_words({text_of(dataset)})"


def in_sample(dataset: Dataset) -> str:
    """Return whether a row is in the sample, by its key, which never changes."""
    hashed = " # ".join(
        HASHES[field_named(dataset, name).type].format(quote(name))
        for name in dataset.key
    )
    return f"(({hashed}) & {SAMPLE_RATIO - 1}) = 0"


def point_of(dataset: Dataset) -> str:
    lat, lon = coordinates_of(dataset)
    return f"point({lon}, {lat})"


def has_coordinates(dataset: Dataset) -> str:
    lat, lon = coordinates_of(dataset)
    return f"{lat} is not null and {lon} is not null"


def coordinates_of(dataset: Dataset) -> tuple[str, str]:
    if dataset.geo is None:
        raise LookupError(f"dataset {dataset.name!r} has no coordinates")
    lat, lon = dataset.geo
    return quote(lat), quote(lon)


def in_boxes(dataset: Dataset, boxes: Iterable[GeoBox], where: Where) -> str:
    point = point_of(dataset)
    return " or ".join(
        f"{point} <@ box(point({where.param(box.west)}, {where.param(box.south)}), "
        f"point({where.param(box.east)}, {where.param(box.north)}))"
        for box in boxes
    )


def in_circle(dataset: Dataset, center: GeoPoint, km: float, where: Where) -> str:
    """Return an indexable condition that holds for all points within a distance."""
    ring = polygon_around(center, km)
    if ring is None:
        return in_boxes(dataset, boxes_around(center, km), where)
    corners = ",".join(f"({corner.lon!r},{corner.lat!r})" for corner in ring)
    return f"{point_of(dataset)} <@ {where.param(f'({corners})')}::polygon"


def kilometres(dataset: Dataset, center: GeoPoint, where: Where) -> str:
    """Return the great-circle distance."""
    lat, lon = coordinates_of(dataset)
    from_lat, from_lon = where.param(center.lat), where.param(center.lon)
    return (
        f"({2 * EARTH_RADIUS_KM!r} * asin(least(1.0, sqrt("
        f"power(sin(radians({lat} - {from_lat}) / 2), 2) + cos(radians({from_lat})) "
        f"* cos(radians({lat})) * power(sin(radians({lon} - {from_lon}) / 2), 2)))))"
    )


def query_of(terms: Sequence[Term]) -> str:
    """Return the terms as a tsquery."""
    return " & ".join(f"({' | '.join(alternatives(term))})" for term in terms)


def alternatives(term: Term) -> Iterable[str]:
    if term.known:
        yield from map(lexeme, term.known)
    elif term.prefix is not None:
        yield f"{lexeme(term.prefix)}:*"
    else:
        yield f"({' & '.join(map(lexeme, term.tokens))})"
    yield from map(lexeme, term.variants)


def has_prefix(terms: Sequence[Term]) -> bool:
    """Return whether a word may be unfinished, so that whole words are preferred."""
    return any(term.prefix is not None and term.tokens for term in terms)


def lexeme(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def folded_texts(dataset: Dataset) -> str:
    """Return the folded text of each searched field, padded with spaces."""
    return ", ".join(
        f"' ' || penstock_fold(coalesce(left({quote(name)}, 10000), '')) || ' ' "
        f"as {text_name(index)}"
        for index, name in enumerate(dataset.search)
    )


def text_name(index: int) -> str:
    return f"_text_{index}"


def score_of(dataset: Dataset, terms: Sequence[Term], phrase: str, where: Where) -> str:
    """Return the score of the folded texts, equal to `ranking.score`."""
    indexes = range(len(dataset.search))
    words = " + ".join(
        f"greatest({', '.join(term_score(term, index, where) for index in indexes)})"
        for term in terms
    )
    phrases = ", ".join(phrase_score(phrase, index, where) for index in indexes)
    return f"(({words}) / {len(terms)} + greatest({phrases}))::double precision"


def term_score(term: Term, index: int, where: Where) -> str:
    cases = " ".join(
        f"when strpos({text_name(index)}, {where.param(pattern)}) > 0 "
        f"then {field_weight(index) * score!r}::double precision"
        for pattern, score in match_patterns(term)
    )
    return f"case {cases} else 0 end"


def phrase_score(phrase: str, index: int, where: Where) -> str:
    text, start, whole = text_name(index), f" {phrase}", f" {phrase} "
    factor = field_weight(index)
    return (
        f"case when {text} = {where.param(whole)} "
        f"then {factor * PHRASE_IS_FIELD!r}::double precision "
        f"when starts_with({text}, {where.param(start)}) "
        f"then {factor * PHRASE_STARTS_FIELD!r} "
        f"when strpos({text}, {where.param(start)}) > 0 "
        f"then {factor * PHRASE_IN_FIELD!r} "
        "else 0 end"
    )
