"""Files as a source of pages."""

import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.adapters.csv.file_scanner import FileScanner
from penstock.adapters.csv.limits import FileLimits
from penstock.adapters.csv.source import CsvSourceReader
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.events import Event, FileSurveyed
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.pages import (
    Page,
    Position,
    Proof,
    Reason,
    Record,
    Rejection,
    RowLocation,
)
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import CsvSource, UnclosedQuote
from penstock.errors import CursorUnreadable, Misconfigured, Rejected, SourceUnavailable
from tests.support.builders import dataset, int_field, text_field, typed_field

SMALL = FileLimits(rows=3)


def shops(folder: Path, *files: str, **source) -> Dataset:
    declared = CsvSource(files=files or ("*.csv",), folder=str(folder), **source)
    return dataset(
        "shops", fields=(int_field("id"), text_field("name")), source=declared
    )


def survey(of: Dataset) -> tuple[list[Shard], list[Event]]:
    events: list[Event] = []
    axis = FileScanner(events.append)(of)
    return [Shard((axis,), (part,)) for part in axis.slices], events


def walk(of: Dataset, shard: Shard, *, fresh: bool = False) -> list[Page]:
    """Read a shard to its end, by a source that remembers, or by new ones."""
    pages: list[Page] = []
    position: Position | None = None
    source = CsvSourceReader(of, limits=SMALL)
    while True:
        source = CsvSourceReader(of, limits=SMALL) if fresh else source
        pages.append(source.fetch(shard, position, since=None))
        if pages[-1].next is None:
            return pages
        position = json.loads(json.dumps(pages[-1].next))


def write(folder: Path, name: str, rows: int, *, start: int = 1) -> None:
    lines = [f"{at},shop {at}" for at in range(start, start + rows)]
    text = "\n".join(["id,name", *lines, ""]).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)


