import bz2
import gzip
import lzma
import os
from dataclasses import replace
from io import BytesIO
from zipfile import ZipFile

import pytest

from penstock.adapters.csv.dialect import DeclaredDialect
from penstock.adapters.csv.header import read_header
from penstock.adapters.csv.header_check import check_columns
from penstock.adapters.csv.limits import FileLimits
from penstock.adapters.csv.splitter import split_file
from penstock.errors import Misconfigured, Rejected
from tests.support.csv_files import write

COMMA = DeclaredDialect(delimiter=",", encoding="utf-8")


def head_of(tmp_path, content, declared=COMMA, **limits):
    path = write(tmp_path / "file.csv", content)
    return read_header(path, declared, limits=FileLimits(**limits))


def test_names_are_trimmed_and_keep_their_case(tmp_path):
    head = head_of(tmp_path, ' uid ,"Full\nName",\u00a0Región\r\n1,2,3\r\n')

    assert head.names == ("uid", "Full\nName", "Región")
    assert (head.start, head.line) == (29, 3)


def test_empty_lines_before_the_header_are_passed_over(tmp_path):
    head = head_of(tmp_path, "\n\r\n\ruid,name\n1,2\n")

    assert head.names == ("uid", "name")
    assert (head.start, head.line) == (13, 5)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_columns(tmp_path, content):
    head = head_of(tmp_path, content)

    assert head.names == ()
    assert head.start == len(content)
    assert check_columns(head.names, ["uid"]).problems == (
        "the file has no columns: it is empty",
    )


def test_a_header_alone_is_no_range(tmp_path):
    path = write(tmp_path / "file.csv", "uid,name")

    head = read_header(path, COMMA)

    assert head.names == ("uid", "name")
    assert split_file(path, head, size=1).ranges == ()


def test_without_a_header_the_names_are_the_declared_ones(tmp_path):
    declared = DeclaredDialect(header=False, columns=("uid", "name"), encoding="utf-8")

    head = head_of(tmp_path, b"\xef\xbb\xbf1;2\n", declared)

    assert head.names == ("uid", "name")
    assert (head.start, head.line) == (3, 1)
    assert head.dialect.delimiter == ";"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'uid,"name\n1,2\n', "a quote on line 1 is not closed"),
        (b"uid,n\xffme\n1,2\n", "the header is not utf-8"),
        ("uid,name\n".encode("utf-16-le"), "NUL characters: the file is not utf-8"),
        (b"x" * 100, "the header is longer than 50 bytes"),
        (b"x" * 49 + b"\r\n", "the header is longer than 50 bytes"),
        (gzip.compress(b"uid,name\n1,2\n", mtime=0)[:-9], "is not complete gzip"),
    ],
)
def test_a_header_that_cannot_be_read_is_refused(tmp_path, content, reason):
    with pytest.raises(Rejected, match=reason):
        head_of(tmp_path, content, sample=50)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    for name, reason in [
        ("missing.csv", "No such file"),
        ("pipe", "is not a regular file"),
        (".", "is not a regular file"),
    ]:
        with pytest.raises(Misconfigured, match=reason):
            read_header(tmp_path / name, COMMA)


def test_a_header_that_has_all_columns_is_right():
    check = check_columns(["uid", "name"], ["name", "uid"])

    assert (check.problems, check.warnings) == ((), ())


def test_a_missing_column_is_reported_with_the_one_that_may_be_meant():
    check = check_columns(["UID", "nmae", "x"], ["uid", "name", "region"])

    assert check.problems == (
        "column 'uid' is missing; did you mean 'UID'?",
        "column 'name' is missing; did you mean 'nmae'?",
        "column 'region' is missing",
    )


def test_a_wanted_column_that_is_there_twice_is_a_problem():
    check = check_columns(["uid", "note", "uid", "note"], ["uid"])

    assert check.problems == ("column 'uid' occurs 2 times: 1, 3",)
    assert check.warnings == ("column 'note' is not declared",)


def test_columns_without_a_name_are_remarked():
    check = check_columns(["", "uid", ""], ["uid"])

    assert check.problems == ()
    assert check.warnings == ("column 1, 3 has no name",)


def test_another_delimiter_is_reported_once():
    check = check_columns(["uid;name;phone"], ["uid", "name", "region"], delimiter=",")

    (result,) = check.problems
    assert result == (
        "with delimiter ',' its header is one column, 'uid;name;phone'; "
        "the delimiter looks like ';'"
    )


@pytest.mark.parametrize("only", ["uid;name", "x"])
def test_one_column_that_no_delimiter_cuts_as_wanted_is_missing_the_others(only):
    check = check_columns([only], ["region"])

    assert check.problems == ("column 'region' is missing",)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_declared_lines_above_the_header_are_passed_over(tmp_path, ending, encoding):
    title = ['Café "5', "", "sep=;"]
    text = ending.join([*title, "uid;name", "1;a", ""])
    declared = DeclaredDialect(encoding=encoding, skip=3)

    head = head_of(tmp_path, text.encode(encoding), declared)

    assert head.names == ("uid", "name")
    assert head.dialect.delimiter == ";"
    assert head.line == 5
    raw = text.encode(encoding)
    assert raw[head.start :].decode(head.dialect.encoding) == f"1;a{ending}"


def test_declared_lines_above_rows_without_a_header_are_passed_over(tmp_path):
    declared = DeclaredDialect(header=False, columns=("uid", "name"), skip=1)

    head = head_of(tmp_path, "a title\n1,2\n", declared)

    assert (head.start, head.line, head.names) == (8, 2, ("uid", "name"))


