"""Any file becomes a declaration that holds, or a sentence that says why not."""

import gzip
import io
import os
import tomllib
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.adapters.csv.dialect import DeclaredDialect
from penstock.adapters.csv.encoding import find_encoding
from penstock.adapters.csv.header import read_header
from penstock.domain.dataset import FieldType
from penstock.entrypoints.cli.init import MAX_DOUBTS, init
from penstock.entrypoints.exports.csv import write_csv
from penstock.entrypoints.file_draft import infer_dataset
from penstock.entrypoints.file_sample import HEAD_BYTES, sample_file
from penstock.errors import Misconfigured
from penstock.settings.models.base import as_own_name
from penstock.settings.models.dataset import DatasetTable
from penstock.settings.rules import field_rules
from penstock.settings.toml_draft import write_draft
from tests.support.builders import NOON, dataset, int_field, typed_field


def declared(folder, content, name="shops.csv"):
    """Look at a file; return the dataset that was drafted, held against the rules."""
    path = folder / name
    path.write_bytes(content)
    text = write_draft(infer_dataset(path, beside=folder / "penstock.toml"))
    ((dataset, table),) = tomllib.loads(text)["datasets"].items()
    assert as_own_name(dataset) == dataset
    hold_rules(table)
    return table


def hold_rules(table):
    """Read it as a dataset of another source, since columns are no path."""
    fields = {
        name: {key: value for key, value in field.items() if key != "column"}
        for name, field in table["fields"].items()
    }
    source = {"url": "https://example.org/"}
    read = DatasetTable.model_validate({**table, "fields": fields, "source": source})
    assert [*field_rules(read)] == []


def test_a_plain_file_is_declared(tmp_path):
    content = b"uid,name,region,points\n" + b"".join(
        b"u%d,Shop %d,%s,%d\n" % (n, n, [b"n", b"s"][n % 2], n % 3) for n in range(30)
    )

    table = declared(tmp_path, content)

    assert table == {
        "key": "uid",
        "search": ["name"],
        "filter": ["region", "points"],
        "source": {
            "type": "csv",
            "files": "shops.csv",
            "encoding": "utf-8",
            "delimiter": ",",
            "header": True,
            "null": [""],
        },
        "fields": {
            "uid": {"column": "uid", "required": True},
            "name": {"column": "name"},
            "region": {"column": "region"},
            "points": {"column": "points", "type": "int", "exact": True},
        },
    }


def test_what_escapes_quotes_is_drafted_and_used(tmp_path):
    raw = b'id,name,note\n1,"say \\"hi\\", you",\\N\n2,"b",\\N\n'

    drafted = declared(tmp_path, raw)["source"]

    assert drafted["escape"] == "\\"
    assert drafted["delimiter"] == ","


def test_every_guess_has_its_reason(tmp_path):
    path = tmp_path / "shops.csv"
    path.write_text("uid,name,region\n" + "".join(f"u{n},a b,n\n" for n in range(9)))

    text = write_draft(infer_dataset(path, beside=tmp_path / "penstock.toml"))

    guesses = [line for line in text.splitlines() if "=" in line and line[0] != "#"]
    without = [line for line in guesses if "  # " not in line]
    assert without == ["search = [", 'type = "csv"']


def test_what_people_wrote_is_not_copied_into_comments(tmp_path):
    path = tmp_path / "shops.csv"
    path.write_text("Ann Doe,+49 30 1,01234\nBen Roe,+49 30 2,00001\nAnn Doe,+1,0\n")

    text = write_draft(infer_dataset(path, beside=tmp_path / "penstock.toml"))

    assert not any(value in text for value in ("Ann", "Ben", "+49", "0123"))