@pytest.mark.parametrize("fresh", [False, True], ids=["at once", "resumed"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_every_row_comes_once_and_in_order(tmp_path, name, fresh):
    write(tmp_path, name, 20)
    declared = shops(tmp_path, "a.*")
    (shard,), _ = survey(declared)

    pages = walk(declared, shard, fresh=fresh)

    assert [row.values for page in pages for row in page.rows] == [
        (str(at), f"shop {at}") for at in range(1, 21)
    ]
    assert [page.proof for page in pages] == [
        *[None] * (len(pages) - 1),
        Proof.END_OF_RANGE,
    ]
    assert all(page.rises for page in pages[:-1])


def test_ranks_rise_within_a_file_and_from_file_to_file(tmp_path):
    write(tmp_path, "b.csv", 10, start=11)
    write(tmp_path, "a.csv", 10)
    declared = shops(tmp_path)
    shards, _ = survey(declared)

    ranks = [page.rank for shard in shards for page in walk(declared, shard)]

    assert ranks == sorted(set(ranks))
    assert ranks[0] > 0


def test_null_words_are_no_values(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"name,id\nNULL,1\n,2\n\\N,3\nx,\n")
    declared = shops(tmp_path, null=("", "NULL", "\\N"))
    (shard,), _ = survey(declared)

    rows = [row for page in walk(declared, shard) for row in page.rows]

    assert [row.values for row in rows] == [
        ("1", None),
        ("2", None),
        ("3", None),
        (None, "x"),
    ]


def test_a_row_tells_where_it_stands_and_can_be_read_without_its_file(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'id,name,more\n1,"two\nlines",x\n2,b,y\n')
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)

    (page,) = walk(declared, shard)
    second = page.rows[1]

    assert second.place == RowLocation(line=4, offset=29)
    assert json.loads(second.raw) == {"id": "2", "name": "b", "more": "y"}
    assert CsvSourceReader(declared).read(second.raw).values == ("2", "b")


def test_null_words_are_no_values_when_a_row_is_read_again(tmp_path):
    declared = shops(tmp_path, null=("", "NULL"))

    assert CsvSourceReader(declared).read(b'{"id": "NULL", "name": "x"}').values == (
        None,
        "x",
    )


def test_cells_of_json_fields_are_documents_in_the_file_and_when_read_again(tmp_path):
    cells = ['"{""a"": [1]}"', "7", '"""x"""', "NULL", "null", "x"]
    lines = [f"{at},{cell}\n" for at, cell in enumerate(cells)]
    (tmp_path / "a.csv").write_text("".join(["id,it\n", *lines]))
    declared = dataset(
        fields=(int_field("id"), typed_field("it", FieldType.JSON)),
        source=CsvSource(files=("a.csv",), folder=str(tmp_path), null=("NULL",)),
    )
    (shard,), _ = survey(declared)
    pages = walk(declared, shard)
    rows = [row for page in pages for row in page.rows]
    again = [CsvSourceReader(declared).read(row.raw) for row in rows]

    for read in (rows, again):
        outcomes = [Mapper(declared)(row) for row in read]
        stored = [each.values[1] for each in outcomes if isinstance(each, Record)]
        bad = [each for each in outcomes if isinstance(each, Rejection)]
        assert stored == ['{"a":[1]}', "7", '"x"', None, None]
        assert [(each.reason, each.field, each.key) for each in bad] == [
            (Reason.TYPE, "it", (5,))
        ]


def test_rows_that_do_not_fit_stand_beside_the_others(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,name\n1,a\n2\n\n3,b\n4,c,d\n")
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)
    pages = walk(declared, shard)

    flawed = [row for page in pages for row in page.bad_rows]

    assert [row.raw.strip() for row in flawed] == [b"2", b"4,c,d"]
    assert [row.flaw for row in flawed] == [
        Reason.TOO_FEW_VALUES,
        Reason.TOO_MANY_VALUES,
    ]
    assert [row.place for row in flawed] == [RowLocation(3, 12), RowLocation(6, 19)]
    assert sum(page.dropped for page in pages) == 1
    assert CsvSourceReader(declared).read(flawed[0].raw).unreadable is not None


def test_a_quote_that_another_one_closes_far_behind_fails_its_shard(tmp_path):
    write(tmp_path, "a.csv", 12)
    before = (tmp_path / "a.csv").read_bytes()
    between = b"".join(b"%d,between\n" % number for number in range(14, 90_000))
    raw = before + b'13,"open\n' + between + b'90000,"open\n90001,behind\n'
    (tmp_path / "a.csv").write_bytes(raw)
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)
    source = CsvSourceReader(declared)

    page = source.fetch(shard, None, since=None)

    assert (len(page.rows), page.bad_rows) == (12, [])
    text = "a.csv: the quote on line 14 is not closed within 1048576 bytes, so the rows"
    with pytest.raises(Rejected, match=text):
        source.fetch(shard, page.next, since=None)

    as_rows = walk(shops(tmp_path, unclosed_quote=UnclosedQuote.ROW), shard)
    assert [row.flaw for page in as_rows for row in page.bad_rows] == [Reason.TOO_LONG]
    assert sum(len(page.rows) for page in as_rows) == 13


def test_a_long_record_within_quotes_is_a_row_or_costs_no_other(tmp_path):
    # as many lines as a record may hold, and a single one that is too long
    lines, line = b"x\n" * 500_000, b"x" * 1_500_000
    raw = b'id,name\n1,"%b"\n2,"%b"\n3,c\n' % (lines, line)
    (tmp_path / "a.csv").write_bytes(raw)
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)
    pages = walk(declared, shard)

    assert sum(len(page.rows) for page in pages) == 2
    assert [row.flaw for page in pages for row in page.bad_rows] == [Reason.TOO_LONG]


@pytest.mark.parametrize(
    "line", ['{"id": [1]}', '{"id": {}}', '{"id": 1}', "[1]", "7", "null"]
)
def test_a_line_of_json_is_no_row_that_was_retained(tmp_path, line):
    row = CsvSourceReader(shops(tmp_path)).read(line.encode())

    assert row.unreadable == "the row does not fit the columns of its file"


def test_a_file_is_cut_and_reported(tmp_path):
    write(tmp_path, "a.csv", 500)
    shards, result = survey(shops(tmp_path, shard=1000))

    assert len(shards) > 3
    (event,) = result
    assert isinstance(event, FileSurveyed)
    assert (event.file, event.shards) == ("a.csv", len(shards))


