"""Tell rows that are gone from rows whose file is gone.

A row knows which import has seen it last, and in which of its files. If a full import
does not bring a row and does not read that file either, nobody knows whether the row
is gone: perhaps only the file was moved, or rotated away.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.domain.dataset import Dataset
from penstock.domain.source import is_address

# how the spool calls a fetched file: by its content, which changes, and by its name
FETCHED = re.compile(r".*/[0-9a-f]{16}-([^/]+)")
MAX_NAMED = 5


class Origin(NamedTuple):
    """Where rows were seen last: by an import, in the file of a number."""

    import_id: int
    # None where the row does not tell, but only the import
    number: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Missing rows of which nobody knows whether they are gone."""

    rows: int = 0
    origins: tuple[Origin, ...] = ()
    files: tuple[str, ...] = ()

    def note(self, dataset: Dataset) -> str | None:
        if not self.rows:
            return None
        named = ", ".join(self.files[:MAX_NAMED])
        more = len(self.files) - MAX_NAMED
        return (
            f"{self.rows} missing rows were kept: they were last seen in "
            f"{named}{f' and {more} more files' if more > 0 else ''}, which this "
            "import did not read; if they are gone: penstock run "
            f'{dataset.name} --accept-lost-files, or missing.lost_files = "accept"'
        )


def find_lost(
    missing: Mapping[Origin, int],
    files: Mapping[int, Mapping[int, str] | None],
    *,
    read: Mapping[int, str],
) -> Lost:
    """Find the missing rows whose file was not read.

    `files` holds the files that each of their imports has read, by their numbers: none
    unless it was a full import of files, and None if the ledger has forgotten it. Rows
    that came in another way are missing, unless some files are lost: they may have
    stood in these as well.
    """
    now = Counter(read.values())
    gone: set[str] = set()
    lost: list[Origin] = []
    elsewhere: list[Origin] = []
    for origin in missing:
        before = files[origin.import_id]
        names = absent_files(origin, before, now)
        gone |= names
        if names:
            lost.append(origin)
        elif origin.number not in (before or {}):
            elsewhere.append(origin)
    origins = [*lost, *elsewhere] if lost else []
    return Lost(
        rows=sum(missing[origin] for origin in origins),
        origins=tuple(origins),
        files=tuple(sorted(gone)),
    )


def absent_files(
    origin: Origin, before: Mapping[int, str] | None, now: Counter[str]
) -> set[str]:
    """Name the files that rows may have stood in, and that are not read any more."""
    if before is None:
        # rows that no file brought have no number either
        known = origin.number is not None
        return {f"a file of import {origin.import_id}"} if known else set()
    times = Counter(before.values())
    absent = {name for name in times if times[name] > now[name]}
    if origin.number is None:
        return absent
    return absent & {before.get(origin.number, "")}


def name_file(file: str, dataset: Dataset) -> str:
    """Return the name by which a file is known from one import to the next."""
    source = dataset.csv
    fetched = FETCHED.fullmatch(file)
    if fetched is not None and any(map(is_address, source.files)):
        return fetched[1]
    path = posixpath.normpath(posixpath.join(source.folder, file))
    return posixpath.relpath(path, source.folder)
