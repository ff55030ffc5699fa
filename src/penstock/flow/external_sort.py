"""Sort more than memory holds: sorted runs in a file, merged as they are read."""

import heapq
import marshal
from collections.abc import Iterable, Iterator
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar

# items sorted in memory, and items of each run in memory during the merge
RUN_SIZE = 200_000
BLOCK_SIZE = 500

# tuples of values that marshal can write
Item = TypeVar("Item", bound=tuple[Any, ...])


def sorted_on_disk(
    items: Iterable[Item], *, reverse: bool = False, run: int = RUN_SIZE
) -> Iterator[Item]:
    """Yield tuples of plain values in their order, however many there are."""
    remaining = iter(items)
    chunk = sorted(islice(remaining, run), reverse=reverse)
    if len(chunk) < run:
        yield from chunk
        return
    with TemporaryFile(prefix="penstock-") as file:
        runs = []
        while chunk:
            runs.append(write_run(chunk, file))
            chunk = sorted(islice(remaining, run), reverse=reverse)
        parts = [read_run(blocks, file) for blocks in runs]
        yield from heapq.merge(*parts, reverse=reverse)


def write_run(items: list[Any], file: IO[bytes]) -> list[tuple[int, int]]:
    """Append a run; return the offset and length of each of its blocks."""
    blocks = []
    for start in range(0, len(items), BLOCK_SIZE):
        raw = marshal.dumps(items[start : start + BLOCK_SIZE])
        blocks.append((file.tell(), len(raw)))
        file.write(raw)
    return blocks


def read_run(blocks: Iterable[tuple[int, int]], file: IO[bytes]) -> Iterator[Any]:
    for start, size in blocks:
        file.seek(start)
        yield from marshal.loads(file.read(size))  # noqa: S302 (our own file)