def test_what_is_odd_about_a_file_is_reported(tmp_path):
    (tmp_path / "a.csv").write_bytes("id;name;x\n1;Zoë;2\n".encode("cp1252"))
    _, result = survey(shops(tmp_path))

    (event,) = result
    assert isinstance(event, FileSurveyed)
    warnings = " ".join(event.warnings)
    assert "';'" in warnings
    assert "1252" in warnings
    assert "'x' is not declared" in warnings


def test_a_mark_that_says_something_else_than_was_declared_is_reported(tmp_path):
    (tmp_path / "a.csv").write_bytes("id,name\n1,Zoë\n".encode("utf-8-sig"))
    declared = shops(tmp_path, delimiter=",", encoding="cp1252")

    (shard,), (event,) = survey(declared)
    (page,) = walk(declared, shard)

    assert isinstance(event, FileSurveyed)
    (result,) = event.warnings
    assert "'cp1252' is declared, but its byte order mark says 'utf-8'" in result
    assert [row.values for row in page.rows] == [("1", "Zoë")]


@pytest.mark.parametrize(
    ("content", "result"),
    [
        (b"id,nam\n1,2\n", "column 'name' is missing; did you mean 'nam'?"),
        (b"id,name,id\n1,2,3\n", "column 'id' occurs 2 times"),
        (b"", "is empty"),
    ],
    ids=["missing", "twice", "empty"],
)
def test_a_header_that_does_not_fit_is_refused_before_any_row(
    tmp_path, content, result
):
    (tmp_path / "a.csv").write_bytes(content)

    with pytest.raises(Misconfigured) as caught:
        survey(shops(tmp_path))

    assert "a.csv: " in str(caught.value)
    assert result in str(caught.value)


def test_no_file_is_a_sentence(tmp_path):
    with pytest.raises(Misconfigured, match=r"shops\.source\.files: no file matches"):
        survey(shops(tmp_path))


def test_where_no_file_was_found_is_reported_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(Misconfigured, match=rf" in {re.escape(str(tmp_path))}$"):
        survey(shops(Path()))


def test_a_file_that_has_changed_since_is_refused(tmp_path):
    write(tmp_path, "a.csv", 3)
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)
    write(tmp_path, "a.csv", 4)

    with pytest.raises(Rejected, match="when it was planned"):
        walk(declared, shard)


def test_a_file_that_is_written_to_after_its_first_chunk_is_refused(tmp_path):
    write(tmp_path, "a.csv", 10)
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)
    source = CsvSourceReader(declared, limits=SMALL)
    first = source.fetch(shard, None, since=None)
    path = tmp_path / "a.csv"
    path.write_bytes(path.read_bytes().replace(b"shop", b"SHOP"))
    os.utime(path, ns=(1, 1))

    with pytest.raises(Rejected, match="has changed since it was planned"):
        source.fetch(shard, first.next, since=None)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_another_file_of_the_same_size_is_refused_before_its_first_row(tmp_path, name):
    write(tmp_path, name, 10)
    declared = shops(tmp_path, "a.*")
    (shard,), _ = survey(declared)
    path = tmp_path / name
    raw = bytearray(path.read_bytes())
    raw[-2] ^= 1
    written = path.stat().st_mtime_ns
    path.write_bytes(raw)
    os.utime(path, ns=(written, written))

    with pytest.raises(Rejected, match="has changed since it was planned"):
        CsvSourceReader(declared).fetch(shard, None, since=None)


def test_only_slices_that_have_changed_are_refused(tmp_path):
    write(tmp_path, "a.csv", 400_000)
    declared = shops(tmp_path, shard=3 * 1024 * 1024)
    shards, _ = survey(declared)
    path = tmp_path / "a.csv"
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b" ")
    source = CsvSourceReader(declared)

    assert source.fetch(shards[0], None, since=None).rows
    with pytest.raises(Rejected, match="has changed since it was planned"):
        source.fetch(shards[-1], None, since=None)


