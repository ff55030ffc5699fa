import csv
import gzip
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice, pairwise

import pytest

from penstock.adapters.csv.byte_stream import ByteStream
from penstock.adapters.csv.chunk_reader import ChunkReader
from penstock.adapters.csv.dialect import CsvDialect
from penstock.adapters.csv.limits import FileLimits
from penstock.adapters.csv.row_shape import RowShape
from penstock.adapters.csv.splitter import ByteRange, split_file
from penstock.domain.pages import Reason
from penstock.errors import ExpandsTooLarge, Misconfigured, Rejected
from tests.support.csv_files import flaws, headless, read, rows, write

MEGABYTE = 1024 * 1024
PAIR = RowShape(width=2)


def read_text(tmp_path, content, *, width=2, limits=None, **declared):
    path = write(tmp_path / "file.csv", content)
    return read(path, width=width, limits=limits, **declared)


def only(chunks):
    (chunk,) = chunks
    return chunk


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("1,2\n3,4", [["1", "2"], ["3", "4"]]),
        ("1,2\r\n3,4\r\n", [["1", "2"], ["3", "4"]]),
        ("1,2\r3,4\r", [["1", "2"], ["3", "4"]]),
        ('1,"a,b"\n', [["1", "a,b"]]),
        ('1,""\n"",2\n', [["1", ""], ["", "2"]]),
        ('1,"a ""b"""\n', [["1", 'a "b"']]),
        ('1,"a\r\nb\n\nc"\r\n', [["1", "a\r\nb\n\nc"]]),
        ('1,5" pipe\n2,b\n', [["1", '5" pipe'], ["2", "b"]]),
        ('1,"{""k"": [""v""]}"\n', [["1", '{"k": ["v"]}']]),
        ("1, ʤ 中𝄞\n", [["1", " ʤ 中𝄞"]]),
        ("1,a\x0bb\x85c\u2028d\n", [["1", "a\x0bb\x85c\u2028d"]]),
        (",\n", [["", ""]]),
    ],
)
def test_what_is_well_formed_is_read(tmp_path, content, expected):
    chunk = only(read_text(tmp_path, content))

    assert chunk.rows == expected
    assert (chunk.bad, chunk.skipped) == ([], 0)


def test_empty_lines_are_skipped_and_counted(tmp_path):
    chunk = only(read_text(tmp_path, "\n1,a\n\r\n\r2,b\n\n"))

    assert chunk.rows == [["1", "a"], ["2", "b"]]
    assert chunk.skipped == 4
    assert [place.line for place in chunk.positions()] == [2, 5]


def test_a_trailing_delimiter_adds_no_value_where_all_rows_have_it(tmp_path):
    chunk = only(read_text(tmp_path, "1,a,\n" * 99 + "2,b\n"))

    assert chunk.rows == [["1", "a"]] * 99 + [["2", "b"]]
    assert chunk.bad == []


def test_an_extra_delimiter_makes_its_row_bad(tmp_path):
    chunk = only(read_text(tmp_path, "1,a\n2,Smith,\n3,b\n"))

    assert chunk.rows == [["1", "a"], ["3", "b"]]
    assert flaws([chunk]) == [(2, Reason.TOO_MANY_VALUES)]


def test_a_row_that_lacks_a_value_before_its_trailing_delimiter_is_bad(tmp_path):
    chunk = only(read_text(tmp_path, "1,a,\n" * 99 + "2,\n"))

    assert flaws([chunk]) == [(100, Reason.TOO_FEW_VALUES)]
    assert chunk.bad[0].detail == (
        "1 values and a delimiter after them, but the file has 2 columns"
    )


@pytest.mark.parametrize(
    ("row", "detail"),
    [
        (
            '2,"24" bike',
            "' bike' follows the closing quote of value 2; quotes within a value are",
        ),
        (
            '2,"\\"a\\" b"',
            "'a\\\\\" b\"' follows the closing quote of value 2; if a backslash",
        ),
        ('2,"a" ', "' ' follows the closing quote of value 2"),
        ('2,"a""b"c', "'c' follows the closing quote of value 2"),
    ],
)
def test_text_behind_a_closing_quote_makes_its_row_bad(tmp_path, row, detail):
    chunk = only(read_text(tmp_path, f"1,a\n{row}\n3,c\n"))

    assert chunk.rows == [["1", "a"], ["3", "c"]]
    assert flaws([chunk]) == [(2, Reason.TEXT_AFTER_QUOTE)]
    assert chunk.bad[0].detail.startswith(detail)
    assert [place.line for place in chunk.positions()] == [1, 3]


