"""Exports as a user meets them: whole files, full disks, missing libraries."""

import json
import resource
import subprocess
from pathlib import Path

import pytest

from tests.support.stores import Kind, everywhere
from tests.support.workshop import PENSTOCK, Workshop

# enough for what SQLite keeps beside its file, and too little for the rows
SMALL_DISK = 40_000
FULL_DEVICE = Path("/dev/full")


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_DISK, SMALL_DISK))


def without_coverage(environ):
    """Keep the measuring of coverage out: its own file would find no room either."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("COVERAGE_")
    }


def test_an_export_that_finds_no_room_leaves_the_file_as_it_was(imported):
    (imported.folder / "poi.jsonl").write_text("old")

    done = subprocess.run(
        [*PENSTOCK, "export", "poi", "--out", "poi.jsonl"],
        cwd=imported.folder,
        env=without_coverage(imported.environ),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit_files,
    )

    assert done.returncode == 1
    assert done.stderr == "penstock: --out poi.jsonl: File too large\n"
    assert (imported.folder / "poi.jsonl").read_text() == "old"
    assert not [*imported.folder.glob(".*.part")]


def test_a_full_disk_behind_standard_output_is_reported_once(imported):
    with FULL_DEVICE.open("wb") as full:
        done = subprocess.run(
            [*PENSTOCK, "export", "poi", "--format", "csv"],
            cwd=imported.folder,
            env=imported.environ,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == "penstock: output: No space left on device\n"


def test_without_pyarrow_parquet_is_refused_with_the_remedy(imported):
    (imported.folder / "pyarrow.py").write_text("raise ImportError('not here')")

    result = imported.penstock(
        "export", "poi", "--out", "poi.parquet", PYTHONPATH=str(imported.folder)
    )

    assert result.code == 2
    assert result.err == (
        "penstock: --format parquet needs pyarrow: pip install 'penstock[parquet]'\n"
    )
    assert not (imported.folder / "poi.parquet").exists()


def test_the_name_of_a_file_says_its_form(imported):
    imported.penstock("export", "poi", "--out", "poi.csv")

    header, *rows = (imported.folder / "poi.csv").read_text("utf-8").splitlines()
    assert header == "id,title,town,country_id,lat,lon,points,updated_at"
    assert len(rows) == len(imported.rows())


def test_formulas_are_marked_for_spreadsheets_and_not_for_programs(imported):
    imported.tamper("update poi set town = ?", "=1+1")

    shown = imported.penstock("export", "poi", "--format", "csv").out
    raw = imported.penstock("export", "poi", "--format", "csv", "--raw").out

    assert ",'=1+1," in shown
    assert ",=1+1," in raw
    assert raw == shown.replace("'=1+1", "=1+1")


NOTES = """\
[datasets.notes]
key = "id"

[datasets.notes.source]
type = "csv"
files = "first.csv"
timeout = "500ms"

[datasets.notes.fields]
id = { type = "int" }
title = { trim = false }
share = { type = "float" }
seen = { type = "timestamp" }
extra = { type = "json" }
"""


@everywhere
def test_a_raw_csv_that_is_imported_again_changes_nothing(file_workshop):
    (file_workshop.folder / "first.csv").write_text(
        "id,title,share,seen,extra\n"
        '1," a, ""b""",0.1,2026-03-01T12:00:00.5Z,"{""b"": [1, 0.5], ""a"": null}"\n'
        '2,=1+1,,2026-03-01,"""text"""\n'
        "3,,-1e-9,,7\n"
        '4,,,,"{broken"\n'
    )
    file_workshop.declare(NOTES)
    first = file_workshop.penstock("run", "notes", "--json").json["records"]

    file_workshop.penstock("export", "notes", "--raw", "--out", "again.csv")
    again = file_workshop.penstock("run", "notes", "--file", "again.csv", "--json")

    assert (first["inserted"], first["quarantined"]) == (3, 1)
    assert again.json["records"]["unchanged"] == again.json["records"]["seen"] == 3
    lines = file_workshop.penstock("export", "notes").out.splitlines()
    extras = [json.loads(line)["extra"] for line in lines]
    assert extras == [{"a": None, "b": [1, 0.5]}, "text", 7]


@pytest.mark.parametrize("store", [Kind.POSTGRES], indirect=True)
def test_a_server_hands_out_the_same_rows_as_a_file(imported, tmp_path_factory):
    beside = Workshop(tmp_path_factory.mktemp("file"), imported.sandbox)
    beside.declare(beside.by_country())
    assert beside.penstock("run", "poi").code == 0

    for form in ("jsonl", "csv"):
        of_server = imported.penstock("export", "poi", "--format", form)
        of_file = beside.penstock("export", "poi", "--format", form)
        assert of_server.out == of_file.out
