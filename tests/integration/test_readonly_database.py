"""A database that this process may read and not write, and output that is full."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_client import Client
from tests.support.workshop import wait_until

# Linux lets root write anything, unless it gives that up
LIKE_OTHERS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
PENSTOCK = [
    *(LIKE_OTHERS if os.getuid() == 0 else []),
    sys.executable,
    "-m",
    "penstock",
]
CONFIG = """
[datasets.poi]
key = "id"

[datasets.poi.source]
type = "csv"
files = "*.csv"

[datasets.poi.fields]
id = { column = "id", type = "int", required = true }
name = { column = "name" }
"""
READING = ["imports", "datasets", "export poi", "audit poi", "quarantine poi", "status"]


def penstock(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PENSTOCK, *command.split()],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with two imported rows, which nobody may change any more."""
    (tmp_path / "penstock.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "poi.csv").write_text("id,name\n1,a\n2,b\n", encoding="utf-8")
    assert penstock(tmp_path, "run poi").returncode == 0
    (tmp_path / "penstock.db").chmod(0o444)
    tmp_path.chmod(0o555)
    yield tmp_path
    tmp_path.chmod(0o755)


def test_commands_that_read_work(folder: Path):
    for command in READING:
        done = penstock(folder, command)
        assert (done.returncode, done.stderr) == (0, ""), command
    rows = penstock(folder, "export poi").stdout.splitlines()
    assert [json.loads(row)["name"] for row in rows] == ["a", "b"]


def test_commands_that_write_say_what_they_need(folder: Path):
    done = penstock(folder, "run poi")

    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "penstock.db: may only be read by this user; this needs a file and a folder "
        "that can be written"
    )


def test_rows_that_the_log_holds_are_read(folder: Path):
    """While somebody who may write has it open, the newest rows are in its log."""
    folder.chmod(0o755)
    (folder / "penstock.db").chmod(0o644)
    writer = sqlite3.connect(folder / "penstock.db")
    writer.execute("update poi set name = 'new' where id = 1")
    writer.commit()
    folder.chmod(0o555)
    (folder / "penstock.db").chmod(0o444)

    rows = penstock(folder, "export poi").stdout.splitlines()
    assert [json.loads(row)["name"] for row in rows] == ["new", "b"]
    writer.close()


def test_the_api_serves_records_and_says_that_it_takes_none(folder: Path):
    process = subprocess.Popen(
        [*PENSTOCK, "serve", "--port", "0", "--json", "--grace", "0"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    client = Client(json.loads(process.stdout.readline())["url"])
    try:
        rows = client.ask("GET", "/api/v1/datasets/poi/records").json["items"]
        assert [row["name"] for row in rows] == ["a", "b"]
        refused = client.ask(
            "PATCH", "/api/v1/datasets/poi/records/1", document={"name": "x"}
        )
        assert (refused.status, refused.json["code"]) == (503, "read-only")
        started = client.ask("POST", "/api/v1/datasets/poi/imports", document={})
        assert (started.status, started.json["code"]) == (503, "read-only")
        wait_until(
            lambda: client.ask("GET", "/api/ready").json["degraded"] == ["writes"]
        )
    finally:
        process.terminate()
    _, errors = process.communicate(timeout=30)
    events = [json.loads(line)["event"] for line in errors.splitlines()]
    assert "database_read_only" in events
    assert "request_failed" not in events


@pytest.mark.parametrize("command", ["imports --json", "datasets", "export poi"])
def test_a_full_disk_is_reported_in_a_sentence(folder: Path, command: str):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PENSTOCK, *command.split()],
            check=False,
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "penstock: output: No space left on device\n",
    )


def test_a_name_that_a_locale_cannot_write_is_reported(tmp_path: Path):
    (tmp_path / "é.csv").write_text("id\n1\n", encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "init", "--from", "é.csv"],
        check=False,
        cwd=tmp_path,
        env={**os.environ, **plain},
        capture_output=True,
    )
    assert done.returncode == 2
    assert b"cannot be written in ascii, which this locale uses" in done.stderr
    assert b"set PYTHONUTF8=1" in done.stderr