def test_a_bad_row_with_text_behind_a_quote_ends_where_its_line_does(tmp_path):
    chunk = only(read_text(tmp_path, '1,"24" bike, "red\n2,b\n'))

    assert chunk.rows == [["2", "b"]]
    assert chunk.bad[0].position.raw == b'1,"24" bike, "red\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('1,"say \\"hi\\", you"\n', [["1", 'say "hi", you']]),
        ('1,"a\\\\"\n2,"b"\n', [["1", "a\\"], ["2", "b"]]),
        ('1,"a""b"\n', [["1", 'a"b']]),
        ('1,"a\\"\n\\"b"\n', [["1", 'a"\n"b']]),
        # what escapes nothing is a character like any other
        ("1,\\N\n2,C:\\\\x\n", [["1", "\\N"], ["2", "C:\\\\x"]]),
        ('1,"C:\\new"\n', [["1", "C:\\new"]]),
    ],
)
def test_an_escape_stands_before_quotes_and_itself_within_quotes(
    tmp_path, content, expected
):
    assert rows(read_text(tmp_path, content, escape="\\")) == expected


def test_rows_with_too_few_or_too_many_values_are_bad(tmp_path):
    chunk = only(read_text(tmp_path, '1,a\n2\n3,"b\nc",x\n4,d,,\n5,e\n'))

    assert chunk.rows == [["1", "a"], ["5", "e"]]
    assert flaws([chunk]) == [
        (2, Reason.TOO_FEW_VALUES),
        (3, Reason.TOO_MANY_VALUES),
        (5, Reason.TOO_MANY_VALUES),
    ]
    first, second, _ = chunk.bad
    assert first.detail == "1 values, but the file has 2 columns"
    assert (second.position.offset, second.position.raw) == (6, b'3,"b\nc",x\n')
    assert [place.line for place in chunk.positions()] == [1, 6]


def test_bytes_that_cannot_be_decoded_make_one_row_bad(tmp_path):
    chunk = only(read_text(tmp_path, b"1,\xc3\xa9\n2,\xc3\xa9\xe9\n3,c\n"))

    assert chunk.rows == [["1", "é"], ["3", "c"]]
    (bad,) = chunk.bad
    assert (bad.flaw, bad.position.line) == (Reason.UNDECODABLE, 2)
    assert bad.detail == "byte 0xe9 at offset 9 is not utf-8"
    assert bad.position.raw == b"2,\xc3\xa9\xe9\n"


def test_half_a_character_of_utf_16_makes_the_last_row_bad(tmp_path):
    raw = b"\xff\xfe" + "1,a\n2,b".encode("utf-16-le") + b"\x00"

    chunk = only(read_text(tmp_path, raw))

    assert chunk.rows == [["1", "a"]]
    (bad,) = chunk.bad
    assert bad.flaw is Reason.UNDECODABLE
    assert (bad.position.line, bad.position.offset) == (2, 10)
    assert bad.position.raw == "2,b".encode("utf-16-le") + b"\x00"
    assert chunk.next_start == len(raw)


def test_half_a_surrogate_pair_makes_its_row_bad(tmp_path):
    raw = b"\xff\xfe" + "1,\ud834\n2,b\n".encode("utf-16-le", "surrogatepass")

    chunk = only(read_text(tmp_path, raw))

    assert chunk.rows == [["2", "b"]]
    assert flaws([chunk]) == [(1, Reason.UNDECODABLE)]