@pytest.mark.parametrize(
    ("content", "result"),
    [
        (b"", "is empty"),
        (b" \r\n\n ", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"\x7fELF\0\0\0", "is not text"),
        (b"PK\x03\x04rest", "save the sheet as CSV"),
        (b"\x1f\x8bnot really", "cannot be decompressed"),
        (gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-9], "cannot be decompressed"),
        (b"a," * HEAD_BYTES, "its first line is longer than 1 MiB"),
        (b'"a,b\n' + b"1,2\n" * 999, "is a quote never closed"),
        (b",,\n1,2,3\n", "no column has a name of its own"),
        (b"a,a\n1,2\n", "no column has a name of its own"),
    ],
    ids=range(11),
)
def test_what_is_no_table_is_reported(tmp_path, content, result):
    with pytest.raises(Misconfigured, match=result):
        declared(tmp_path, content)


@pytest.mark.parametrize("name", [".", "nosuch.csv"])
def test_what_is_no_file_is_reported(tmp_path, name):
    with pytest.raises(Misconfigured, match=r"is not a file|No such file"):
        infer_dataset(tmp_path / name, beside=tmp_path / "penstock.toml")


def test_a_header_alone_is_declared_as_text(tmp_path):
    table = declared(tmp_path, b"name,id\n")

    assert table["key"] == "id"
    assert table["fields"]["name"] == {"column": "name"}


def test_a_file_without_a_header_has_its_columns_listed(tmp_path):
    table = declared(tmp_path, b"1,ann\n2,ben\n")

    assert table["source"]["header"] is False
    assert table["source"]["columns"] == ["column_1", "column_2"]
    assert table["fields"]["column_1"]["column"] == "column_1"


def test_odd_names_are_retained_as_they_stand(tmp_path):
    header = '"a ""b""","c\nd","${HOME}","\x7f\t","名前","1st"'
    row = "1,2,3,4,5,6"

    table = declared(tmp_path, f"{header}\n{row}\n".encode())

    columns = [field["column"] for field in table["fields"].values()]
    # what would be filled from the environment is written so that it is not
    assert columns == ['a "b"', "c\nd", "$${HOME}", "\x7f", "名前", "1st"]


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("cp1252", "cp1252"),
        ("latin-1", "cp1252"),
    ],
)
def test_the_encoding_is_found(tmp_path, encoding, written):
    table = declared(tmp_path, "id,größe\n1,ä\n".encode(encoding))

    assert table["source"]["encoding"] == written
    assert table["fields"]["grosse"]["column"] == "größe"


@pytest.mark.parametrize("encoding", ["shift_jis", "gbk", "big5", "euc_kr"])
def test_what_no_import_can_read_is_refused_with_the_command_that_converts_it(
    tmp_path, encoding
):
    words = {"shift_jis": "山田太郎", "gbk": "北京市", "big5": "臺北市"}
    text = f"id,x\n1,{words.get(encoding, '부산광역시')}\n"

    with pytest.raises(Misconfigured, match=r"cannot be imported; .*: iconv -f \w+ -t"):
        declared(tmp_path, text.encode(encoding))


def test_stray_bytes_in_utf_8_are_bad_rows_and_no_other_encoding(tmp_path):
    rows = [b"1,Caf\xc3\xa9", b"2,\xff", b"3,Z\xc3\xbcrich", b"4,\xe9", b"5,\xfe"]

    drafted = look_at_bytes(tmp_path, b"id,name\n" + b"\n".join(rows) + b"\n")

    assert drafted.encoding.value == "utf-8"
    assert any("3 characters are no UTF-8" in doubt for doubt in drafted.doubts)


def test_lines_above_the_header_are_declared(tmp_path):
    table = declared(tmp_path, b"Shops of May 2026\n\nid;name;town\n1;a;b\n2;c;d\n")

    assert table["source"]["skip"] == 1
    assert table["source"]["delimiter"] == ";"
    assert [*table["fields"]] == ["id", "name", "town"]


def test_words_for_nothing_are_declared_as_an_import_compares_them(tmp_path):
    table = declared(tmp_path, b"id, n\n1, NULL\n2, 5\n3,\n")

    assert table["source"]["null"] == ["", " NULL"]
    assert table["fields"]["n"]["type"] == "int"


