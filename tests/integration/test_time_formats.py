"""Imports from providers whose times are not ISO 8601, as the commands run them."""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.domain.time_formats import format_time
from penstock.entrypoints.cli.app import main
from tests.support.scripted_server import json_reply, scripted_server

CONFIG = """\
[penstock]
database = "{database}"

[datasets.poi]
key = "id"

[datasets.poi.fields]
id = {{ type = "int" }}
t = {{ type = "timestamp", format = "{form}" }}

[datasets.poi.source]
url = "{url}/poi"

[datasets.poi.source.pages]
by = "page"
send = "page"
size = {{ value = 50 }}

{more}
"""
DELTA = """\
[datasets.poi.delta]
send = "since"
field = "t"
format = "{form}"
"""
WINDOWS = """\
[datasets.poi.shards]
window = {{ kind = "time", from = "2026-01-01T00:00:00Z", \
until = "2026-01-03T00:00:00Z", step = "1d", \
send = {{ from = "since", until = "before" }}, format = "{form}", check = "t" }}
"""
CASES = (
    ("%s", "sqlite"),
    ("%Q", "sqlite"),
    ("%d.%m.%Y %H:%M:%S", "sqlite"),
    ("%s", "postgres"),
)
EARLY, LATE = datetime(2026, 1, 1, 5, tzinfo=UTC), datetime(2026, 1, 2, 7, tzinfo=UTC)


class Provider:
    """Rows by their id, and requests that are answered as a filter would."""

    def __init__(self, server, form):
        self.url, self.form, self.rows = server.url, form, {}
        server.answers = self.answer

    def answer(self, request):
        query = request.query
        if query["page"] != "1":
            return json_reply([])
        since, before = query.get("since"), query.get("before")
        found = [
            {"id": number, "t": self.stamp(at)}
            for number, at in self.rows.items()
            if (since is None or at >= self.read(since))
            and (before is None or at < self.read(before))
        ]
        return json_reply(found)

    def stamp(self, at):
        written = format_time(at, self.form)
        # as most providers do, a number and not its text
        return int(written) if written.isdigit() else written

    def read(self, text):
        if text.endswith("Z"):
            return datetime.fromisoformat(text)
        if text.isdigit():
            seconds = int(text) / (1000 if self.form == "%Q" else 1)
            return datetime.fromtimestamp(seconds, UTC)
        return datetime.strptime(text, self.form).replace(tzinfo=UTC)


@pytest.fixture(params=CASES, ids="-".join)
def case(request):
    form, store = request.param
    if store == "sqlite":
        return form, "sqlite:///penstock.db"
    return form, request.getfixturevalue("postgres_database")


@pytest.fixture
def database(case):
    return case[1]


@pytest.fixture
def penstock(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments, "--json"])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert (end.value.code or 0) == code, out + err
        return json.loads(out)

    return run


@pytest.fixture
def provider(case):
    with scripted_server() as server:
        yield Provider(server, case[0])


def declare(folder, provider, database, more, **formats):
    form = {"form": provider.form, **formats}
    result = CONFIG.format(
        url=provider.url, database=database, more=more.format(**form), **form
    )
    (folder / "penstock.toml").write_text(result)


def stamps(penstock):
    penstock("export", "poi", "--out", "rows.jsonl")
    rows = [*map(json.loads, Path("rows.jsonl").read_text().splitlines())]
    return {row["id"]: datetime.fromisoformat(row["t"]) for row in rows}


def test_a_delta_and_its_field_are_read_in_the_declared_format(
    tmp_path, penstock, provider, database
):
    declare(tmp_path, provider, database, DELTA)
    provider.rows = {1: EARLY, 2: EARLY}
    penstock("migrate")
    penstock("run", "poi")
    changed = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=1)
    provider.rows[2] = changed

    delta = penstock("run", "poi", "--mode", "delta")

    assert delta["proven"]
    assert delta["records"]["updated"] == delta["records"]["seen"] == 1
    assert stamps(penstock) == {1: EARLY, 2: changed}
    (sample,) = samples(penstock("check", "--connect"))
    assert sample["ok"]


def test_the_check_of_a_time_axis_is_read_in_the_declared_format(
    tmp_path, penstock, provider, database
):
    declare(tmp_path, provider, database, WINDOWS)
    provider.rows = {1: EARLY, 2: LATE}
    penstock("migrate")

    done = penstock("run", "poi")

    assert done["proven"]
    assert done["shards"]["done"] == 2
    assert stamps(penstock) == {1: EARLY, 2: LATE}


@pytest.mark.parametrize("more", [DELTA, WINDOWS], ids=["delta", "windows"])
def test_a_connection_is_checked_by_the_check_of_the_import(tmp_path, penstock, more):
    with scripted_server() as server:
        provider = Provider(server, "%s")
        iso = "%Y-%m-%dT%H:%M:%SZ"
        declare(tmp_path, provider, "sqlite:///penstock.db", more, form=iso)
        provider.rows = {1: EARLY}

        checked = penstock("check", "--connect", code=1)

    (sample,) = samples(checked)
    assert not sample["ok"]
    assert 'declare format = "%s"' in sample["detail"]
    assert "refused by the check of their shard" in sample["detail"]


def samples(checked):
    found = checked["connections"]
    return [each for each in found if each["what"] == "datasets.poi"]