def test_a_nul_makes_its_row_bad(tmp_path):
    chunk = only(read_text(tmp_path, "1,é\n2,é\0\n3,c\n"))

    assert chunk.rows == [["1", "é"], ["3", "c"]]
    (bad,) = chunk.bad
    assert (bad.flaw, bad.position.line) == (Reason.NUL, 2)
    assert bad.detail == "there is a NUL character at offset 9"


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_record_that_is_too_long_is_one_bad_row(tmp_path, quote):
    long = f"2,{quote}{'x' * 40}{quote}\n"

    chunks = read_text(
        tmp_path, f"1,a\n{long}3,c\n", limits=FileLimits(record=30, bytes=10)
    )

    assert rows(chunks) == [["1", "a"], ["3", "c"]]
    assert flaws(chunks) == [(2, Reason.TOO_LONG)]
    (bad,) = [bad for chunk in chunks for bad in chunk.bad]
    assert bad.detail.startswith(
        f"the record has {len(long)} bytes, of 30 that are allowed"
    )
    assert bad.position.raw == long.encode()[:30]


def test_a_record_may_be_as_long_as_the_limit(tmp_path):
    content = "1,aaa\r2,bbb\r\n3,bbb\n4,b"

    chunks = read_text(tmp_path, content, limits=FileLimits(record=6, bytes=6))

    assert rows(chunks) == [["1", "aaa"], ["3", "bbb"], ["4", "b"]]
    assert flaws(chunks) == [(2, Reason.TOO_LONG)]


def test_a_quote_that_is_never_closed_is_one_bad_row(tmp_path):
    chunks = read_text(tmp_path, '1,a\n2,"b\n3,c\n4,d\n')

    assert rows(chunks) == [["1", "a"]]
    assert flaws(chunks) == [(2, Reason.UNCLOSED_QUOTE)]
    assert chunks[-1].bad[0].detail == "the quote on line 2 is never closed"


def test_a_quote_that_is_closed_much_later_is_reported(tmp_path):
    limits = FileLimits(record=12, bytes=12)

    chunks = read_text(tmp_path, '1,a\n2,"b\n3,c\n4,d\n5,e\n"\n6,f\n', limits=limits)

    assert rows(chunks) == [["1", "a"], ["6", "f"]]
    (bad,) = [bad for chunk in chunks for bad in chunk.bad]
    assert bad.detail.endswith("; is a quote on line 2 not closed?")
    assert bad.open_quote == "the quote on line 2 is not closed within 12 bytes"


@pytest.mark.parametrize("content", [b"x", b'"', b'"\n', b"x,", b"\r", b"\0"])
def test_a_giant_record_is_read_in_bounded_memory(tmp_path, content):
    path = write(tmp_path / "file.csv", b"1,a\n" + content * (2 * MEGABYTE))
    part = ByteRange(start=0, end=path.stat().st_size, line=1)
    limits = FileLimits(record=32 * 1024, bytes=32 * 1024, rows=100)
    chunks = ChunkReader(path, CsvDialect(), part, shape=PAIR, limits=limits)

    tracemalloc.start()
    places = [(chunk.start, chunk.next_start) for chunk in islice(chunks, 500)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(places) > 1
    assert all(end == start for (_, end), (start, _) in pairwise(places))
    assert peak < MEGABYTE


def test_chunks_are_bounded_in_rows_and_bytes(tmp_path):
    content = "".join(f"{number},{'x' * 10}\n" for number in range(1000))

    by_rows = read_text(tmp_path, content, limits=FileLimits(rows=300))
    by_bytes = read_text(tmp_path, content, limits=FileLimits(bytes=500))

    assert [len(chunk.rows) for chunk in by_rows] == [250] * 4
    assert max(chunk.next_start - chunk.start for chunk in by_bytes) <= 500
    assert rows(by_rows) == rows(by_bytes)


def test_after_a_long_record_chunks_are_large_again(tmp_path):
    lines = "\n" * 600

    chunks = read_text(
        tmp_path, f'0,"{lines}"\n' + "1,a\n" * 200, limits=FileLimits(bytes=500)
    )

    assert rows(chunks) == [["0", lines], *[["1", "a"]] * 200]
    assert [len(chunk.rows) for chunk in chunks] == [1, 125, 75]


def test_of_a_giant_record_only_the_beginning_is_retained(tmp_path):
    chunk = only(read_text(tmp_path, "x" * (MEGABYTE + 1)))

    (bad,) = chunk.bad
    assert bad.flaw is Reason.TOO_LONG
    assert len(bad.position.raw) == 64 * 1024


def test_reading_goes_on_where_a_chunk_ended(tmp_path):
    path = write(tmp_path / "file.csv", '1,"a\nb"\n2,é\n3,c\n4,d\n')
    head = headless(path, 2)
    (part,) = split_file(path, head, size=1000).ranges
    limits = FileLimits(rows=2)

    first = next(iter(ChunkReader(path, head.dialect, part, shape=PAIR, limits=limits)))
    rest = replace(part, start=first.next_start, line=first.next_line)
    chunks = list(ChunkReader(path, head.dialect, rest, shape=PAIR, limits=limits))

    assert first.rows == [["1", "a\nb"], ["2", "é"]]
    assert (rest.start, rest.line) == (13, 4)
    assert rows(chunks) == [["3", "c"], ["4", "d"]]
    assert [place.line for place in chunks[0].positions()] == [4, 5]


def test_a_packed_file_of_several_members_is_read(tmp_path):
    raw = gzip.compress(b"1,a\n2,") + gzip.compress(b"b\n3,c\n")

    assert rows(read_text(tmp_path, raw)) == [["1", "a"], ["2", "b"], ["3", "c"]]


def test_a_packed_file_that_grows_beyond_all_measure_is_refused(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"\n" * MEGABYTE))
    limits = FileLimits(expansion=10, harmless=1000)

    with (
        ByteStream(path, limits=limits) as stream,
        pytest.raises(ExpandsTooLarge, match=r"source\.max_expansion = 10 allows"),
    ):
        stream.read(2 * MEGABYTE)
    with ByteStream(path) as stream:
        assert len(stream.read(2 * MEGABYTE)) == MEGABYTE + 4


