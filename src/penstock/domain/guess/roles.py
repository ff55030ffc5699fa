"""Guess what columns are for: to tell rows apart, to be searched, to be filtered by."""

import re
from collections.abc import Iterable, Sequence
from itertools import combinations

from penstock.domain.dataset import LONGEST_INDEXED, FieldType
from penstock.domain.guess.columns import Column
from penstock.domain.guess.guessed import Guessed

ID = re.compile(r"(^|_)(id|ids|uid|uuid|guid|key|code|sku|ean|gtin|isbn|nr|number)$")
LATITUDE = re.compile(r"(^|_)(lat|latitude)$")
LONGITUDE = re.compile(r"(^|_)(lon|lng|long|longitude)$")
LOOKED_UP = re.compile(
    r"(^|_)(phone|telephone|tel|mobile|email|mail|vat|ean|gtin)(_|$)"
)
READ = re.compile(
    r"(^|_)(name|title|label|town|city|address|street|company|brand|description)(_|$)"
)
NOT_READ = re.compile(r"(^|_)(url|uri|link|href|website|image|hash|token|path)(_|$)")
ADDRESS = re.compile(r"https?://", re.IGNORECASE)

KEY_TYPES = frozenset(
    {FieldType.TEXT, FieldType.INT, FieldType.DATE, FieldType.TIMESTAMP}
)
TIMES = frozenset({FieldType.DATE, FieldType.TIMESTAMP})
# columns that are tried in pairs
MOST_PAIRED = 20
MOST_SEARCHED = 4
MOST_FILTERED = 6
# values that are worth choosing from: so many, and so often each
MOST_CHOICES = 200
LEAST_REPEATS = 5


def guess_key(columns: Sequence[Column]) -> Guessed[tuple[str, ...]]:
    """Find what tells rows apart; where nothing does, say so."""
    rows = columns[0].rows
    ranked = sorted(filter(can_be_key, columns), key=unlikeliness)
    if not rows:
        first = (ranked or columns)[0]
        told = "its name says so" if ID.search(first.name) else "the first column"
        return Guessed((first.name,), f"{told}; there are no rows to judge by")
    seen = f"in all {rows:,} rows looked at"
    for column in ranked:
        if column.is_unique:
            told = f"never empty and never twice {seen}"
            named = "; its name says so" if ID.search(column.name) else ""
            return Guessed((column.name,), told + named)
    for one, other in combinations(ranked[:MOST_PAIRED], 2):
        if not share_an_index(one, other):
            continue
        if len(set(zip(one.values, other.values, strict=True))) == rows:
            told = f"no column alone, but both together are never twice {seen}"
            return Guessed((one.name, other.name), told)
    indexed = [each for each in columns if each.longest <= LONGEST_INDEXED]
    doubtful = (ranked or indexed or columns)[0]
    told = f"WRONG AS IT IS: {doubtful.distinct:,} different values {seen}, and nothing"
    doubt = (
        f"no column tells the rows apart: {rows:,} rows have {doubtful.distinct:,} "
        f"different values of {doubtful.name}, and rows with the same key replace each "
        "other; choose another key before you run an import"
    )
    return Guessed(
        (doubtful.name,),
        f"{told} better was found; rows with the same key replace each other",
        doubt,
    )


def share_an_index(*columns: Column) -> bool:
    """Say whether the texts of a key fit into one index together."""
    texts = [each for each in columns if each.kind.type is FieldType.TEXT]
    return all(each.longest * len(texts) <= LONGEST_INDEXED for each in texts)


def can_be_key(column: Column) -> bool:
    return (
        column.is_filled
        and column.kind.type in KEY_TYPES
        and column.longest <= LONGEST_INDEXED
    )


def unlikeliness(column: Column) -> tuple[bool, bool, bool]:
    """Rank candidates; of those that are alike the leftmost stays first."""
    return (
        ID.search(column.name) is None,
        column.kind.type in TIMES,
        has_words(column),
    )


def guess_geo(columns: Iterable[Column]) -> Guessed[tuple[str, str]] | None:
    """Find latitude and longitude."""
    numbers = {FieldType.FLOAT, FieldType.INT}
    found = [
        column
        for column in columns
        if column.kind.type in numbers or column.kind.point is not None
    ]
    lats = [c.name for c in found if LATITUDE.search(c.name) and is_within(c, 90)]
    lons = [c.name for c in found if LONGITUDE.search(c.name) and is_within(c, 180)]
    if not lats or not lons:
        return None
    return Guessed((lats[0], lons[0]), "their names, and numbers that are degrees")


def is_within(column: Column, most: float) -> bool:
    point = column.kind.decimal or column.kind.point or "."
    numbers = (float(value.replace(point, ".")) for value in column.values)
    return all(-most <= number <= most for number in numbers)


def guess_search(
    columns: Iterable[Column], taken: Sequence[str]
) -> tuple[Guessed[str], ...]:
    """Find texts that people read, and would look for by a word."""
    named, worded = [], []
    for column in columns:
        if column.name in taken or column.kind.type is not FieldType.TEXT:
            continue
        if NOT_READ.search(column.name) or LOOKED_UP.search(column.name):
            continue
        if any(map(ADDRESS.match, column.values[:10])):
            continue
        if READ.search(column.name) and not ID.search(column.name):
            named.append(Guessed(column.name, "its name"))
        elif has_words(column) and 2 * column.distinct > len(column.values):
            worded.append(Guessed(column.name, "words, rarely the same"))
    return tuple([*named, *worded][:MOST_SEARCHED])


def guess_filter(
    columns: Iterable[Column], taken: Sequence[str]
) -> tuple[Guessed[str], ...]:
    """Find what one chooses from, looks up whole, or asks ranges of."""
    choices, whole, ranges = [], [], []
    for column in columns:
        if column.name in taken or column.longest > LONGEST_INDEXED:
            continue
        if is_choice(column):
            told = f"{column.distinct:,} different values in {column.rows:,} rows"
            choices.append(Guessed(column.name, told))
        elif LOOKED_UP.search(column.name) and column.kind.type is FieldType.TEXT:
            whole.append(Guessed(column.name, "looked up whole, by its name"))
        elif column.kind.type in TIMES and column.values:
            ranges.append(Guessed(column.name, "ranges of time"))
    return tuple([*choices, *whole, *ranges][:MOST_FILTERED])


def is_choice(column: Column) -> bool:
    """Say whether few values stand in many rows."""
    return (
        column.kind.type not in {FieldType.JSON, FieldType.FLOAT}
        and 1 < column.distinct <= MOST_CHOICES
        and column.distinct * LEAST_REPEATS <= len(column.values)
    )


def has_words(column: Column) -> bool:
    """Say whether most values are more than one word."""
    return 2 * sum(" " in value for value in column.values) > len(column.values)
