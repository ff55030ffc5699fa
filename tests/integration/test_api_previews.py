"""Clients see what an import would make of a file, and nothing is stored."""

import gzip
import tempfile
from pathlib import Path

import pytest

from penstock.ports.file_preview import PREVIEW_BYTES
from tests.support.api_client import OF, ApiResponse
from tests.support.api_server import Running

PREVIEW = f"{OF}/shops/preview"
FILE = {"Content-Type": "application/octet-stream"}
MIXED = b"uid;name;points;extra\na;Ann;1;x\nb;;2;x\nc;C;-1;\nd;D\na;Again;5;\n"


def preview(running: Running, content: bytes, path: str = PREVIEW) -> ApiResponse:
    return running.client.ask(
        "POST", path, body=content[: PREVIEW_BYTES + 1], headers=FILE
    )


def large(rows: int = 200_000) -> bytes:
    lines = (b"%d,name %d,%d\n" % (each, each, each) for each in range(rows))
    return b"uid,name,points\n" + b"".join(lines)


def test_a_file_is_read_matched_and_checked(running: Running):
    found = preview(running, MIXED).json

    assert found["file"] == {
        "encoding": "utf-8",
        "delimiter": ";",
        "compressed": False,
        "whole": True,
        "columns": 4,
    }
    fields = {each["name"]: each["fields"] for each in found["columns"]}
    assert fields == {
        "uid": ["uid"],
        "name": ["name"],
        "points": ["points"],
        "extra": None,
    }
    assert found["rows"][3] == ["d", "D"]
    check = found["check"]
    assert (check["rows"], check["bad"], check["repeated"]) == (5, 3, 1)
    assert check["whole"] is True
    assert {(bad["reason"], bad["field"], bad["line"]) for bad in check["reasons"]} == {
        ("too_few_values", None, 5),
        ("missing", "name", 3),
        ("range", "points", 4),
    }


def test_a_file_that_lacks_columns_is_not_checked(running: Running):
    found = preview(running, b"uid,naem\na,Ann\n").json

    assert [each["name"] for each in found["missing"]] == ["name", "points"]
    assert "did you mean 'naem'?" in found["problems"][0]
    assert found["rows"] == [["a", "Ann"]]
    assert found["check"] is None


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_of_a_large_file_only_whole_rows_count(running: Running, pack):
    found = preview(running, pack(large())).json

    assert found["file"]["whole"] is False
    assert found["check"]["rows"] > 1_000
    assert found["check"]["bad"] == 0


def test_rows_that_are_cut_off_are_no_bad_rows(running: Running):
    wide = b"uid,name,points\n" + b"".join(
        b'%d,"%s",1\n' % (each, b"two\nlines " * 700) for each in range(200)
    )

    found = preview(running, wide).json

    assert found["check"]["rows"] > 50
    assert found["check"]["bad"] == 0


def test_a_limited_number_of_rows_is_checked(running: Running):
    found = preview(running, b"uid,name,points\n" + b"1\n" * 50_000).json

    assert found["file"]["whole"] is True
    assert found["check"]["whole"] is False
    assert 20_000 <= found["check"]["rows"] < 50_000


def test_utf_16_is_read_as_it_is(running: Running):
    found = preview(running, large().decode().encode("utf-16")).json

    assert found["file"]["encoding"].startswith("utf-16")
    assert found["check"]["bad"] == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"PK\x03\x04 xl/workbook.xml", "Excel"),
        (b"\x1f\x8b\x08 not gzip at all", "gzip"),
        (gzip.compress(large(2_000))[:-20], "gzip"),
    ],
    ids=["empty", "workbook", "broken", "cut"],
)
def test_what_no_import_can_read_is_named(running: Running, content, reason):
    response = preview(running, content)

    assert response.status == 422
    assert reason in response.json["errors"][0]["detail"]


def test_a_header_without_rows_has_nothing_to_load(running: Running):
    assert preview(running, b"uid,name,points\n").json["problems"] == [
        "it has a header and no rows"
    ]


def test_an_open_quote_is_a_problem(running: Running):
    found = preview(running, b'uid,name,points\na,Ann,1\nb,"Ben,2\nc,Cee,3\n').json

    assert "quote" in found["problems"][0]
    assert found["check"] is None


def test_more_than_the_beginning_is_refused(running: Running):
    body = b"x" * (PREVIEW_BYTES + 2)

    response = running.client.ask("POST", PREVIEW, body=body, headers=FILE)

    assert response.status == 413


def test_a_provider_has_no_files(running: Running):
    assert preview(running, MIXED, f"{OF}/poi/preview").status == 404


def test_nothing_is_stored(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    preview(running, MIXED)
    preview(running, MIXED, "/api/v1/drafts?name=stops.csv")

    assert running.spooled() == []
    assert [*running.stores.records.rows(running.api.dataset("shops"))] == []
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("name", "dataset"),
    [
        ("stops.csv", "stops"),
        ("../../etc/passwd", "rows"),
        ("..", "file"),
        ("\u202estops\n.csv", "stops"),
        ("ü" * 150 + ".csv", ""),
    ],
)
def test_a_new_kind_of_file_becomes_a_draft(running: Running, name, dataset):
    response = running.client.ask(
        "POST", "/api/v1/drafts", body=MIXED, headers=FILE, query={"name": name}
    )

    assert response.status == 200, response.body
    assert dataset in response.json["dataset"]
    assert response.json["toml"].startswith("[datasets.")
    assert "penstock-preview" not in response.json["toml"]


def test_other_media_types_are_refused(running: Running):
    assert running.client.ask("POST", PREVIEW, body=b"{}").status == 415