def test_an_equal_copy_in_the_place_of_a_file_is_read_on(tmp_path):
    write(tmp_path, "a.csv", 10)
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)
    source = CsvSourceReader(declared, limits=SMALL)
    first = source.fetch(shard, None, since=None)
    path = tmp_path / "a.csv"
    (tmp_path / "copy").write_bytes(path.read_bytes())
    os.utime(tmp_path / "copy", ns=(1, 1))
    (tmp_path / "copy").replace(path)

    second = source.fetch(shard, first.next, since=None)

    assert [row.values[0] for row in second.rows] == ["4", "5", "6"]


def test_what_is_written_while_a_chunk_is_read_is_not_brought(tmp_path):
    write(tmp_path, "a.csv", 10)
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)
    path = tmp_path / "a.csv"

    class Slow(CsvSourceReader):
        def _head(self, part, path):
            head = super()._head(part, path)
            path.write_bytes(path.read_bytes().replace(b"shop", b"SHOP"))
            os.utime(path, ns=(1, 1))
            return head

    with pytest.raises(Rejected, match="has changed since it was planned"):
        Slow(declared).fetch(shard, None, since=None)
    assert b"SHOP" in path.read_bytes()


def test_the_same_content_gives_the_same_shards_whenever_it_was_written(tmp_path):
    write(tmp_path, "a.csv", 500)
    before, _ = survey(shops(tmp_path, shard=1000))
    path = tmp_path / "a.csv"
    raw = path.read_bytes()
    path.unlink()
    path.write_bytes(raw)
    os.utime(path, ns=(1, 1))

    after, _ = survey(shops(tmp_path, shard=1000))

    assert [shard.key for shard in before] == [shard.key for shard in after]
    assert len({shard.key for shard in before}) == len(before)


@pytest.mark.parametrize("digest", ["", "0badc0de"])
def test_a_slice_is_read_back_from_its_text(digest):
    part = Slice(
        number=3,
        file="a/b|c%7C#@-.csv",
        size=99,
        fingerprint="f00",
        start=7,
        end=None,
        line=2,
        digest=digest,
    )

    assert Slice.parse(part.text) == part
    assert Slice.parse(replace(part, end=42).text).end == 42


def test_a_slice_planned_without_a_digest_is_read_until_it_is_written_to(tmp_path):
    write(tmp_path, "a.csv", 10)
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)
    (part,) = shard.parts
    assert isinstance(part, Slice)
    old = Shard(shard.axes, (replace(part, digest=""),))
    source = CsvSourceReader(declared, limits=SMALL)
    first = source.fetch(old, None, since=None)
    os.utime(tmp_path / "a.csv", ns=(1, 1))

    with pytest.raises(Rejected, match="has changed since it was planned"):
        source.fetch(old, first.next, since=None)


def test_a_file_that_is_gone_may_come_back(tmp_path):
    write(tmp_path, "a.csv", 3)
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)
    (tmp_path / "a.csv").unlink()

    with pytest.raises(SourceUnavailable, match="cannot be read: No such file"):
        walk(declared, shard)


def test_files_without_rows_are_nothing_to_import(tmp_path):
    write(tmp_path, "a.csv", 0)
    write(tmp_path, "b.csv", 0)

    with pytest.raises(
        Misconfigured, match=r"a\.csv, b\.csv have a header and no rows"
    ):
        survey(shops(tmp_path))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda _: None, "b.csv does not exist in "),
        (Path.mkdir, "b.csv is a folder; name the files in it, such as b.csv/*.csv"),
        (lambda path: path.symlink_to("gone.csv"), "b.csv is a link to gone.csv,"),
        (lambda path: path.symlink_to("b.csv"), "b.csv is a link to b.csv,"),
        (os.mkfifo, "b.csv is not a regular file"),
    ],
    ids=["missing", "folder", "dangling", "circle", "pipe"],
)
def test_a_file_that_is_named_must_be_there(tmp_path, make, sentence):
    write(tmp_path, "a.csv", 3)
    make(tmp_path / "b.csv")

    with pytest.raises(Misconfigured) as caught:
        survey(shops(tmp_path, "a.csv", "b.csv"))

    assert f"datasets.shops.source.files: {sentence}" in str(caught.value)


def test_each_pattern_must_match(tmp_path):
    write(tmp_path, "a.csv", 3)

    with pytest.raises(Misconfigured, match=r"no file matches b-\*\.csv in "):
        survey(shops(tmp_path, "*.csv", "b-*.csv"))