@pytest.mark.parametrize("content", ["a\nb", "a\n", ""])
def test_more_skipped_lines_than_there_are_is_reported(tmp_path, content):
    with pytest.raises(Rejected, match=r"source.skip = 2, but the file has no more"):
        head_of(tmp_path, content, DeclaredDialect(skip=2))


def workbook() -> bytes:
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return file.getvalue()


def archive() -> bytes:
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("shops.csv", "id,name\n1,a\n")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (archive(), "it is a ZIP archive, not CSV; import the CSV files in it"),
        (workbook(), "it is an Excel workbook, not CSV; save the sheet as CSV"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "an Excel workbook"),
        (bz2.compress(b"id\n1\n"), "compressed with bzip2, not CSV; decompress it, or"),
        (lzma.compress(b"id\n1\n"), "compressed with xz"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"PAR1\x15\x04", "a Parquet file"),
    ],
    ids=["zip", "xlsx", "xls", "bzip2", "xz", "pdf", "parquet"],
)
def test_what_is_not_csv_is_called_by_its_name(tmp_path, content, sentence):
    (tmp_path / "a.csv").write_bytes(content)

    with pytest.raises(Rejected) as caught:
        read_header(tmp_path / "a.csv", DeclaredDialect())

    assert sentence in str(caught.value)


@pytest.mark.parametrize("header", [b"PAR1,b", b"BZh91,b", b"PK,b", b"7z,b"])
def test_a_header_that_begins_like_another_format_is_one(tmp_path, header):
    (tmp_path / "a.csv").write_bytes(header + b"\n1,2\n")

    assert read_header(tmp_path / "a.csv", DeclaredDialect()).names[1] == "b"


def test_thousands_of_columns_are_reported_in_a_few_lines():
    found = [f"c{number}" for number in range(10_000)] + [""] * 5_000

    undeclared = check_columns([*found, "id"], ["id"])
    missing = check_columns(found, [f"d{number}" for number in range(1_000)])

    for result in (undeclared.warnings, missing.problems):
        assert len(result) <= 21
        assert max(map(len, result)) < 200
    assert "10,000 columns are not declared: 'c0', 'c1'" in undeclared.warnings[1]
    assert missing.problems[-1] == "and 980 more columns are missing or duplicated"


def test_white_space_where_the_header_should_be_is_reported_with_its_remedy(tmp_path):
    with pytest.raises(Rejected, match=r"line 2 is the header, .* declare skip = 2"):
        head_of(tmp_path, "\n  \nuid,name\n1,2\n")


RENAMED = DeclaredDialect(
    delimiter=",", encoding="utf-8", columns=("id", "name", "city", "note")
)


@pytest.mark.parametrize(
    ("header", "moved"),
    [
        ("id,city,name,note", "'city', 'name'"),
        ("ID,City,Name,Note", "'City', 'Name'"),
        ("name,key,city,note", "'name'"),
        # with a column more, and with one and two less
        ("id,since,name,city,note", "'name', 'city', 'note'"),
        ("id,city,name", "'name'"),
        ("city,note", "'city', 'note'"),
    ],
)
def test_a_header_that_has_declared_columns_elsewhere_is_refused(
    tmp_path, header, moved
):
    content = f"\n{header}\n1,Ann,Rome,x\n"

    problem = head_of(tmp_path, content, RENAMED).problem

    assert problem == (
        f"its header has {moved} at another position than `columns`: "
        f"the header is {header.replace(',', ', ')}; "
        "`columns` are id, name, city, note; declare them in the order of the file, "
        "or, if its header is wrong, declare header = false and skip = 2"
    )
    # the remedy holds
    unread = replace(RENAMED, header=False, skip=2)
    head = head_of(tmp_path, content, unread)
    assert (head.problem, head.start) == (None, len(header) + 2)


@pytest.mark.parametrize(
    ("header", "warnings"),
    [
        ("id,name,city,note", []),
        ("Nummer,Name,Stadt,x", []),
        # a name twice is why columns are declared
        ("id,name,name,name", []),
        # a name is missing: the first, the last or one between, also if some differ
        ("name,city,note", []),
        ("id,name,city", []),
        ("id,city,note", []),
        ("Name,Stadt,note", []),
        ("id,name", ["its header has 2 names, `columns` has 4"]),
        ("id,name,city,note,", ["its header has 5 names, `columns` has 4"]),
        ('id,"name"x,city', ["the header cannot be read: "]),
    ],
)
def test_declared_columns_replace_the_names_in_a_header(tmp_path, header, warnings):
    head = head_of(tmp_path, f"{header}\n1,Ann,Rome,x\n", RENAMED)

    assert head.problem is None
    assert head.names == RENAMED.columns
    assert (head.start, head.line) == (len(header) + 1, 2)
    assert len(head.warnings) == len(warnings)
    assert all(map(str.startswith, head.warnings, warnings))


def test_ten_thousand_declared_columns_are_compared_in_a_few_lines(tmp_path):
    names = [f"c{number}" for number in range(10_000)]
    declared = replace(RENAMED, columns=(*names[1:], "c0"))

    problem = head_of(tmp_path, f"{','.join(names)}\n", declared).problem

    assert "'c0', 'c1', 'c2', 'c3', 'c4' and 9,995 more" in problem
    assert len(problem) < 500