def test_a_packed_file_that_unpacks_to_too_much_is_refused(tmp_path):
    bomb = gzip.compress(b"1,a\n" * MEGABYTE)
    path = write(tmp_path / "bomb.gz", bomb)
    limits = FileLimits(unpacked=2 * MEGABYTE)

    tracemalloc.start()
    with pytest.raises(Rejected, match="decompresses to more than 2097152 bytes"):
        read(path, width=2, limits=limits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 100 * MEGABYTE


@pytest.mark.parametrize("end", [b"", b"wrong sum"])
def test_a_packed_file_that_is_damaged_is_refused(tmp_path, end):
    path = write(tmp_path / "file.gz", gzip.compress(b"1,a\n" * MEGABYTE))
    head = headless(path, 2)
    (part,) = split_file(path, head, size=100).ranges
    path.write_bytes(path.read_bytes()[:-8] + end)

    with pytest.raises(Rejected, match="is not complete gzip"):
        list(ChunkReader(path, head.dialect, part, shape=PAIR))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_became_shorter_is_no_shorter_range(tmp_path, pack):
    path = write(tmp_path / "file.csv", pack(b"1,a\n" * 100))
    head = headless(path, 2)
    (part,) = split_file(path, head, size=1000).ranges
    path.write_bytes(pack(b"1,a\n" * 50))
    left = replace(part, start=300, line=76)

    with pytest.raises(Rejected, match="it was changed after it was"):
        list(ChunkReader(path, head.dialect, left, shape=PAIR))


def test_a_file_that_is_gone_is_reported(tmp_path):
    path = write(tmp_path / "file.csv", b"1,a\n")
    head = headless(path, 2)
    path.unlink()

    with pytest.raises(Misconfigured, match="No such file"):
        list(
            ChunkReader(
                path, head.dialect, ByteRange(start=0, end=4, line=1), shape=PAIR
            )
        )


def test_long_fields_are_read_by_many_threads_at_once(tmp_path):
    csv.field_size_limit(131_072)
    long = "x" * 200_000
    path = write(tmp_path / "file.csv", f"1,{long}\n" * 3)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: rows(read(path, width=2)), range(12)))

    assert found == [[["1", long]] * 3] * 12


def test_a_range_can_be_read_again(tmp_path):
    path = write(tmp_path / "file.csv", b"1,a\n2,b\n")
    head = headless(path, 2)
    chunks = ChunkReader(
        path, head.dialect, ByteRange(start=0, end=8, line=1), shape=PAIR
    )

    assert [replace(chunk, excerpt=None) for chunk in chunks] == [
        replace(chunk, excerpt=None) for chunk in chunks
    ]
