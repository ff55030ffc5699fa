"""Files that are not what they should be end in a clear sentence, or in quarantine."""

import gzip
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.shops import (
    HEADER,
    bad_rows,
    import_files,
    line,
    lines,
    only,
    read_csv,
    shops,
    some_shops,
    stored,
    write,
)
from tests.support.stores import on_a_file_first
from tests.support.workshop import Workshop

PACKED = gzip.compress(HEADER + lines(some_shops(100)), mtime=0)
STRAY = (
    "' bike' follows the closing quote of value 2; "
    "quotes within a value are written twice"
)
TOO_LONG = "bytes, of 1048576 that are allowed; is a quote on line"


def written(raw: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(raw)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (written(b""), "a.csv: the file has no columns: it is empty"),
    "a mark alone": (written(b"\xef\xbb\xbf"), "the file has no columns"),
    "binary": (written(bytes(range(256)) * 40), "a.csv: the header"),
    "an image": (written(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), "a.csv: "),
    "wrong delimiter": (written(b"id:name:points\n1:a:2\n"), "'id' is missing"),
    "wrong columns": (
        written(b"ID,Name,points\n1,a,2\n"),
        "column 'id' is missing; did you mean 'ID'?",
    ),
    "a column twice": (written(b"id,id,name,points\n"), "'id' occurs 2 times"),
    "open quote in the header": (
        written(b'id,"name,points\n1,a,2\n'),
        "a quote on line 1 is not closed",
    ),
    "Shift-JIS": (
        written("id,name,points\n1,山田太郎,2\n2,東京都,3\n".encode("shift_jis")),
        "convert the file to UTF-8 first",
    ),
    "endless header": (written(b"id," * 500_000), "the header is longer than"),
    "truncated gzip": (written(PACKED[:-50]), "a.csv is not complete gzip"),
    "spoilt gzip": (
        written(PACKED[:200] + b"spoilt" + PACKED[200:]),
        "a.csv is not complete gzip",
    ),
    "header alone": (written(HEADER), "a.csv has a header and no rows"),
    "not there": (lambda _: None, "no file matches *.csv"),
    "a folder": (Path.mkdir, "no file matches *.csv"),
    "a pipe": (os.mkfifo, "a.csv is not a regular file"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_read_is_refused_before_a_row_is(file_workshop, kind):
    make, sentence = REFUSED[kind]
    make(file_workshop.folder / "a.csv")
    file_workshop.declare(shops())

    ran = file_workshop.penstock("run", "shops")

    assert ran.code == 2
    assert sentence in ran.err
    assert len(ran.err.splitlines()) <= 3
    assert file_workshop.ask("select 1 from penstock_import") == []


# root may read everything, unless it gives that up
LIKE_OTHERS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def test_a_file_that_nobody_may_read_is_named(file_workshop):
    write(file_workshop.folder / "a.csv", lines(some_shops(3)))
    (file_workshop.folder / "a.csv").chmod(0)
    file_workshop.declare(shops())

    through = LIKE_OTHERS if os.geteuid() == 0 else []
    ran = file_workshop.penstock("run", "shops", through=through)

    assert ran.code == 2
    assert "a.csv cannot be read: Permission denied" in ran.err


def test_a_file_of_a_header_alone_brings_nothing_and_is_no_error(file_workshop):
    write(file_workshop.folder / "a.csv")
    write(file_workshop.folder / "b.csv", line(1, "a", 1))
    file_workshop.declare(shops())

    assert only(import_files(file_workshop)) == {"seen": 1, "inserted": 1}


@on_a_file_first
def test_rows_that_are_none_stand_in_quarantine_and_cost_no_other(file_workshop):
    good = some_shops(2_000)
    around = iter([lines(some_shops(500, first=at)) for at in range(1, 2_000, 500)])
    write(
        file_workshop.folder / "a.csv",
        next(around),
        b'9001,"nul \0",1\n',
        b"9002,Caf\xe9,1\n",
        b"\n\r\n",
        b"9003\n9004,a,1,2\n",
        # an extra delimiter, and quotes that are not doubled
        b'9008,Smith, 7,\n9009,"24" bike, red",1\n',
        next(around),
        # longer than any row may be, in a single line and over many
        b'9005,"' + b"x" * 3_000_000 + b'",1\n',
        b'9006,"' + b"x\n" * 1_000_000 + b'",1\n',
        next(around),
    )
    write(file_workshop.folder / "b.csv", next(around), b'9007,"open\n\n1,a,1\n')
    as_rows = 'encoding = "utf-8"\nunclosed_quote = "row"'
    file_workshop.declare(shops(source=as_rows))

    counts = import_files(file_workshop)

    assert stored(file_workshop) == good
    assert only(counts) == {
        "seen": 2_011,
        "inserted": 2_000,
        "quarantined": 9,
        "dropped": 2,
    }
    assert places(file_workshop) == [
        ("a.csv", 507, "there is a NUL character at offset 8780"),
        ("a.csv", 508, "byte 0xe9 at offset 8793 is not utf-8"),
        ("a.csv", 511, "1 values, but the file has 3 columns"),
        ("a.csv", 512, "4 values, but the file has 3 columns"),
        ("a.csv", 513, "4 values, but the file has 3 columns"),
        (
            "a.csv",
            514,
            STRAY,
        ),
        ("a.csv", 1020, f"the record has 3000010 {TOO_LONG} 1020 not closed?"),
        ("a.csv", 1021, f"the record has 2000010 {TOO_LONG} 1021 not closed?"),
        ("b.csv", 507, "the quote on line 507 is never closed"),
    ]
    # the list of them tells one kind from another
    again = file_workshop.penstock("run", "shops", "--json", "--errors", "bad.txt")
    assert [row["reason"] for row in read_csv(file_workshop.folder / "bad.txt")] == [
        *("nul", "undecodable", "too_few_values", "too_many_values"),
        *("too_many_values", "text_after_quote"),
        *("too_long", "too_long", "unclosed_quote"),
    ]
    assert {row["reason"]: row["rows"] for row in again.json["rejections"]} == {
        "nul": 1,
        "undecodable": 1,
        "too_few_values": 1,
        "too_many_values": 2,
        "text_after_quote": 1,
        "too_long": 2,
        "unclosed_quote": 1,
    }


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_quote_that_is_never_closed_fails_its_shard_and_keeps_what_is_before(
    file_workshop, name
):
    good = some_shops(12_000)
    raw = HEADER + lines(good) + b'12001,"open,1\n' + b"12002,behind,1\n" * 9
    is_packed = name.endswith("gz")
    (file_workshop.folder / name).write_bytes(
        gzip.compress(raw, mtime=0) if is_packed else raw
    )
    file_workshop.declare(shops(files="a.*", source='shard = "64KiB"'))

    ran = file_workshop.penstock("run", "shops", "--json")

    # some names take two lines
    opened_on = HEADER.count(b"\n") + lines(good).count(b"\n") + 1
    assert ran.code == 1
    assert not ran.json["proven"]
    assert f"{name}: the quote on line {opened_on} is never closed" in ran.json["error"]
    assert stored(file_workshop) == good
    assert bad_rows(file_workshop) == []


# under the header id,name,points
SHORT = (
    b"".join(b"a,%d,Berlin,5\n" % number for number in range(1, 51)) + b"b,51,Bonn,\n"
)


def test_a_header_that_is_one_name_short_is_refused_with_both_readings(file_workshop):
    write(file_workshop.folder / "a.csv", SHORT)
    file_workshop.declare(shops())

    ran = file_workshop.penstock("run", "shops")

    assert ran.code == 2
    assert "? = 'a', id = '1', name = 'Berlin', points = '5'" in ran.err
    assert "id = 'a', name = '1', points = 'Berlin', ? = '5'" in ran.err
    assert "declare header = true and all names as columns" in ran.err
    assert file_workshop.ask("select 1 from penstock_import") == []

    # the remedy holds
    names = 'header = true\ncolumns = ["kind", "id", "name", "points"]'
    file_workshop.declare(shops(source=names))
    import_files(file_workshop)
    assert stored(file_workshop) == {
        **dict.fromkeys(range(1, 51), ("Berlin", 5)),
        51: ("Bonn", None),
    }


def test_a_next_file_with_its_columns_in_another_order_is_refused(file_workshop):
    names = 'header = true\ncolumns = ["id", "name", "points"]'
    file_workshop.declare(shops(source=names))
    (file_workshop.folder / "a.csv").write_bytes(b"ID,Label,points\n1,a,5\n")
    (file_workshop.folder / "b.csv").write_bytes(b"id,points,name\n2,6,7\n")

    ran = file_workshop.penstock("run", "shops")

    assert ran.code == 2
    assert "b.csv: its header has 'points', 'name' at another position" in ran.err
    assert file_workshop.ask("select 1 from penstock_import") == []


def test_rows_that_end_in_a_delimiter_are_read_and_it_is_said(file_workshop):
    rows = [b"%d,shop,1,\n" % number for number in range(1, 199)]
    write(file_workshop.folder / "a.csv", *rows, b"199,Smith, John,1,\n200,b,2\n")
    file_workshop.declare(shops(source='delimiter = ","'))

    ran = file_workshop.penstock("run", "shops")

    assert ran.code == 0
    assert (
        "a.csv: rows end in a delimiter, the header does not; "
        "if its first name is missing, declare `columns`"
    ) in ran.err
    assert stored(file_workshop) == {
        **dict.fromkeys(range(1, 199), ("shop", 1)),
        200: ("b", 2),
    }
    assert places(file_workshop) == [
        (
            "a.csv",
            200,
            "4 values and a delimiter after them, but the file has 3 columns",
        )
    ]


def test_quotes_that_a_backslash_escapes_are_read_where_it_is_declared(file_workshop):
    rows = [b'%d,"5\\" pipe, \\\\ \\n",1\n' % number for number in range(1, 20_001)]
    write(file_workshop.folder / "a.csv", *rows)
    file_workshop.declare(shops(source='escape = "\\\\"\nshard = "64KiB"'))

    assert only(import_files(file_workshop)) == {"seen": 20_000, "inserted": 20_000}
    assert {name for name, _ in stored(file_workshop).values()} == {'5" pipe, \\ \\n'}


def places(workshop: Workshop) -> list[tuple[str, int, str]]:
    """Return the file, the line, and what is wrong there."""
    found = workshop.ask(
        "select shard_key, line, detail from penstock_quarantine q "
        "join penstock_job j on j.id = q.job_id order by shard_key, line"
    )
    return [
        (row["shard_key"].rpartition("/")[2], row["line"], row["detail"])
        for row in found
    ]


def test_a_packed_file_that_ends_too_soon_fails_and_says_so(file_workshop):
    packed = gzip.compress(HEADER + lines(some_shops(100_000)), compresslevel=1)
    (file_workshop.folder / "a.csv.gz").write_bytes(packed[:-1000])
    file_workshop.declare(shops(files="*.gz"))

    ran = file_workshop.penstock("run", "shops", "--json")

    assert ran.code == 1
    assert ran.json["status"] == "failed"
    assert "a.csv.gz is not complete gzip" in ran.json["error"]


def test_a_file_in_a_code_page_is_read_and_the_guess_is_reported(file_workshop):
    raw = HEADER + "1,Café Zoë,3\n".encode("cp1252")
    (file_workshop.folder / "a.csv").write_bytes(raw)
    file_workshop.declare(shops())

    ran = file_workshop.penstock("run", "shops")

    assert ran.code == 0
    assert stored(file_workshop) == {1: ("Café Zoë", 3)}


def test_a_file_of_bad_rows_alone_is_stopped_by_its_ratio(file_workshop):
    raw = b"id,name,points\n" + b"\xff\xfe\xfd,,\n" * 50
    (file_workshop.folder / "a.csv").write_bytes(raw)
    file_workshop.declare(shops(source='encoding = "utf-8"'))

    ran = file_workshop.penstock("run", "shops", "--json")

    assert ran.code == 1
    assert Counter(row["reason"] for row in bad_rows(file_workshop)) == {
        "undecodable": 50
    }
    assert "bad.max_ratio" in ran.json["note"]


def test_a_file_of_next_to_nothing_but_empty_lines_fails_its_import(file_workshop):
    write(file_workshop.folder / "a.csv", line(1, "a", 1), b"\n" * 40_000)
    file_workshop.declare(shops(source="max_empty_lines = 12000"))

    ran = file_workshop.penstock("run", "shops")

    assert ran.code == 1
    # it did not read on for the rest
    assert re.search(r"1[2-9],\d\d\d of 1[2-9],\d\d\d lines were empty", ran.out)
    assert "source.max_empty_lines = 12000" in ran.out


def test_a_file_with_an_empty_line_behind_each_row_is_whole(file_workshop):
    known = dict.fromkeys(range(300), ("a", 1))
    write(file_workshop.folder / "a.csv", *(line(key, "a", 1) + b"\n" for key in known))
    file_workshop.declare(shops(source="max_empty_lines = 0"))

    assert only(import_files(file_workshop))["dropped"] == 300
    assert stored(file_workshop) == known
