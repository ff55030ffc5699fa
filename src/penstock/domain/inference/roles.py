"""Guess the roles of columns: key, coordinates, search and filter."""

import re
from collections.abc import Iterable, Sequence
from itertools import combinations

from penstock.domain.dataset import MAX_INDEXED_LENGTH, WHOLE_ROW, FieldType
from penstock.domain.inference.columns import Column
from penstock.domain.inference.guess import Guess

ID = re.compile(r"(^|_)(id|ids|uid|uuid|guid|key|code|sku|ean|gtin|isbn|nr|no|number)$")
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
# the share of rows of a key that may lack a value, or repeat one
MAX_KEY_FLAWS = 0.01
# columns that are tried in pairs
MAX_PAIRED = 20
MAX_SEARCHED = 4
MAX_FILTERED = 6
# limits of a column that is a choice: distinct values, and rows of each
MAX_CHOICES = 200
MIN_REPEATS = 5


def guess_key(columns: Sequence[Column]) -> Guess[tuple[str, ...]]:
    """Find the columns that identify a row; with a warning if they may not.

    A column that rows share is never taken: they would overwrite each other.
    """
    rows = columns[0].rows
    candidates = sorted(filter(can_be_key, columns), key=unlikeliness)
    if not rows:
        first = (candidates or columns)[0]
        reason = "its name says so" if ID.search(first.name) else "the first column"
        return Guess((first.name,), f"{reason}; there are no rows to judge by")
    seen = f"in all {rows:,} rows looked at"
    for column in candidates:
        if column.is_unique:
            reason = f"never empty and never twice {seen}"
            named = "; its name says so" if ID.search(column.name) else ""
            return Guess((column.name,), reason + named)
    for column in candidates:
        if is_nearly_unique(column):
            return describe_nearly_unique(column)
    filled = [column for column in candidates if column.is_filled]
    for one, other in combinations(filled[:MAX_PAIRED], 2):
        if not fit_one_index(one, other):
            continue
        if len(set(zip(one.values, other.values, strict=True))) == rows:
            reason = f"no column alone, but both together are never twice {seen}"
            return Guess((one.name, other.name), reason)
    return Guess(
        (WHOLE_ROW,),
        f"no column, and no two together, tell the rows apart {seen}",
        "no column tells the rows apart, so the whole row is the key: equal rows are "
        "one record, and a row with another value is another; if some fields together "
        "identify a row, name them as the key",
    )


def is_nearly_unique(column: Column) -> bool:
    """Return whether so few rows lack an own value that those may be mistakes.

    Only a column that is named as a key may have a value twice: people share names.
    """
    is_repeated = column.distinct < len(column.values)
    if is_repeated and not ID.search(column.name):
        return False
    return column.rows - column.distinct <= MAX_KEY_FLAWS * column.rows


def describe_nearly_unique(column: Column) -> Guess[tuple[str, ...]]:
    blank = column.rows - len(column.values)
    repeated = len(column.values) - column.distinct
    flaws, outcomes = [], []
    if blank:
        flaws.append(f"empty in {blank:,}")
        outcomes.append("rows without a value will be bad")
    if repeated:
        flaws.append(f"a repetition in {repeated:,}")
        outcomes.append("of rows with the same value only the last is stored")
    found = f"{' and '.join(flaws)} of {column.rows:,} rows looked at"
    return Guess(
        (column.name,),
        f"nearly unique: {found}",
        f"the key {column.name} is {found}: {', and '.join(outcomes)}",
    )


def fit_one_index(*columns: Column) -> bool:
    """Return whether the texts of a key fit into one index together."""
    texts = [column for column in columns if column.kind.type is FieldType.TEXT]
    return all(text.longest * len(texts) <= MAX_INDEXED_LENGTH for text in texts)


def can_be_key(column: Column) -> bool:
    return column.kind.type in KEY_TYPES and column.longest <= MAX_INDEXED_LENGTH


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
