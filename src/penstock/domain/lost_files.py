"""Distinguish rows that were removed from rows whose file is missing.

A row stores which import has seen it last, and in which of its files. If a full import
contains neither the row nor that file, it is unknown whether the row was removed:
perhaps only the file was moved, or rotated away.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.domain.dataset import Dataset
from penstock.domain.source import is_url

# name of a downloaded file in the spool: a digest of its content, and its own name
FETCHED = re.compile(r".*/[0-9a-f]{16}-([^/]+)")
MAX_NAMED = 5


class RowOrigin(NamedTuple):
    """Where rows were seen last: an import, and the number of its file."""

    import_id: int
    # None where the row stores only the import
    number: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesNotRead:
    """Missing rows that may still exist, because their files were not read."""

    rows: int = 0
    origins: tuple[RowOrigin, ...] = ()
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


def find_lost_rows(
    missing: Mapping[RowOrigin, int],
    files: Mapping[int, Mapping[int, str] | None],
    *,
    read: Mapping[int, str],
) -> FilesNotRead:
    """Find the missing rows whose file was not read.

    `files` maps each of their imports to the files it has read, by number: empty unless
    it was a full import of files, and None if the ledger no longer has it. Rows of
    another origin are missing, unless some files are lost: these may have contained
    them as well.
    """
    read_now = Counter(read.values())
    lost_files: set[str] = set()
    lost: list[RowOrigin] = []
    without_file: list[RowOrigin] = []
    for origin in missing:
        read_before = files[origin.import_id]
        names = absent_files(origin, read_before, read_now)
        lost_files |= names
        if names:
            lost.append(origin)
        elif origin.number not in (read_before or {}):
            without_file.append(origin)
    origins = [*lost, *without_file] if lost else []
    return FilesNotRead(
        rows=sum(missing[origin] for origin in origins),
        origins=tuple(origins),
        files=tuple(sorted(lost_files)),
    )


def absent_files(
    origin: RowOrigin, read_before: Mapping[int, str] | None, read_now: Counter[str]
) -> set[str]:
    """Return the files that may have contained the rows, and were not read now."""
    if read_before is None:
        # rows without a number did not come from a file
        has_file = origin.number is not None
        return {f"a file of import {origin.import_id}"} if has_file else set()
    times = Counter(read_before.values())
    absent = {name for name in times if times[name] > read_now[name]}
    if origin.number is None:
        return absent
    return absent & {read_before.get(origin.number, "")}


def stable_file_name(file: str, dataset: Dataset) -> str:
    """Return the name that a file has in every import."""
    source = dataset.csv
    fetched = FETCHED.fullmatch(file)
    if fetched is not None and any(map(is_url, source.files)):
        return fetched[1]
    path = posixpath.normpath(posixpath.join(source.folder, file))
    return posixpath.relpath(path, source.folder)
