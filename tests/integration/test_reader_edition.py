"""What was read by other code is read again, even if nothing else has changed."""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.domain import page_reuse
from penstock.entrypoints.cli.app import main
from tests.support.scripted_server import ReceivedRequest, Reply, json_reply
from tests.support.scripted_server import scripted_server as running_server

CONFIG = """\
[penstock]
database = "sqlite:///penstock.db"

[datasets.shops]
key = "id"
fields = {{ id = {{ type = "int" }}, town = {{}} }}

[datasets.shops.source]
{source}
"""
FILES = 'type = "csv"\nfiles = "shops.csv"'
PAGES = """\
url = "{url}/shops"
pages = {{ by = "keyset", send = "after", field = "id", size = {{ value = 3 }} }}
"""
Ask = Callable[[str], list[object]]


@pytest.fixture
def imported(tmp_path: Path, monkeypatch, capsys):
    """Return a function that imports a source and returns one that asks SQL."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shops.csv").write_text("id,town\n1,Ulm\n2,Bonn\n")

    def run(source: str) -> Ask:
        (tmp_path / "penstock.toml").write_text(CONFIG.format(source=source))
        monkeypatch.setattr(sys, "argv", ["penstock", "run", "shops"])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code, capsys.readouterr()

        def ask(statement: str) -> list[object]:
            with closing(sqlite3.connect(tmp_path / "penstock.db")) as database:
                return [first for first, *_ in database.execute(statement)]

        return ask

    return run


def serve(request: ReceivedRequest) -> Reply:
    after = int(request.query.get("after", 0))
    found = [{"id": each, "town": "Ulm"} for each in range(1, 8) if each > after][:3]
    return json_reply(found)


def raise_edition(monkeypatch) -> None:
    edition = page_reuse.READER_EDITION + 1
    monkeypatch.setattr(page_reuse, "READER_EDITION", edition)


def test_an_unchanged_file_is_read_again(imported, monkeypatch):
    pages = "select count(*) from penstock_page"
    imported(FILES)
    assert imported(FILES)(pages) == [1]

    raise_edition(monkeypatch)

    assert imported(FILES)(pages) == [2]
    # and what the new code has read is recognised
    assert imported(FILES)(pages) == [2]


def test_an_unchanged_page_is_read_again(imported, monkeypatch):
    imprints = "select distinct hex(imprint) from penstock_page where seen > 0"
    with running_server() as server:
        server.answers = serve
        source = PAGES.format(url=server.url)
        imported(source)
        known = imported(source)(imprints)
        assert len(known) == 3

        raise_edition(monkeypatch)

        assert len(imported(source)(imprints)) == 6
