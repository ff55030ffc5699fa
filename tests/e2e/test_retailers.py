"""The example of retailers, imported and held against what its generator tells."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.shops import counts_of, only, read_csv
from tests.support.stores import Kind
from tests.support.workshop import Workshop

EXAMPLE = Path(__file__).parents[2] / "examples" / "retailers"
COLUMNS = ("uid", "name", "phone", "region", "points")


def generate(folder: Path, *arguments: str) -> dict[str, Any]:
    """Make files, and return the truth about them."""
    made = subprocess.run(
        [sys.executable, EXAMPLE / "generate.py", "--out", folder, *arguments],
        capture_output=True,
        check=True,
    )
    truth: dict[str, Any] = json.loads(made.stdout)
    return truth


def good_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the good rows in order, each with its place."""
    return [*map(json.loads, (folder / "stored.jsonl").read_text("utf-8").splitlines())]


def lost_rows(good: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return what has to be listed: of the rows with the same uid, all but the last."""
    stored = {each["row"]["uid"]: each for each in good}
    return [
        {
            **{name: str(each[name]) for name in ("file", "line", "offset")},
            "key": uid,
            "kept_file": stored[uid]["file"],
            "kept_line": str(stored[uid]["line"]),
        }
        for each in good
        if each is not stored[uid := each["row"]["uid"]]
    ]


def configure(workshop: Workshop) -> None:
    """Take the example as it is, but for the database and the size of shards."""
    text = (EXAMPLE / "penstock.toml").read_text("utf-8")
    result = text.replace(
        'database = "sqlite:///penstock.db"', workshop.store.declaration()
    )
    result = result.replace('shard    = "64MiB"', 'shard = "256KiB"')
    workshop.config.write_text(result, "utf-8")
    assert workshop.penstock("migrate").code == 0
    assert workshop.penstock("run", "regions").code == 0


@pytest.mark.parametrize(
    ("store", "packed"),
    [(Kind.SQLITE, ["--gzip"]), (Kind.POSTGRES_AND_REDIS, [])],
    indirect=["store"],
    ids=["sqlite, packed", "postgres+redis, plain"],
)
def test_every_row_of_the_example_is_where_it_belongs(file_workshop, packed):
    truth = generate(file_workshop.folder, "--rows", "20000", "--stored", *packed)
    configure(file_workshop)

    ran = file_workshop.penstock(
        *("run", "retailers", "--workers", "2", "--json", "--duplicates", "lost.csv")
    )

    assert ran.code == 0, ran.err
    good = good_rows(file_workshop.folder)
    lost = read_csv(file_workshop.folder / "lost.csv")
    bad = file_workshop.ask("select reason from penstock_quarantine")
    stored = file_workshop.ask(f"select {', '.join(COLUMNS)} from retailers")
    assert {row["uid"]: row for row in stored} == {
        each["row"]["uid"]: each["row"] for each in good
    }
    assert len(lost) == truth["duplicates"]
    assert lost == lost_rows(good)
    assert truth.pop("bad") == Counter(row["reason"] for row in bad)
    assert only(counts_of(ran)) == truth
    assert file_workshop.penstock("audit", "retailers").code == 0


def test_the_same_arguments_make_the_same_bytes(tmp_path):
    folders = [tmp_path / name for name in ("first", "again", "other", "packed")]
    more = [("--seed", "3"), ("--seed", "3"), ("--seed", "4"), ("--gzip",)]
    for folder, arguments in zip(folders, more, strict=True):
        generate(folder, "--rows", "500", *arguments)

    first, again, other, packed = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in folders
    )
    assert first == again
    assert first["retailers-1.csv"] != other["retailers-1.csv"]
    assert packed["retailers-1.csv.gz"].startswith(b"\x1f\x8b")
