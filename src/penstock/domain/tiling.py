"""Check that slices of a file lie edge to edge, so that none of its rows is lost."""

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

from penstock.domain.parts import Slice


def untiled(slices: Iterable[Slice]) -> Iterator[tuple[Slice, str]]:
    """Yield what does not meet its neighbour or the end of its file, and why."""
    ordered = sorted(slices, key=lambda part: (part.number, part.start))
    for _, parts in groupby(ordered, key=lambda part: part.number):
        yield from untiled_file([*parts])


def untiled_file(parts: list[Slice]) -> Iterator[tuple[Slice, str]]:
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
