"""Sort more than memory holds: sorted runs in a file, merged as they are read."""

import heapq
import marshal
from collections.abc import Iterable, Iterator
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar

# how many are sorted in memory, and how many of a run are held while runs are merged
RUN = 200_000
BLOCK = 500

# plain tuples of numbers, texts and the like
Item = TypeVar("Item", bound=tuple[Any, ...])


def sorted_on_disk(
    items: Iterable[Item], *, reverse: bool = False, run: int = RUN
) -> Iterator[Item]:
    """Yield tuples of plain values in their order, however many there are."""
    left = iter(items)
    some = sorted(islice(left, run), reverse=reverse)
    if len(some) < run:
        yield from some
        return
    with TemporaryFile(prefix="penstock-") as file:
        runs = []
        while some:
            runs.append(write_run(some, file))
            some = sorted(islice(left, run), reverse=reverse)
        parts = [read_run(blocks, file) for blocks in runs]
        yield from heapq.merge(*parts, reverse=reverse)


def write_run(items: list[Any], file: IO[bytes]) -> list[tuple[int, int]]:
    """Append a run, and return where each of its blocks begins and how long it is."""
    blocks = []
    for at in range(0, len(items), BLOCK):
        raw = marshal.dumps(items[at : at + BLOCK])
        blocks.append((file.tell(), len(raw)))
        file.write(raw)
    return blocks


def read_run(blocks: Iterable[tuple[int, int]], file: IO[bytes]) -> Iterator[Any]:
    for start, size in blocks:
        file.seek(start)
        yield from marshal.loads(file.read(size))  # noqa: S302 (our own file)
