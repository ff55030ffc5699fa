"""Files to be read, and what is read from them."""

from collections.abc import Iterable
from pathlib import Path

from penstock.adapters.csv.chunk_reader import ChunkReader, RecordChunk
from penstock.adapters.csv.dialect import DeclaredDialect
from penstock.adapters.csv.header import FileHeader, read_header
from penstock.adapters.csv.limits import FileLimits
from penstock.adapters.csv.splitter import split_file

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


def read(path: Path, *, width: int, limits: FileLimits | None = None, **declared):
    """Read a file without a header, whole."""
    head = headless(path, width, **declared)
    return read_all(path, head, limits=limits or FileLimits())


def headless(path: Path, width: int, **declared) -> FileHeader:
    columns = tuple(f"c{number}" for number in range(width))
    known = {"delimiter": ",", "encoding": "utf-8", **declared}
    return read_header(path, DeclaredDialect(header=False, columns=columns, **known))


def read_all(path: Path, head: FileHeader, *, limits: FileLimits) -> list[RecordChunk]:
    cuts = split_file(path, head, size=1 << 30)
    return [
        chunk
        for each in cuts.ranges
        for chunk in ChunkReader(
            path, head.dialect, each, shape=head.shape, limits=limits
        )
    ]


def rows(chunks: Iterable[RecordChunk]) -> list[list[str]]:
    return [row for chunk in chunks for row in chunk.rows]


def flaws(chunks: Iterable[RecordChunk]) -> list[tuple[int, str]]:
    return [(bad.position.line, bad.flaw) for chunk in chunks for bad in chunk.bad]
