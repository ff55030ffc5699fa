"""What is exported can be imported again, and gives equal rows."""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from penstock.adapters.csv.file_scanner import FileScanner
from penstock.adapters.csv.source import CsvSourceReader
from penstock.adapters.sqlstore.key_encoding import plain_value
from penstock.domain.dataset import FieldType
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.mapping.written_numbers import WrittenNumber
from penstock.domain.pages import RawRow, Record
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import CsvSource
from penstock.entrypoints.cli.export import Format, format_of
from penstock.entrypoints.exports.csv import write_csv
from penstock.entrypoints.exports.jsonl import write_jsonl
from penstock.entrypoints.exports.parquet import BATCH_ROWS, write_parquet
from penstock.errors import Misconfigured
from tests.support.builders import dataset, int_field, text_field, typed_field

EVERY = dataset(
    fields=(
        int_field("id", required=True),
        text_field("title"),
        text_field("padded", trim=False),
        typed_field("share", FieldType.FLOAT),
        typed_field("open", FieldType.BOOL),
        typed_field("day", FieldType.DATE),
        typed_field("at", FieldType.TIMESTAMP),
        typed_field("doc", FieldType.JSON),
        typed_field("price", FieldType.DECIMAL),
    )
)
MAP = Mapper(EVERY)

# the last four are the full-width forms of the first
FORMULA_BEGINS = set("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
# as the how-to says it
MARK = re.compile(f"^'(?='*[{re.escape(''.join(FORMULA_BEGINS))}])")

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
hostile = st.sampled_from(
    [
        "=1+1",
        "'=1",
        "''-2",
        "+49 30",
        "-",
        "@a",
        "\t=",
        "\r=",
        "\uff1d1",
        '"',
        ",",
        "a\r\nb",
    ]
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=5,
).filter(lambda document: "\\u0000" not in json.dumps(document))
zones = st.sampled_from([UTC, timezone(timedelta(hours=-5)), timezone.max])
raw_rows = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.none() | texts | hostile,
    st.none() | texts | hostile,
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.booleans(),
    st.none() | st.dates().map(date.isoformat),
    st.none() | st.datetimes(timezones=zones).map(datetime.isoformat),
    documents.filter(lambda document: document is None or is_finite(document)),
    st.none()
    | st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?", fullmatch=True),
)
ODD = (
    1,
    "=1",
    " '=1 ",
    5e-324,
    False,
    "0001-01-01",
    "9999-12-31T23:59:59Z",
    "-1",
    "1.10",
)


def is_finite(document):
    return "Infinity" not in json.dumps(document)


def mapped(values):
    record = MAP(RawRow(values, b"", 0))
    assert isinstance(record, Record)
    return record


def exported(write, *records, **options):
    file = io.BytesIO()
    assert write(EVERY, (each.values for each in records), file, **options) == len(
        records
    )
    return file.getvalue()


def cells(written):
    return list(csv.reader(io.StringIO(written.decode(), newline=""), strict=True))


def imported(written, folder):
    """Read a file as an import does; return its rows, and them once more as `read`."""
    (folder / "every.csv").write_bytes(written)
    source = CsvSource(
        files=("every.csv",), folder=str(folder), delimiter=",", encoding="utf-8"
    )
    declared = replace(EVERY, source=source)
    axis = FileScanner(lambda _: None)(declared)
    (shard,) = [Shard((axis,), (part,)) for part in axis.slices]
    pages = CsvSourceReader(declared)
    page = pages.fetch(shard, None, since=None)
    assert not page.bad_rows
    return [*page.rows, *(pages.read(row.raw) for row in page.rows)]


@given(raw_rows)
@example(ODD)
def test_a_row_that_went_through_json_lines_is_the_same(values):
    record = mapped(values)

    (line,) = exported(write_jsonl, record).split(b"\n")[:-1]

    row = json.loads(line, parse_float=WrittenNumber)
    assert mapped(tuple(row.values())) == record


@given(raw_rows)
@example(ODD)
def test_a_row_that_went_through_raw_csv_is_the_same(tmp_path_factory, values):
    record = mapped(values)

    written = exported(write_csv, record, raw=True)
    rows = imported(written, tmp_path_factory.getbasetemp())

    assert cells(written)[0] == [field.name for field in EVERY.fields]
    assert [mapped(row.values) for row in rows] == [record, record]


