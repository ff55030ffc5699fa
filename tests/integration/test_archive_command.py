"""Rows that are gone from their files, archived by a command."""

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.entrypoints.cli.app import main
from tests.support.api_client import OF, serving
from tests.support.shops import lines, shops, some_shops, write
from tests.support.workshop import BUGS, Ran, Workshop, wait_until

Penstock = Callable[..., Ran]
YEAR = 365 * 86_400 * 1_000_000
POINTS = """\
[datasets.points]
key = "id"
archive = {{ after = "365d" }}

[datasets.points.fields]
id = {{ type = "int" }}

[datasets.points.source]
type = "http"
url = "http://127.0.0.1:9/points"

[datasets.points.source.pages]
by = "{by}"
{more}
"""
KEYSET = 'send = "after"\nfield = "id"'


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


def test_maintenance_archives_and_the_api_reads_it(old, tmp_path):
    records = f"{OF}/shops/records"
    with closing(sqlite3.connect(old, isolation_level=None)) as connection:
        # those of the commands have just run
        connection.execute("delete from penstock_task")
    with serving(Workshop(tmp_path)) as api:
        wait_until(lambda: len(api.get(f"{records}?archived=true").items) == 3)

        assert len(api.get(records).items) == 17
        assert api.get(f"{records}/18").status == 404
        assert api.get(f"{records}/18?archived=true").json["id"] == 18
        assert api.get(f"{records}/1?archived=true").status == 404
        assert api.get(f"{records}?archived=maybe").status == 400
        parameters = api.get("/openapi.json").json["paths"][records]["get"][
            "parameters"
        ]
        assert "archived" in [each.get("name") for each in parameters]
        feed = api.get(f"{OF}/shops/changes?limit=1000").items
        assert [each["kind"] for each in feed[-3:]] == ["deleted"] * 3


@pytest.mark.usefixtures("old")
def test_what_an_archive_costs_or_needs_is_noted(penstock):
    assert "archive" not in penstock("check").out
    Path("penstock.toml").write_text(POINTS.format(by="keyset", more=KEYSET))
    assert "full imports write which rows they have seen" in penstock("check").out
    Path("penstock.toml").write_text(POINTS.format(by="page", more='send = "page"'))
    assert "nothing is archived: pages by page pass over" in penstock("check").out


def test_rows_whose_key_is_a_decimal_are_archived_with_their_digits(penstock):
    long = "12345678901234567890.12345678901234567891"
    Path("penstock.toml").write_text(
        '[penstock]\ndatabase = "sqlite:///penstock.db"\n[datasets.prices]\n'
        'key = "code"\narchive = { after = "365d" }\n'
        '[datasets.prices.source]\ntype = "csv"\nfiles = "p.csv"\n'
        '[datasets.prices.fields]\ncode = { type = "decimal", column = "code" }\n'
        'terms = { type = "json", column = "terms" }\n'
    )
    cells = ["code,terms", *(f"{at}.50," for at in range(20))]
    Path("p.csv").write_text("\n".join([*cells, f"{long},[1.10]", ""]))
    assert penstock("run", "prices", "--threads", "1").code == 0
    with closing(sqlite3.connect("penstock.db", isolation_level=None)) as connection:
        connection.execute(
            f"update penstock_sighting set seen_at = seen_at - {2 * YEAR}"
        )
    Path("p.csv").write_text("\n".join([*cells, ""]))
    assert penstock("run", "prices", "--threads", "1").code == 0

    done = json.loads(penstock("archive", "prices", "--json").out)

    assert (done["rows"], done["note"]) == (1, None)
    with closing(sqlite3.connect("penstock.db")) as connection:
        found = connection.execute('select code, terms from "prices:archive"')
        assert found.fetchall() == [(long, "[1.10]")]
