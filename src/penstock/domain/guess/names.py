"""Make names of fields out of the names that columns happen to have."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from penstock.domain.dataset import SYSTEM_COLUMNS

# as the settings allow it: a to z, 0 to 9 and _, a letter first, none of our prefixes
LONGEST_NAME = 48
OURS = ("penstock_", "sqlite_")
# a new word begins at the capitals of countryName, countryID and URLPath
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def field_names(columns: Iterable[str]) -> Iterator[str]:
    """Yield a name for each column, all different."""
    taken: set[str] = set()
    for place, column in enumerate(columns, start=1):
        name = plain_name(column, otherwise=f"column_{place}")
        number = 1
        while name in taken:
            number += 1
            name = numbered(plain_name(column, otherwise=f"column_{place}"), number)
        taken.add(name)
        yield name


def plain_name(text: str, *, otherwise: str) -> str:
    """Write a text as a name; `otherwise` if no letter or digit of it can stand."""
    apart = HUMP.sub("_", text)
    letters = unicodedata.normalize("NFKD", apart.casefold())
    name = re.sub(r"[^a-z0-9]+", "_", letters.encode("ascii", "ignore").decode())
    name = name.strip("_")
    if not name:
        return otherwise
    if name[0].isdigit() or name.startswith(OURS) or name in SYSTEM_COLUMNS:
        name = f"c_{name}"
    return name[:LONGEST_NAME].rstrip("_")


def numbered(name: str, number: int) -> str:
    ending = f"_{number}"
    return name[: LONGEST_NAME - len(ending)] + ending
