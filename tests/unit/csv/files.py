"""Files to be read, and what Python's own reader finds in them."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from itertools import chain
from pathlib import Path

from penstock.adapters.csv.cut import cut
from penstock.adapters.csv.dialect import Declared, Dialect
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


@dataclass(frozen=True)
class Expected:
    """A record as Python reads it from the whole file, and where it stands."""

    row: list[str]
    line: int
    offset: int
    raw: bytes


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path, *, width: int, limits: Limits | None = None, **declared):
    """Read a file without a header, whole."""
    head = headless(path, width, **declared)
    return read_all(path, head, width=width, limits=limits or Limits())


def headless(path: Path, width: int, **declared) -> Head:
    columns = tuple(f"c{number}" for number in range(width))
    known = {"delimiter": ",", "encoding": "utf-8", **declared}
    return read_head(path, Declared(header=False, columns=columns, **known))


def read_all(path: Path, head: Head, *, width: int, limits: Limits) -> list[Chunk]:
    cuts = cut(path, head, size=1 << 30)
    return [
        chunk
        for each in cuts.ranges
        for chunk in Chunks(path, head.dialect, each, width=width, limits=limits)
    ]


def rows(chunks: Iterable[Chunk]) -> list[list[str]]:
    return [row for chunk in chunks for row in chunk.rows]


def flaws(chunks: Iterable[Chunk]) -> list[tuple[int, str]]:
    return [(bad.place.line, bad.flaw) for chunk in chunks for bad in chunk.bad]


def records(text: str, dialect: Dialect, *, start: int = 0) -> Iterator[Expected]:
    codec = dialect.encoding
    lines = StringIO(text, newline="")
    reader = python_reader(lines, dialect)
    at, line = 0, 1
    for row in reader:
        end = lines.tell()
        raw = text[at:end].encode(codec, "surrogateescape")
        offset = start + len(text[:at].encode(codec, "surrogateescape"))
        yield Expected(row, line, offset, raw)
        at, line = end, reader.line_num + 1


def is_open(text: str, dialect: Dialect) -> bool:
    """Tell if a quote is open at the end: one more line would then be part of it."""
    lines = chain(StringIO(text, newline=""), ["more\n"])
    return ["more"] not in list(python_reader(lines, dialect))[-1:]


def python_reader(lines: Iterable[str], dialect: Dialect):
    if dialect.quote is None:
        return csv.reader(lines, delimiter=dialect.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=dialect.delimiter, quotechar=dialect.quote)
