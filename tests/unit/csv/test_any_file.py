"""Whatever a file holds: cut anywhere and read in any chunks, it is the same rows."""

import csv
import gzip
from dataclasses import dataclass, replace
from io import StringIO
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.adapters.csv.byte_stream import GZIP_MAGIC
from penstock.adapters.csv.chunk_reader import ChunkReader, RecordChunk
from penstock.adapters.csv.dialect import CsvDialect
from penstock.adapters.csv.header import FileHeader
from penstock.adapters.csv.limits import FileLimits
from penstock.adapters.csv.splitter import SplitPoints, split_file
from penstock.domain.formats import OTHER_FORMATS
from tests.support.csv_files import MARKS, headless, write
from tests.support.strict_csv import (
    Format,
    StrictRecord,
    find_flaw,
    has_trailing_delimiters,
    read_strictly,
)

SIGNS = ",;\t| ?^]-\\'\"a"
# ends of lines to others, or bytes that look like ends of lines in UTF-16
ODD = "\x0b\x85\u2028\u0a0a\u0d0a\u0a00\u000d\u2c00\u2200\ufeffé𝄞"


@dataclass(frozen=True)
class Written:
    """A file as text, and how it is written."""

    text: str
    dialect: CsvDialect
    mark: bytes

    @property
    def raw(self) -> bytes:
        return self.mark + self.text.encode(self.dialect.encoding)


@dataclass(frozen=True)
class Manner:
    """How a file is cut and read."""

    size: int
    block: int
    limits: FileLimits
    # after which chunks it is begun again
    stops: tuple[bool, ...]


@st.composite
def dialects(draw) -> tuple[CsvDialect, bytes, str]:
    encoding = draw(st.sampled_from(list(MARKS)))
    delimiter = draw(st.sampled_from(SIGNS))
    quotes = [None, *SIGNS.replace(delimiter, "")]
    quote = draw(st.sampled_from(quotes))
    escapes = [None, *SIGNS.replace(delimiter, "").replace(quote or delimiter, "")]
    dialect = CsvDialect(
        delimiter=delimiter,
        quote=quote,
        escape=None if quote is None else draw(st.sampled_from(escapes)),
        encoding=encoding.removesuffix("-sig"),
    )
    odd = "é" if encoding == "cp1252" else ODD
    return dialect, MARKS[encoding], odd


@st.composite
def written_by_python(draw) -> Written:
    dialect, mark, odd = draw(dialects())
    letters = f'ab \n\r{odd}{dialect.delimiter}{dialect.quote}"'
    modes = st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
    if dialect.quote is None:
        # nothing that would have to be quoted, or would be an escape
        letters = 'bxé"'.replace(dialect.delimiter, "")
        modes = st.just(csv.QUOTE_NONE)
    table = draw(
        st.lists(st.lists(st.text(letters, max_size=6), min_size=2, max_size=4))
    )
    file = StringIO(newline="")
    writer = csv.writer(
        file,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        quoting=draw(modes),
        lineterminator=draw(st.sampled_from(["\n", "\r\n", "\r"])),
    )
    writer.writerows(table)
    return marked(file.getvalue(), dialect, mark)


@st.composite
def any_texts(draw) -> Written:
    dialect, mark, odd = draw(dialects())
    often = [
        *(dialect.delimiter, dialect.quote or '"', dialect.escape or "\\"),
        *("\n", "\r", "\r\n"),
    ]
    parts = st.sampled_from([*often, *often, "a", "b", *odd])
    text = "".join(draw(st.lists(parts, max_size=50)))
    return marked(text, dialect, mark)


def marked(text: str, dialect: CsvDialect, mark: bytes) -> Written:
    # without a mark of its own, a file that begins like one is taken to have one
    return Written(text if mark else text.lstrip("\ufeff"), dialect, mark)


