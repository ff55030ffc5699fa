"""Old entries of the ledger, shown and removed by commands."""

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
# all old entries of two imports: one page of the older one, its jobs and their claims
GONE = {
    "imports": 1,
    "jobs": 2,
    "pages": 1,
    "claims": 4,
    "rollups": 0,
    "actions": 0,
    "fires": 0,
    "changes": 0,
    "bad_rows": 0,
}
NOTHING = dict.fromkeys(GONE, 0)


@pytest.fixture
def penstock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Penstock:
    """Run a command as its process would, beside a file of 20 shops."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "penstock.toml").write_text(shops())

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        code = end.value.code
        assert not any(word in err for word in BUGS), err
        return Ran(code if isinstance(code, int) else 0, out, err)

    return run


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def old(penstock: Penstock, tmp_path: Path) -> Path:
    """Import two files, each instead of the one before, a long time ago."""
    for count in (20, 21):
        write(tmp_path / "a.csv", lines(some_shops(count)))
        assert penstock("run", "shops", "--threads", "1").code == 0
    path = tmp_path / "penstock.db"
    year = 365 * 86_400 * 1_000_000
    execute(
        path,
        f"update penstock_import set finished_at = finished_at - {year}",
        f"update penstock_claim set ended_at = ended_at - {year}",
    )
    return path


@pytest.mark.usefixtures("old")
def test_a_dry_run_shows_what_is_removed_then(penstock: Penstock):
    shown = penstock("retention", "--dry-run", "--json").json
    assert (shown["dry_run"], shown["removed"]) == (True, GONE)
    assert shown["stays"] == {"newest": 1}
    assert shown["retention"]["imports"] == "90d"

    removed = penstock("retention", "--json").json
    assert (removed["dry_run"], removed["removed"]) == (False, GONE)

    assert penstock("retention", "--dry-run", "--json").json["removed"] == NOTHING
    assert penstock("audit", "shops").code == 0


@pytest.mark.usefixtures("old")
def test_without_json_it_is_a_sentence(penstock: Penstock):
    ran = penstock("retention", "--dry-run")

    assert "1 import, 2 jobs, 1 page, 4 claims" in ran.out
    assert (
        "(imports 90d, changes 30d, pages 30d, quarantine 365d, rollups 30d)" in ran.out
    )
    assert "Stays: 1 old import: the newest of its dataset and mode." in ran.out


def test_migrate_shows_once_what_would_go(penstock: Penstock, old: Path):
    # as in a database of an earlier version
    execute(old, "delete from penstock_retention")
    unseen = penstock("retention", "--dry-run", "--json").json
    assert unseen["begins_at"] is None

    shown = penstock("migrate", "--json").json["retention"]

    assert (shown["dry_run"], shown["removed"]) == (True, GONE)
    assert shown["begins_at"] is not None
    assert "retention" not in penstock("migrate", "--json").json
    assert penstock("retention", "--dry-run", "--json").json["removed"] == GONE


def test_a_new_database_has_nothing_to_show(penstock: Penstock):
    assert "retention" not in penstock("migrate", "--json").json
