"""Rows that are gone from their files, archived by a command."""

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.entrypoints.cli.app import main
from tests.support.shops import lines, shops, some_shops, write
from tests.support.workshop import BUGS, Ran

Penstock = Callable[..., Ran]
YEAR = 365 * 86_400 * 1_000_000


@pytest.fixture
def penstock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Penstock:
    """Run a command as its process would, beside a file of 20 shops."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        code = end.value.code
        assert not any(word in err for word in BUGS), err
        return Ran(code if isinstance(code, int) else 0, out, err)

    return run


def declare(*keys: str) -> None:
    Path("penstock.toml").write_text(shops(dataset="\n".join(keys)))


@pytest.fixture
def old(penstock: Penstock) -> Path:
    """Import 20 shops two years ago, and 17 of them now."""
    declare('archive = { after = "365d" }')
    path = Path("penstock.db")
    for count in (20, 17):
        write(Path("a.csv"), lines(some_shops(count)))
        assert penstock("run", "shops", "--threads", "1").code == 0
        if count == 20:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute(
                    f"update penstock_sighting set seen_at = seen_at - {2 * YEAR}"
                )
    return path


@pytest.mark.usefixtures("old")
def test_what_is_shown_is_what_is_archived(penstock):
    shown = json.loads(penstock("archive", "shops", "--dry-run", "--json").out)
    done = json.loads(penstock("archive", "shops", "--json").out)
    assert shown == {**done, "dry_run": True}
    assert (done["rows"], done["missed_by"], done["note"]) == (3, 2, None)
    listed = json.loads(penstock("datasets", "--json").out)
    assert listed["datasets"][0]["rows"] == 17


def test_the_archive_is_a_table(penstock, old):
    archived = penstock("archive", "shops")
    assert archived.out.startswith("Dataset shops: 3 rows archived: last seen at ")
    with closing(sqlite3.connect(old)) as connection:
        found = connection.execute('select count(*) from "shops:archive"').fetchone()
    assert found == (3,)


@pytest.mark.usefixtures("old")
def test_a_refusal_is_an_error(penstock):
    declare('archive = { after = "365d" }', "missing = { max_drop = 0.1 }")
    refused = penstock("archive", "shops")
    assert refused.code == 1
    assert "3 rows were not archived: 15.0% of 20 is more than" in refused.out


def test_a_dataset_without_archive_says_how_to_declare_one(penstock):
    declare()
    refused = penstock("archive", "shops")
    assert refused.code == 2
    assert 'declare: archive = { after = "365d" }' in refused.err