@given(raw_rows)
@example(ODD)
def test_a_row_that_went_through_parquet_is_the_same(values):
    record = mapped(values)

    written = exported(write_parquet, record)

    (row,) = parquet.read_table(io.BytesIO(written)).to_pylist()
    *others, price = record.values
    # its own decimals have fewer digits
    assert tuple(row.values()) == (*others, plain_value(price))


@given(texts | hostile)
def test_no_text_of_a_csv_is_a_formula_unless_raw(text):
    _, line = cells(exported(write_csv, mapped((1, None, text, *[None] * 6))))

    assert line[2][:1] not in FORMULA_BEGINS


@given(texts | hostile)
def test_taking_one_mark_away_gives_the_text_back(text):
    record = mapped((1, None, text, *[None] * 6))

    _, line = cells(exported(write_csv, record))

    assert MARK.sub("", line[2]) == (record.values[2] or "")


def test_numbers_are_no_formulas():
    record = mapped((-5, None, None, -0.5, None, None, None, None, "-1.5"))

    assert exported(write_csv, record).splitlines()[1] == b"-5,,,-0.5,,,,,-1.5"


def test_null_is_nothing_and_empty_text_is_quoted():
    record = Record((1,), (1, "", None, None, None, None, None, None, None), b"")

    assert exported(write_csv, record).splitlines()[1] == b'1,"",,,,,,,'


def test_the_values_of_a_csv_have_one_plain_form():
    record = mapped(
        (
            1,
            'a "b", c',
            None,
            1e22,
            True,
            "2026-02-28",
            "2026-02-28T02:00:00+01:00",
            [1],
            "-1.50",
        )
    )

    line = exported(write_csv, record).split(b"\r\n")[1].decode()

    assert (
        line == '1,"a ""b"", c",,1e+22,true,2026-02-28,2026-02-28T01:00:00Z,[1],-1.50'
    )


def test_no_rows_are_a_header_or_nothing():
    assert exported(write_jsonl) == b""
    assert exported(write_csv).count(b"\r\n") == 1


def test_parquet_is_written_in_groups_of_bounded_size():
    rows = 2 * BATCH_ROWS + 1
    records = [mapped((number, *[None] * 8)) for number in range(rows)]

    in_small = exported(write_parquet, *records, bytes_a_group=1)
    in_large = exported(write_parquet, *records)

    small = parquet.ParquetFile(io.BytesIO(in_small))
    large = parquet.ParquetFile(io.BytesIO(in_large))
    assert row_groups(small) == [BATCH_ROWS, BATCH_ROWS, 1]
    assert row_groups(large) == [rows]
    assert small.read()["id"].to_pylist() == [*range(rows)]


def row_groups(file):
    described = file.metadata
    return [
        described.row_group(number).num_rows
        for number in range(described.num_row_groups)
    ]


def test_parquet_has_a_type_for_each_of_ours():

    schema = parquet.ParquetFile(io.BytesIO(exported(write_parquet))).schema_arrow

    assert [str(field.type) for field in schema] == [
        "int64",
        "string",
        "string",
        "double",
        "bool",
        "date32[day]",
        "timestamp[us, tz=UTC]",
        "string",
        "string",
    ]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (None, Format.JSONL),
        ("poi.csv", Format.CSV),
        ("POI.CSV", Format.CSV),
        ("poi.parquet", Format.PARQUET),
        ("poi.jsonl", Format.JSONL),
    ],
)
def test_the_ending_of_a_file_says_its_form(name, form, tmp_path):
    assert format_of(None if name is None else tmp_path / name, "poi") is form


@pytest.mark.parametrize("name", ["poi", "poi.txt", "poi.xlsx", "poi.csv.bak"])
def test_a_file_whose_ending_says_no_form_is_refused(name):
    text = f"--out {name}: the name must end in .jsonl, .csv or .parquet, or give"

    with pytest.raises(Misconfigured, match=re.escape(text)):
        format_of(Path(name), "poi")


@pytest.mark.parametrize(
    ("name", "form"), [("poi.csv.gz", "csv"), ("poi.jsonl.gz", "jsonl")]
)
def test_who_wants_a_packed_file_is_reported_how(name, form):
    text = f"; to compress: penstock export poi --format {form} | gzip > {name}"

    with pytest.raises(Misconfigured, match=re.escape(text)):
        format_of(Path(name), "poi")
