"""Bad rows as CSV: where they stand, what they hold, and nothing that runs."""

import csv
import io
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.adapters.csv.source import CsvSourceReader
from penstock.domain.jobs import ImportId, JobId
from penstock.domain.pages import Reason, Rejection, RowLocation
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import CsvSource
from penstock.entrypoints.exports.rejected_rows import COLUMNS, read_all, write_bad_rows
from penstock.ports import QuarantinedRow
from tests.support.builders import NOON, dataset, int_field, text_field

SHOPS = dataset(
    "shops",
    fields=(int_field("id"), text_field("name")),
    source=CsvSource(files=("*.csv",)),
    axes=(FileAxis(),),
)
PART = Slice(
    number=3,
    file="new/a|b.csv",
    size=9,
    fingerprint="f00",
    start=0,
    end=9,
    line=2,
)


def bad(number: int = 1, *, file: str = PART.file, **result) -> QuarantinedRow:
    known = {
        "position": 0,
        "reason": Reason.TYPE,
        "detail": "'x' is not of type int",
        "raw": b'{"id": "x", "name": "y"}',
        "field": "id",
        "place": RowLocation(line=7, offset=120),
    }
    return QuarantinedRow(
        id=number,
        import_id=ImportId(1),
        job=JobId(1),
        shard_key=Shard((FileAxis(),), (replace(PART, file=file),)).key,
        page_seq=1,
        rejection=Rejection(**{**known, **result}),
        at=NOON + timedelta(seconds=number),
    )


def written(*rows: QuarantinedRow) -> list[dict[str, str]]:
    file = io.BytesIO()
    assert write_bad_rows(SHOPS, CsvSourceReader(SHOPS), rows, file) == len(rows)
    text = io.StringIO(file.getvalue().decode(), newline="")
    return list(csv.DictReader(text, strict=True))


def test_a_bad_row_is_reported_with_its_place_and_its_value():
    assert written(bad(key=(5,))) == [
        {
            "file": "new/a|b.csv",
            "line": "7",
            "offset": "120",
            "field": "id",
            "value": "x",
            "reason": "type",
            "detail": "'x' is not of type int",
            "key": "5",
        }
    ]


def test_bad_rows_come_by_file_and_line_in_whatever_order_they_were_found():
    rows = written(
        bad(1, place=RowLocation(line=120, offset=2000), key=(3,)),
        bad(2, place=RowLocation(line=9, offset=100), key=(1,)),
        bad(3, place=RowLocation(line=9, offset=100), key=(2,)),
        bad(4, place=RowLocation(line=500, offset=9000), key=(0,), file="earlier.csv"),
    )

    assert [row["key"] for row in rows] == ["0", "1", "2", "3"]


def test_without_bad_rows_there_is_a_header():
    file = io.BytesIO()

    write_bad_rows(SHOPS, CsvSourceReader(SHOPS), [], file)

    assert file.getvalue().decode() == ",".join(COLUMNS) + "\r\n"


@pytest.mark.parametrize("formula", ["=1+1", "@SUM(A1)", "-2", "+3", "\tx"])
def test_what_a_spreadsheet_would_run_is_marked(formula):
    raw = json.dumps({"id": formula}).encode()

    (row,) = written(bad(raw=raw, key=(formula,), detail=formula))

    assert row["value"] == row["key"] == row["detail"] == f"'{formula}"


def test_a_row_that_is_none_is_shown_as_it_stands():
    raw = b'1,"a\x00",\xff\r\n'

    (row,) = written(bad(raw=raw, field=None, reason=Reason.UNREADABLE))

    assert row["value"] == '1,"a\N{REPLACEMENT CHARACTER}",\N{REPLACEMENT CHARACTER}'
    assert row["field"] == ""


def test_a_long_value_is_cut_short():
    raw = json.dumps({"id": "ü" * 5000}).encode()

    (row,) = written(bad(raw=raw))

    assert row["value"] == "ü" * 199 + "…"


def test_a_value_that_is_not_there_is_nothing():
    unknown, missing = written(bad(field="gone"), bad(raw=b"{}"))

    assert unknown["value"] == missing["value"] == ""


def test_a_key_of_several_fields_is_a_list():
    (row,) = written(bad(key=("DE", 5)))

    assert row["key"] == '["DE", 5]'


def test_a_row_of_no_file_has_no_place():
    (row,) = written(bad(place=None))

    assert (row["file"], row["line"], row["offset"]) == ("", "", "")


def test_rows_are_requested_some_at_a_time():
    rows = [bad(number) for number in range(1, 1200)]
    requests = []

    def read(after: int, limit: int) -> list[QuarantinedRow]:
        requests.append(after)
        return [row for row in rows if row.id > after][:limit]

    assert list(read_all(read)) == rows
    assert requests == [0, 500, 1000, 1199]
