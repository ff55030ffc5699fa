import gzip
import tracemalloc
from pathlib import PosixPath

import pytest

from penstock.adapters.csv.content_hash import HashingStream
from penstock.adapters.csv.dialect import DeclaredDialect
from penstock.adapters.csv.header import read_header
from penstock.adapters.csv.splitter import ByteRange, split_file
from penstock.errors import SourceUnavailable
from tests.support.csv_files import headless, write

COMMA = DeclaredDialect(delimiter=",", encoding="utf-8")


def cuts_of(tmp_path, content, *, size, width=2, **declared):
    path = write(tmp_path / "file.csv", content)
    return split_file(path, headless(path, width, **declared), size=size)


def starts(cuts):
    return [each.start for each in cuts.ranges]


def test_ranges_begin_where_records_begin(tmp_path):
    path = write(tmp_path / "file.csv", 'uid,name\n1,"a\nb"\n2,c\n3,d\n')

    cuts = split_file(path, read_header(path, COMMA), size=5)

    assert cuts.ranges == (
        ByteRange(start=9, end=17, line=2),
        ByteRange(start=17, end=25, line=4),
    )


def test_a_file_smaller_than_the_size_is_one_range(tmp_path):
    assert starts(cuts_of(tmp_path, "1,a\n2,b\n", size=100)) == [0]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_all_ends_of_lines_end_records_and_are_counted(tmp_path, newline):
    content = f'1,a{newline}2,"{newline}"{newline}{newline}3,c{newline}'

    cuts = cuts_of(tmp_path, content, size=1)

    lines = [each.line for each in cuts.ranges]
    assert lines == [1, 2, 4]


@pytest.mark.parametrize(
    "record",
    [
        '1,5" pipe\n',
        '1,6" x 4"\n',
        '1,"a"b"c\n',
        '1,""\n',
        '1,"""a"""\n',
        '1,"a""\nb"\n',
        '1, "a\n',
        "1,a\"b'c\n",
    ],
)
def test_quotes_that_open_nothing_hide_no_end(tmp_path, record):
    cuts = cuts_of(tmp_path, record * 10, size=1, width=2)

    assert cuts.unclosed is None
    assert starts(cuts) == [at * len(record) for at in range(10)]


def test_without_quoting_every_newline_ends_a_record(tmp_path):
    cuts = cuts_of(tmp_path, '"1,a\n2",b\n', size=1, quote=None)

    assert starts(cuts) == [0, 5]


def test_another_quote_and_delimiter_are_obeyed(tmp_path):
    cuts = cuts_of(tmp_path, "1|'\n\"'\n2|b\n", size=1, delimiter="|", quote="'")

    assert starts(cuts) == [0, 7]


def test_units_of_utf_16_are_not_mistaken_for_newlines(tmp_path):
    # ਊ and Ā give the bytes 0a 0a 00 01 between them
    raw = "ਊĀ,b\n1,2\n".encode("utf-16-le")

    cuts = cuts_of(tmp_path, b"\xff\xfe" + raw, size=2)

    assert starts(cuts) == [2, 12]


def test_an_open_quote_is_reported_by_its_line_and_the_file_stays_whole(tmp_path):
    content = '1,a\n2,"b\nc"\n3,"d\n4,e\n5,f\n'

    cuts = cuts_of(tmp_path, content, size=1)

    assert cuts.unclosed == 4
    assert cuts.ranges == (ByteRange(start=0, end=len(content), line=1),)


NASTY = 'xa",b\r\n,a""b\n"c""\r\n"",5"\n"d"e"f,"",""""\r\r\n"g\r\n""h'


@pytest.mark.parametrize("block", range(1, len(NASTY)))
@pytest.mark.parametrize("end", ["", '"', '"\n'])
def test_the_cuts_do_not_depend_on_the_blocks(tmp_path, block, end):
    path = write(tmp_path / "file.csv", NASTY + end)
    head = headless(path, 2)

    cuts = split_file(path, head, size=1, block=block)

    assert cuts == split_file(path, head, size=1)
    assert cuts.unclosed == (None if end else 7)


def test_the_content_is_that_of_all_bytes(tmp_path):
    raw = b"\xef\xbb\xbfuid,name\n" + b"1,2\n" * 1000
    path = write(tmp_path / "file.csv", raw)
    packed = write(tmp_path / "file.csv.gz", gzip.compress(raw))

    for file in (path, packed):
        hashing = HashingStream()
        hashing.add(file.read_bytes())

        assert (
            split_file(file, read_header(file, COMMA), size=100).content
            == hashing.content()
        )


def test_a_packed_file_is_one_range_whatever_its_name(tmp_path):
    raw = b"uid,name\n" + b"1,2\n" * 1000
    path = write(tmp_path / "packed.csv", gzip.compress(raw))

    cuts = split_file(path, read_header(path, COMMA), size=100)

    assert cuts.ranges == (ByteRange(start=9, end=None, line=2),)


def test_a_file_that_grows_while_it_is_cut_is_to_be_tried_again(tmp_path):
    path = write(tmp_path / "file.csv", b"1,a\n" * 100)
    head = headless(path, 2)

    class GrowingPath(PosixPath):
        def stat(self, *, follow_symlinks: bool = True):
            with self.open("ab") as file:
                file.write(b"2,b\n")
            return super().stat(follow_symlinks=follow_symlinks)

    with pytest.raises(SourceUnavailable, match="changed while it was read"):
        split_file(GrowingPath(path), head, size=100)


def test_a_file_is_cut_in_memory_that_does_not_grow_with_it(tmp_path):
    path = tmp_path / "file.csv"
    with path.open("wb") as file:
        for _ in range(24):
            # quotes only, which are open and closed everywhere
            file.write(b'"' * 1024 * 1024)
    head = headless(path, 1, delimiter=",", encoding="utf-8")

    tracemalloc.start()
    cuts = split_file(path, head, size=1024)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(cuts.ranges) == 1
    assert peak < 8 * 1024 * 1024