manners = st.builds(
    Manner,
    size=st.integers(1, 60),
    block=st.integers(1, 40),
    limits=st.builds(
        FileLimits,
        rows=st.integers(1, 5),
        bytes=st.integers(1, 60),
        record=st.sampled_from([10, 30, 1000]),
    ),
    stops=st.lists(st.booleans(), min_size=1, max_size=7).map(tuple),
)
SMALL = FileLimits(rows=1, bytes=1, record=10)
BIT_BY_BIT = Manner(size=1, block=1, limits=SMALL, stops=(True,))
AT_A_STRETCH = Manner(size=1, block=1, limits=SMALL, stops=(False,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("csv")


@given(st.one_of(written_by_python(), any_texts()), st.integers(1, 3), manners)
@settings(max_examples=400)
@example(Written('a,"b\n"\n', CsvDialect(), b""), 2, BIT_BY_BIT)
@example(Written('5" pipe,b\n"x\n"\n', CsvDialect(), b""), 2, BIT_BY_BIT)
@example(Written('"a""\n""",b\r\r\n', CsvDialect(), b""), 2, BIT_BY_BIT)
@example(Written("\ra,bbbbbbbb\n", CsvDialect(), b""), 2, AT_A_STRETCH)
@example(Written('a,"b"c\n1,2\n', CsvDialect(), b""), 2, BIT_BY_BIT)
@example(Written('a,"\\"\n\\"",b\\"\n', CsvDialect(escape="\\"), b""), 3, BIT_BY_BIT)
@example(Written('"\\\\\\"\n\\\\"\n"', CsvDialect(escape="\\"), b""), 1, AT_A_STRETCH)
def test_a_file_cut_anywhere_gives_what_a_strict_reader_reads(
    folder, written, width, manner
):
    path = write(folder / "any.csv", written.raw)
    head = headless(path, width, **facts(written.dialect))

    cuts = split_file(path, head, size=manner.size, block=manner.block)
    chunks = read_with_stops(path, head, cuts, manner)

    assert cuts.content.size == len(written.raw)
    assert cuts.unclosed == unclosed_line(strictly(written.raw, head))
    starts = [each.start for each in cuts.ranges]
    ends = [each.end for each in cuts.ranges]
    assert [*starts, len(written.raw)] == [head.start, *ends]
    assert starts == sorted(set(starts))
    judge(chunks, strictly(written.raw, head), head, manner.limits)


@given(st.one_of(written_by_python(), any_texts()), st.integers(1, 3), manners)
def test_a_packed_file_gives_the_same(folder, written, width, manner):
    path = write(folder / "any.csv.gz", gzip.compress(written.raw, mtime=0))
    head = headless(path, width, **facts(written.dialect))

    cuts = split_file(path, head, size=manner.size, block=manner.block)
    chunks = read_with_stops(path, head, cuts, manner)

    assert len(cuts.ranges) == 1
    judge(chunks, strictly(written.raw, head), head, manner.limits)


@given(
    st.binary(max_size=80).filter(
        lambda raw: not raw.startswith((GZIP_MAGIC, *OTHER_FORMATS))
    ),
    st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "cp1252", "ascii"]),
    manners,
)
@settings(max_examples=300)
def test_any_bytes_are_rows_as_they_stand_or_bad(folder, raw, encoding, manner):
    path = write(folder / "any.bytes", raw)
    head = headless(path, 2, encoding=encoding)

    cuts = split_file(path, head, size=manner.size, block=manner.block)
    chunks = read_with_stops(path, head, cuts, manner)

    sizes = [chunk.next_start - chunk.start for chunk in chunks]
    assert head.start + sum(sizes) == len(raw)
    judge(chunks, strictly(raw, head), head, manner.limits)


def strictly(raw: bytes, head: FileHeader) -> list[StrictRecord]:
    return read_strictly(raw, as_format(head), start=head.start)


def as_format(head: FileHeader) -> Format:
    return Format(**facts(head.dialect))


def unclosed_line(records: list[StrictRecord]) -> int | None:
    return records[-1].open_line if records else None


def facts(dialect: CsvDialect) -> dict[str, Any]:
    return {
        "delimiter": dialect.delimiter,
        "quote": dialect.quote,
        "escape": dialect.escape,
        "encoding": dialect.encoding,
    }


def read_with_stops(
    path: Path, head: FileHeader, cuts: SplitPoints, manner: Manner
) -> list[RecordChunk]:
    """Read all ranges, and begin again where the last chunk says."""
    found: list[RecordChunk] = []
    stops = cycle(manner.stops)
    for part in cuts.ranges:
        left, is_done = part, False
        while not is_done:
            is_done = True
            for chunk in ChunkReader(
                path, head.dialect, left, shape=head.shape, limits=manner.limits
            ):
                assert (chunk.start, chunk.line) == (left.start, left.line)
                found.append(chunk)
                left = replace(part, start=chunk.next_start, line=chunk.next_line)
                if next(stops):
                    is_done = False
                    break
        assert part.end in {None, left.start}
    return found


def judge(
    chunks: list[RecordChunk],
    records: list[StrictRecord],
    head: FileHeader,
    limits: FileLimits,
) -> None:
    """Hold what was read against a strict reading, record by record."""
    width = len(head.names)
    is_trailing = has_trailing_delimiters(records, width)
    flaws = {
        record.offset: find_flaw(
            record,
            as_format(head),
            width=width,
            is_trailing=is_trailing,
            most=limits.record,
        )
        for record in records
        if record.values
    }
    assert all(len(chunk.rows) <= limits.rows for chunk in chunks)
    assert sum(map(counted, chunks)) == len(records)
    assert sum(chunk.skipped for chunk in chunks) == len(records) - len(flaws)
    assert [
        (row, place.line, place.offset, place.raw)
        for chunk in chunks
        for row, place in zip(chunk.rows, chunk.positions(), strict=True)
    ] == [
        (record.values[:width], record.line, record.offset, record.raw)
        for record in records
        if record.values and flaws[record.offset] is None
    ]
    assert [
        (bad.flaw, bad.position.line, bad.position.offset, bad.position.raw)
        for chunk in chunks
        for bad in chunk.bad
    ] == [
        (flaw, record.line, record.offset, record.raw[: limits.record])
        for record in records
        if (flaw := flaws.get(record.offset)) is not None
    ]


def counted(chunk: RecordChunk) -> int:
    return len(chunk.rows) + len(chunk.bad) + chunk.skipped
