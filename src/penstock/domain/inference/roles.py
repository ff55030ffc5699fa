"""Guess the roles of columns: key, coordinates, search and filter."""

import re
from collections.abc import Iterable, Sequence
from itertools import combinations

from penstock.domain.dataset import MAX_INDEXED_LENGTH, FieldType
from penstock.domain.inference.columns import Column
from penstock.domain.inference.guess import Guess

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
MAX_PAIRED = 20
MAX_SEARCHED = 4
MAX_FILTERED = 6
# limits of a column that is a choice: distinct values, and rows of each
MAX_CHOICES = 200
MIN_REPEATS = 5


def guess_key(columns: Sequence[Column]) -> Guess[tuple[str, ...]]:
    """Find the columns that identify a row; with a warning if there are none."""
    rows = columns[0].rows
    ranked = sorted(filter(can_be_key, columns), key=unlikeliness)
    if not rows:
        first = (ranked or columns)[0]
        reason = "its name says so" if ID.search(first.name) else "the first column"
        return Guess((first.name,), f"{reason}; there are no rows to judge by")
    seen = f"in all {rows:,} rows looked at"
    for column in ranked:
        if column.is_unique:
            reason = f"never empty and never twice {seen}"
            named = "; its name says so" if ID.search(column.name) else ""
            return Guess((column.name,), reason + named)
    for one, other in combinations(ranked[:MAX_PAIRED], 2):
        if not fit_one_index(one, other):
            continue
        if len(set(zip(one.values, other.values, strict=True))) == rows:
            reason = f"no column alone, but both together are never twice {seen}"
            return Guess((one.name, other.name), reason)
    indexable = [column for column in columns if column.longest <= MAX_INDEXED_LENGTH]
    doubtful = (ranked or indexable or columns)[0]
    reason = (
        f"not unique: rows would overwrite each other; {doubtful.distinct:,} different "
        f"values {seen}, and nothing better was found"
    )
    doubt = (
        f"no column tells the rows apart: {rows:,} rows have {doubtful.distinct:,} "
        f"different values of {doubtful.name}, and rows with the same key replace each "
        "other; choose another key before you run an import"
    )
    return Guess((doubtful.name,), reason, doubt)


def fit_one_index(*columns: Column) -> bool:
    """Return whether the texts of a key fit into one index together."""
    texts = [column for column in columns if column.kind.type is FieldType.TEXT]
    return all(text.longest * len(texts) <= MAX_INDEXED_LENGTH for text in texts)


def can_be_key(column: Column) -> bool:
    return (
        column.is_filled
        and column.kind.type in KEY_TYPES
        and column.longest <= MAX_INDEXED_LENGTH
    )


def unlikeliness(column: Column) -> tuple[bool, bool, bool]:
    """Return a sort key of candidates; of equal ones the leftmost stays first."""
    return (
        ID.search(column.name) is None,
        column.kind.type in TIMES,
        has_words(column),
    )


def guess_geo(columns: Iterable[Column]) -> Guess[tuple[str, str]] | None:
    """Find latitude and longitude."""
    numbers = {FieldType.FLOAT, FieldType.INT}
    numeric = [
        column
        for column in columns
        if column.kind.type in numbers or column.kind.point is not None
    ]
    lats = [c.name for c in numeric if LATITUDE.search(c.name) and is_within(c, 90)]
    lons = [c.name for c in numeric if LONGITUDE.search(c.name) and is_within(c, 180)]
    if not lats or not lons:
        return None
    return Guess((lats[0], lons[0]), "their names, and numbers that are degrees")


def is_within(column: Column, limit: float) -> bool:
    point = column.kind.decimal or column.kind.point or "."
    numbers = (float(value.replace(point, ".")) for value in column.values)
    return all(-limit <= number <= limit for number in numbers)


def guess_search(
    columns: Iterable[Column], taken: Sequence[str]
) -> tuple[Guess[str], ...]:
    """Find texts that people would search by words."""
    named, worded = [], []
    for column in columns:
        if column.name in taken or column.kind.type is not FieldType.TEXT:
            continue
        if NOT_READ.search(column.name) or LOOKED_UP.search(column.name):
            continue
        if any(map(ADDRESS.match, column.values[:10])):
            continue
        if READ.search(column.name) and not ID.search(column.name):
            named.append(Guess(column.name, "its name"))
        elif has_words(column) and 2 * column.distinct > len(column.values):
            worded.append(Guess(column.name, "words, rarely the same"))
    return tuple([*named, *worded][:MAX_SEARCHED])


def guess_filter(
    columns: Iterable[Column], taken: Sequence[str]
) -> tuple[Guess[str], ...]:
    """Find choices, values that are looked up as a whole, and times."""
    choices, whole, ranges = [], [], []
    for column in columns:
        if column.name in taken or column.longest > MAX_INDEXED_LENGTH:
            continue
        if is_choice(column):
            reason = f"{column.distinct:,} different values in {column.rows:,} rows"
            choices.append(Guess(column.name, reason))
        elif LOOKED_UP.search(column.name) and column.kind.type is FieldType.TEXT:
            whole.append(Guess(column.name, "looked up whole, by its name"))
        elif column.kind.type in TIMES and column.values:
            ranges.append(Guess(column.name, "ranges of time"))
    return tuple([*choices, *whole, *ranges][:MAX_FILTERED])


def is_choice(column: Column) -> bool:
    """Return whether many rows have few distinct values."""
    return (
        column.kind.type not in {FieldType.JSON, FieldType.FLOAT}
        and 1 < column.distinct <= MAX_CHOICES
        and column.distinct * MIN_REPEATS <= len(column.values)
    )


def has_words(column: Column) -> bool:
    """Return whether most values have more than one word."""
    return 2 * sum(" " in value for value in column.values) > len(column.values)