def test_a_name_that_is_taken_for_a_pattern_is_reported(tmp_path):
    write(tmp_path, "a[1].csv", 3)

    with pytest.raises(Misconfigured, match=r"; write a\[\[\]1\]\.csv for the file"):
        survey(shops(tmp_path, "a[1].csv"))
    survey(shops(tmp_path, "a[[]1].csv"))


def test_what_a_pattern_matches_and_is_a_dangling_link_is_missing(tmp_path):
    write(tmp_path, "a.csv", 3)
    (tmp_path / "b.csv").symlink_to("gone.csv")

    with pytest.raises(Misconfigured, match=r"b\.csv is a link to gone\.csv"):
        survey(shops(tmp_path, "*.csv"))


def test_a_folder_that_a_pattern_matches_is_passed_by(tmp_path):
    write(tmp_path, "a.csv", 3)
    (tmp_path / "b.csv").mkdir()

    (shard,), _ = survey(shops(tmp_path, "*.csv"))

    assert shard.slice.file == "a.csv"


def test_of_many_files_that_are_missing_some_are_named(tmp_path):
    names = [f"{number}.csv" for number in range(10, 1_000)]

    with pytest.raises(Misconfigured) as caught:
        survey(shops(tmp_path, *names))

    assert "19.csv does not exist" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 11
    assert str(caught.value).endswith("and 980 more are missing")


def test_a_file_that_is_named_in_many_ways_is_read_once(tmp_path):
    write(tmp_path, "a.csv", 3)
    write(tmp_path, "b.csv", 3)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.csv").symlink_to("a.csv")
    ways = ("./a.csv", "sub/../a.csv", str(tmp_path / "a.csv"), "*.csv", "a.csv")

    shards, result = survey(shops(tmp_path, *ways))

    assert [shard.slice.file for shard in shards] == ["a.csv", "b.csv"]
    warnings = [each.warnings for each in result if isinstance(each, FileSurveyed)]
    (warning,) = [each for each in warnings[0] if "read once" in each]
    assert "./a.csv, link.csv, sub/../a.csv" in warning
    assert not [each for each in warnings[1] if "read once" in each]


def test_a_file_without_rows_has_a_shard_that_ends_at_once(tmp_path):
    write(tmp_path, "a.csv", 0)
    write(tmp_path, "b.csv", 3)
    declared = shops(tmp_path)

    (empty, _), _ = survey(declared)

    assert empty.slice.file == "a.csv"
    assert [(len(page.rows), page.proof) for page in walk(declared, empty)] == [
        (0, Proof.END_OF_RANGE)
    ]


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "a.csv").mkdir()

    with pytest.raises(Misconfigured, match=r"a\.csv is not a regular file"):
        survey(shops(tmp_path))


def test_a_cursor_of_another_kind_is_refused(tmp_path):
    write(tmp_path, "a.csv", 3)
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)

    with pytest.raises(CursorUnreadable):
        CsvSourceReader(declared).fetch(shard, {"after": 7}, since=None)


def test_columns_may_be_declared_where_there_is_no_header(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"1,a\n2,b\n")
    declared = shops(tmp_path, header=False, columns=("id", "name"))
    (shard,), _ = survey(declared)

    (page,) = walk(declared, shard)

    assert [row.values for row in page.rows] == [("1", "a"), ("2", "b")]
    assert (
        CsvSourceReader(declared)
        .preview(shard, since=None)
        .startswith("a.csv from byte 0")
    )


def test_a_range_without_rows_is_proven_empty(tmp_path):
    write(tmp_path, "a.csv", 3)
    declared = shops(tmp_path)
    (shard,), _ = survey(declared)
    (part,) = shard.parts
    assert isinstance(part, Slice)
    nothing = replace(part, start=part.size, digest="")

    (page,) = walk(declared, Shard(shard.axes, (nothing,)))

    assert (list(page.rows), page.proof) == ([], Proof.END_OF_RANGE)


def test_a_file_whose_name_is_not_utf_8_is_refused(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")).write_bytes(b"id\n1\n")

    with pytest.raises(Misconfigured, match=r"caf\\udce9.csv is not UTF-8.*rename"):
        survey(shops(tmp_path))
