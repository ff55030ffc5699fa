"""Compose what rows are searched by: the same phrases for indexes and for questions."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.selects import Where
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.queries.geo import (
    RADIUS_KM,
    Box,
    Spot,
    boxes_around,
    ring_around,
)
from penstock.domain.queries.query import field_named
from penstock.domain.queries.ranking import FIRST, SAME, TOGETHER, signs, weight
from penstock.domain.queries.words import Term

# one row of so many stands in a small index of its own, for words that too many have
SAMPLED_OF = 64

# a number for each value of a key, spread evenly, and the same for ever
HASHES: Mapping[FieldType, str] = {
    FieldType.TEXT: "hashtextextended({}, 0)",
    FieldType.INT: "hashint8extended({}, 0)",
    FieldType.FLOAT: "hashfloat8extended({}, 0)",
    FieldType.BOOL: "hashint4extended({}::integer, 0)",
    FieldType.DATE: "hashint4extended({} - date '2000-01-01', 0)",
    FieldType.TIMESTAMP: "interval_hash_extended({} - timestamptz '2000-01-01Z', 0)",
}


def text_of(dataset: Dataset) -> str:
    """Compose all that is searched in as one text."""
    return " || ' ' || ".join(
        f"coalesce({quoted(name)}, '')" for name in dataset.search
    )


def short_text_of(dataset: Dataset) -> str:
    """Compose the same as far as its words are known; see `penstock_words`."""
    return f"left({text_of(dataset)}, 10000)"


def fields_of(dataset: Dataset) -> str:
    """Write by which fields the known words are those of a dataset."""
    return ",".join(dataset.search)


def words_of(dataset: Dataset) -> str:
    return f"penstock_words({text_of(dataset)})"


def in_sample(dataset: Dataset) -> str:
    """Compose whether a row is in the sample, by its key: that never changes."""
    hashed = " # ".join(
        HASHES[field_named(dataset, name).type].format(quoted(name))
        for name in dataset.key
    )
    return f"(({hashed}) & {SAMPLED_OF - 1}) = 0"


def place_of(dataset: Dataset) -> str:
    lat, lon = degrees_of(dataset)
    return f"point({lon}, {lat})"


def has_place(dataset: Dataset) -> str:
    lat, lon = degrees_of(dataset)
    return f"{lat} is not null and {lon} is not null"


def degrees_of(dataset: Dataset) -> tuple[str, str]:
    if dataset.geo is None:
        raise LookupError(f"dataset {dataset.name!r} has no places")
    lat, lon = dataset.geo
    return quoted(lat), quoted(lon)


def in_boxes(dataset: Dataset, boxes: Iterable[Box], where: Where) -> str:
    place = place_of(dataset)
    return " or ".join(
        f"{place} <@ box(point({where.mark(box.west)}, {where.mark(box.south)}), "
        f"point({where.mark(box.east)}, {where.mark(box.north)}))"
        for box in boxes
    )


def in_circle(dataset: Dataset, spot: Spot, km: float, where: Where) -> str:
    """Compose what an index can tell of all places within a distance."""
    ring = ring_around(spot, km)
    if ring is None:
        return in_boxes(dataset, boxes_around(spot, km), where)
    corners = ",".join(f"({each.lon!r},{each.lat!r})" for each in ring)
    return f"{place_of(dataset)} <@ {where.mark(f'({corners})')}::polygon"


def kilometres(dataset: Dataset, spot: Spot, where: Where) -> str:
    """Compose the way along the great circle."""
    lat, lon = degrees_of(dataset)
    from_lat, from_lon = where.mark(spot.lat), where.mark(spot.lon)
    return (
        f"({2 * RADIUS_KM!r} * asin(least(1.0, sqrt("
        f"power(sin(radians({lat} - {from_lat}) / 2), 2) + cos(radians({from_lat})) "
        f"* cos(radians({lat})) * power(sin(radians({lon} - {from_lon}) / 2), 2)))))"
    )


def query_of(terms: Sequence[Term]) -> str:
    """Write what is looked for as a tsquery."""
    return " & ".join(f"({' | '.join(choices(term))})" for term in terms)


def choices(term: Term) -> Iterable[str]:
    if term.known:
        yield from map(lexeme, term.known)
    elif term.prefix is not None:
        yield f"{lexeme(term.prefix)}:*"
    else:
        yield f"({' & '.join(map(lexeme, term.tokens))})"
    yield from map(lexeme, term.variants)


def is_begun(terms: Sequence[Term]) -> bool:
    """Say whether a word may be unfinished, so that whole ones are to be preferred."""
    return any(term.prefix is not None and term.tokens for term in terms)


def lexeme(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def folded_texts(dataset: Dataset) -> str:
    """Compose the folded text of each field that is searched in, padded."""
    return ", ".join(
        f"' ' || penstock_fold(coalesce(left({quoted(name)}, 10000), '')) || ' ' "
        f"as {text_name(place)}"
        for place, name in enumerate(dataset.search)
    )


def text_name(place: int) -> str:
    return f"_text_{place}"


def score_of(dataset: Dataset, terms: Sequence[Term], asked: str, where: Where) -> str:
    """Compose what `ranking.score` says of the folded texts."""
    places = range(len(dataset.search))
    words = " + ".join(
        f"greatest({', '.join(worth_of(term, at, where) for at in places)})"
        for term in terms
    )
    phrase = ", ".join(worth_of_phrase(asked, at, where) for at in places)
    return f"(({words}) / {len(terms)} + greatest({phrase}))::double precision"


def worth_of(term: Term, place: int, where: Where) -> str:
    cases = " ".join(
        f"when strpos({text_name(place)}, {where.mark(sign)}) > 0 "
        f"then {weight(place) * worth!r}::double precision"
        for sign, worth in signs(term)
    )
    return f"case {cases} else 0 end"


def worth_of_phrase(asked: str, place: int, where: Where) -> str:
    text, begun, whole = text_name(place), f" {asked}", f" {asked} "
    found = weight(place)
    return (
        f"case when {text} = {where.mark(whole)} "
        f"then {found * SAME!r}::double precision "
        f"when starts_with({text}, {where.mark(begun)}) then {found * FIRST!r} "
        f"when strpos({text}, {where.mark(begun)}) > 0 then {found * TOGETHER!r} "
        "else 0 end"
    )