def look_at_bytes(folder, content):
    path = folder / "shops.csv"
    path.write_bytes(content)
    return infer_dataset(path, beside=folder / "penstock.toml")


@pytest.mark.parametrize(
    "content",
    [
        "id;größe\n" + "1,5;2,5\n" * 50 + "1,5;2,5;x\n" * 2,
        "id|name\n" + "1|Smith, John\n" * 9,
        "id\n1\n",
        "id;b|c\n1;2|3\n4|5",
        "id;a\n" + f"1;{'x, ' * 99}\n" * 3000,
    ],
    ids=range(5),
)
@pytest.mark.parametrize("damage", [b"", b"\xff;\xff\n", b"\x81"])
def test_a_draft_and_an_import_guess_the_same(tmp_path, content, damage):
    raw = content.encode() + damage

    drafted = declared(tmp_path, raw)["source"]

    found = read_header(tmp_path / "shops.csv", DeclaredDialect()).dialect
    assert drafted["delimiter"] == found.delimiter
    assert find_encoding(drafted["encoding"]).name == found.encoding


def test_an_export_is_drafted_as_what_it_was(tmp_path):
    # a decimal looks like a float
    kinds = {kind.value: kind for kind in FieldType if kind is not FieldType.DECIMAL}
    exported = dataset(
        fields=(
            int_field("id", required=True),
            *(typed_field(f"a_{name}", kind) for name, kind in kinds.items()),
        )
    )
    values = ("x", -7, 0.1, True, NOON.date(), NOON, '{"a":[1]}')
    file = io.BytesIO()
    write_csv(exported, ((number, *values) for number in range(3)), file, raw=True)

    table = declared(tmp_path, file.getvalue())

    assert table["key"] == "id"
    assert {
        name: field.get("type", "text") for name, field in table["fields"].items()
    } == {"id": "int"} | {f"a_{name}": name for name in kinds}


def test_numbers_with_a_decimal_comma_are_declared_as_such(tmp_path):
    table = declared(tmp_path, b"id;weight;lat;lon\n1;1,5;48,1;11,5\n2;3;48,2;11,25\n")

    fields = table["fields"]
    assert fields["weight"] == {
        "column": "weight",
        "type": "float",
        "decimal": ",",
        "exact": True,
    }
    assert "exact" not in fields["lat"]
    assert fields["lat"]["decimal"] == fields["lon"]["decimal"] == ","
    assert table["geo"] == ["lat", "lon"]


def test_packed_files_are_looked_into(tmp_path):
    table = declared(tmp_path, gzip.compress(b"id;b\n1;2\n"), name="shops.csv.gz")

    assert table["source"]["files"] == "shops.csv.gz"
    assert list(table["fields"]) == ["id", "b"]


def test_a_huge_cell_is_text_like_any_other(tmp_path):
    table = declared(tmp_path, b"id,text\n1," + b"x" * 500_000 + b"\n2,y\n")

    assert list(table["fields"]) == ["id", "text"]


def test_thousands_of_columns_are_cut_to_what_a_table_holds(tmp_path):
    names = ",".join(f"c{number}" for number in range(5000))

    assert len(declared(tmp_path, f"{names}\n".encode())["fields"]) == 1000


