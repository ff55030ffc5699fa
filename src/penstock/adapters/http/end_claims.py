"""Find what a response says against being the last page.

Some providers answer an error with status 200 and an empty list, or leave out the next
token while they say that there is more.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from penstock.domain.source import Path

# names without case, hyphens and underscores
ERRORS = frozenset({"error", "errors"})
MORE = frozenset({"hasmore", "hasnext", "hasnextpage", "hasmorepages", "morerecords"})
TOTALS = frozenset(
    {
        "total",
        "totalcount",
        "totalelements",
        "totalhits",
        "totalitems",
        "totalrecords",
        "totalresults",
    }
)
# objects beside the records that tell about the page
ABOUT_PAGE = frozenset({"meta", "metadata", "page", "pageinfo", "pagination", "paging"})

Members = Mapping[str, bytes | msgspec.Raw]
# the members of an object; of anything else, none
Split = Callable[[bytes], Members]


class EndClaims(NamedTuple):
    """What a response says of its request and of further pages."""

    # the member that reports an error, or that there is more
    error: str | None = None
    more: str | None = None
    # how many records there are, and the member that says so
    total: int | None = None
    total_name: str = ""


class ClaimPaths(NamedTuple):
    """Where a response has its records, and what it says of them, if declared."""

    records: Path
    error: Path | None = None
    total: Path | None = None


def read_end_claims(text: bytes, paths: ClaimPaths, split: Split) -> EndClaims:
    """Read what the objects around the records say."""
    claims = EndClaims()
    objects = list(objects_around(text, paths.records, split))
    for path, members in objects:
        claims = add_claims(claims, path, members, may_report_errors=True)
        for name, raw in members.items():
            if plain(name) in ABOUT_PAGE:
                about = split(bytes(raw))
                inner = (*path, name)
                claims = add_claims(claims, inner, about, may_report_errors=False)
    if paths.error is not None:
        value = value_at(text, paths.error, split)
        claims = claims._replace(error=None if is_empty(value) else dotted(paths.error))
    if paths.total is not None:
        total = as_total(value_at(text, paths.total, split))
        claims = claims._replace(total=total, total_name=dotted(paths.total))
    return claims


def objects_around(
    text: bytes, records: Path, split: Split
) -> Iterator[tuple[Path, Members]]:
    """Yield the objects that contain the records, from the outermost."""
    for depth in range(len(records)):
        members = split(text)
        yield records[:depth], members
        inner = members.get(records[depth])
        if inner is None:
            return
        text = bytes(inner)


def add_claims(
    claims: EndClaims, path: Path, members: Members, *, may_report_errors: bool
) -> EndClaims:
    """Add what an object says; what an outer one says remains."""
    for name, raw in members.items():
        kind, shown = plain(name), dotted((*path, name))
        if kind in ERRORS and may_report_errors and claims.error is None:
            if not is_empty(decode(bytes(raw))):
                claims = claims._replace(error=shown)
        elif kind in MORE and claims.more is None and decode(bytes(raw)) is True:
            claims = claims._replace(more=shown)
        elif kind in TOTALS and claims.total is None:
            total = as_total(decode(bytes(raw)))
            claims = claims._replace(total=total, total_name=shown)
    return claims


def value_at(text: bytes, path: Path, split: Split) -> object:
    for name in path:
        found = split(text).get(name)
        if found is None:
            return None
        text = bytes(found)
    return decode(text)


def decode(text: bytes) -> object:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        # whatever it is, it is something
        return text


def is_empty(value: object) -> bool:
    """Return whether a value reports nothing, however deep."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    if isinstance(value, list):
        return all(map(is_empty, value))
    return not value


def as_total(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:18])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def dotted(path: Path) -> str:
    return ".".join(path)
