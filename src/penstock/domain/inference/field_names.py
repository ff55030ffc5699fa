"""Derive valid field names from column names."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from penstock.domain.dataset import SYSTEM_COLUMNS

# as the settings allow: a to z, 0 to 9 and _, a letter first, no reserved prefix
MAX_NAME_LENGTH = 48
RESERVED_PREFIXES = ("penstock_", "sqlite_")
# word boundaries in countryName, countryID and URLPath
CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def field_names(columns: Iterable[str]) -> Iterator[str]:
    """Yield a name for each column, all different."""
    taken: set[str] = set()
    for index, column in enumerate(columns, start=1):
        base = name = plain_name(column, otherwise=f"column_{index}")
        number = 1
        while name in taken:
            number += 1
            name = add_number(base, number)
        taken.add(name)
        yield name


def plain_name(text: str, *, otherwise: str) -> str:
    """Convert a text to a name; `otherwise` if no letter or digit remains."""
    separated = CAMEL_CASE_BOUNDARY.sub("_", text)
    letters = unicodedata.normalize("NFKD", separated.casefold())
    name = re.sub(r"[^a-z0-9]+", "_", letters.encode("ascii", "ignore").decode())
    name = name.strip("_")
    if not name:
        return otherwise
    if (
        name[0].isdigit()
        or name.startswith(RESERVED_PREFIXES)
        or name in SYSTEM_COLUMNS
    ):
        name = f"c_{name}"
    return name[:MAX_NAME_LENGTH].rstrip("_")


def add_number(name: str, number: int) -> str:
    suffix = f"_{number}"
    return name[: MAX_NAME_LENGTH - len(suffix)] + suffix
