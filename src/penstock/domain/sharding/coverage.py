"""Check that slices cover a file without gap or overlap, so that no row is lost."""

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

from penstock.domain.sharding.parts import Slice


def find_coverage_errors(slices: Iterable[Slice]) -> Iterator[tuple[Slice, str]]:
    """Yield slices that do not meet the next one or the end of their file, and why."""
    ordered = sorted(slices, key=lambda part: (part.number, part.start))
    for _, parts in groupby(ordered, key=lambda part: part.number):
        yield from find_file_errors([*parts])


def find_file_errors(parts: list[Slice]) -> Iterator[tuple[Slice, str]]:
    for before, after in pairwise(parts):
        if (before.file, before.size, before.fingerprint) != (
            *(after.file, after.size, after.fingerprint),
        ):
            yield after, f"it is of another file than {before.text}"
        elif before.end != after.start:
            yield after, f"it begins at {after.start}, not at {before.end}"
    last = parts[-1]
    if last.end not in {None, last.size}:
        yield last, f"it ends at {last.end}, and the file at {last.size}"