def test_the_middle_and_the_end_are_looked_at_too(tmp_path):
    rows = [f"{number},{number % 7}\n" for number in range(100_000, 500_000)]
    rows[len(rows) // 2 + 2000] = "200001,middle\n"
    rows[-1] = "499999,end\n"

    path = tmp_path / "shops.csv"
    path.write_text("id,n\n" + "".join(rows))
    seen = sample_file(path)
    text = write_draft(infer_dataset(path, beside=tmp_path / "penstock.toml"))

    assert path.stat().st_size > 3 * HEAD_BYTES
    assert "the beginning, the middle and the end" in text
    assert "but 'middle' is not" in text
    assert "499999,end" in seen.chunks[-1]


@pytest.mark.parametrize(
    ("file", "config", "written"),
    [
        ("data/a.csv", "penstock.toml", "data/a.csv"),
        ("a [1].csv", "penstock.toml", "a [[]1].csv"),
        ("a.csv", "conf/penstock.toml", None),
    ],
)
def test_the_file_is_named_as_seen_from_the_configuration(
    tmp_path, file, config, written
):
    path, beside = tmp_path / file, tmp_path / config
    for each in (path, beside):
        each.parent.mkdir(exist_ok=True)
    path.write_text("id\n1\n")

    drafted = infer_dataset(path, beside=beside)

    assert drafted.file == (written or path.as_posix())


cells = st.text(st.sampled_from("a1ü \"',;|\t\n\r\x00\x1f\x7f\x85=${}#.-0"), max_size=6)
lines = st.lists(st.lists(cells, max_size=4).map(",".join), max_size=6)
contents = st.binary() | lines.map("\n".join).map(str.encode)


@given(contents)
@example(b"\xff\xfe")
@example(b"\xff\xfea")
@example(b"\r\r\n")
def test_any_bytes_are_declared_or_refused(tmp_path_factory, content):
    with suppress(Misconfigured):
        declared(tmp_path_factory.mktemp("any"), content)


@pytest.mark.parametrize(
    "content",
    [
        b'{"id": 1, "name": "a", "tags": [1, 2]}\n{"id": 2, "name": "b"}\n',
        b'\n[{"id": 1}, {"id": 2}]\n',
        b'{\n  "id": 1,\n  "name": "a"\n}\n',
        b"[1, 2]\r\n[3, 4]\r\n",
    ],
)
def test_json_is_no_table(tmp_path, content):
    with pytest.raises(Misconfigured, match="looks like JSON; only CSV files can be"):
        declared(tmp_path, content, "shops.jsonl")


@pytest.mark.parametrize("header", [b"[id],[name]", b"{id},{name}", b'"id","name"'])
def test_brackets_alone_are_no_json(tmp_path, header):
    table = declared(tmp_path, header + b"\n1,a\n2,b\n")

    assert len(table["fields"]) == 2


@pytest.mark.parametrize("place", [b"caf\xe9.csv", b"caf\xe9/shops.csv"])
def test_a_name_that_is_no_utf_8_is_reported_and_nothing_is_touched(tmp_path, place):
    path = tmp_path / os.fsdecode(place)
    path.parent.mkdir(exist_ok=True)
    path.write_text("id,name\n1,a\n")
    config = tmp_path / "penstock.toml"
    config.write_text("# mine")

    with pytest.raises(Misconfigured, match=r"caf\\udce9.* is not UTF-8.*rename"):
        init(source=path, config=config, force=True)

    assert config.read_text() == "# mine"
    assert {each.name for each in tmp_path.iterdir()} == {
        "penstock.toml",
        os.fsdecode(place.split(b"/")[0]),
    }


def test_what_cannot_be_written_leaves_the_old_configuration(tmp_path, monkeypatch):
    config = tmp_path / "penstock.toml"
    config.write_text("# mine")
    (tmp_path / "shops.csv").write_text("id\n1\n")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        init(source=tmp_path / "shops.csv", config=config, force=True)

    assert config.read_text() == "# mine"
    assert {each.name for each in tmp_path.iterdir()} == {"penstock.toml", "shops.csv"}


def test_doubts_are_printed_in_a_bounded_number_of_lines(tmp_path, capsys):
    names = ",".join(f"c{number}" for number in range(10_000))
    versions = ",".join(["1.10"] * 10_000)
    path = tmp_path / "wide.csv"
    path.write_text(f"{names}\n{versions}\n")

    init(source=path, config=tmp_path / "penstock.toml")

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == MAX_DOUBTS + 2
    assert "more points; see the comments in the file" in lines[-1]
