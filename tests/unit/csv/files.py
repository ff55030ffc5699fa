"""Files to be read, and what is read from them."""

from collections.abc import Iterable
from pathlib import Path

from penstock.adapters.csv.cut import cut
from penstock.adapters.csv.dialect import Declared
from penstock.adapters.csv.head import Head, read_head
from penstock.adapters.csv.limits import Limits
from penstock.adapters.csv.read import Chunk, Chunks

MARKS = {
    "utf-8": b"",
    "utf-8-sig": b"\xef\xbb\xbf",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "cp1252": b"",
}


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path, *, width: int, limits: Limits | None = None, **declared):
    """Read a file without a header, whole."""
    head = headless(path, width, **declared)
    return read_all(path, head, limits=limits or Limits())


def headless(path: Path, width: int, **declared) -> Head:
    columns = tuple(f"c{number}" for number in range(width))
    known = {"delimiter": ",", "encoding": "utf-8", **declared}
    return read_head(path, Declared(header=False, columns=columns, **known))


def read_all(path: Path, head: Head, *, limits: Limits) -> list[Chunk]:
    cuts = cut(path, head, size=1 << 30)
    return [
        chunk
        for each in cuts.ranges
        for chunk in Chunks(path, head.dialect, each, shape=head.shape, limits=limits)
    ]


def rows(chunks: Iterable[Chunk]) -> list[list[str]]:
    return [row for chunk in chunks for row in chunk.rows]


def flaws(chunks: Iterable[Chunk]) -> list[tuple[int, str]]:
    return [(bad.place.line, bad.flaw) for chunk in chunks for bad in chunk.bad]
