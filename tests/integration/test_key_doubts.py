"""A key that many rows share is doubted by `check` and `run`, on screen and in JSON."""

import json
import sys
from random import Random

import pytest

from penstock.entrypoints.cli.app import main
from tests.support.scripted_server import json_reply, scripted_server

CONFIG = """\
[penstock]
database = "sqlite:///penstock.db"

[datasets.shops]
key = "{key}"

[datasets.shops.fields]
id = {{ type = "int" }}
town = {{}}

[datasets.shops.source]
type = "csv"
files = "shops*.csv"
"""


@pytest.fixture
def penstock(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{number},town {number % 7}\n" for number in range(700)]
    (tmp_path / "shops.csv").write_text("id,town\n" + "".join(rows))

    def run(*arguments, key="town", declared="", code=0):
        config = CONFIG.format(key=key).replace(f'"{key}"\n', f'"{key}"\n{declared}\n')
        (tmp_path / "penstock.toml").write_text(config)
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert (end.value.code or 0) == code
        shown = capsys.readouterr()
        return " ".join(shown.err.split()) if code == 2 else shown.out

    return run


DOUBT = "the key (town) is not unique: 700 rows have only 7 different keys"
REFUSAL = (
    "693 of 700 rows (99.0%) lost to another row of their key, more than "
    "max_duplicates = 0.1: the key (town) is not unique, as in 'town 0', 'town 1', "
    "'town 2'; "
)


def test_a_key_that_many_rows_share_is_doubted_on_screen(penstock):
    results = [penstock(*each) for each in (["check"], ["check", "--connect"])]

    assert all(DOUBT in " ".join(each.split()) for each in results)


def test_a_key_of_its_own_in_each_row_is_not_doubted(penstock):
    results = [penstock(*each, key="id") for each in (["check"], ["run", "shops"])]

    assert not any("different keys" in each for each in results)


def test_a_program_is_reported_too(penstock):
    checked = json.loads(penstock("check", "--json"))

    assert DOUBT in checked["notes"][0]


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_first_import_of_rows_that_overwrite_each_other_is_refused(penstock, command):
    refused = penstock(command, "shops", code=2)

    assert "datasets.shops.key: nothing was imported: in a sample, " in refused
    assert REFUSAL in refused
    assert "penstock run shops --accept-duplicates" in refused
    assert json.loads(penstock("imports", "--json"))["imports"] == []


def test_keys_of_several_files_are_compared(penstock, tmp_path):
    head, *rows = (tmp_path / "shops.csv").read_text().splitlines(keepends=True)
    (tmp_path / "shops.csv").write_text(head + "".join(rows[:9]))
    for copy in range(7):
        (tmp_path / f"shops-{copy}.csv").write_text(head + "".join(rows[:9]))

    refused = penstock("run", "shops", key="id", code=2)

    assert "in a sample, 18 of 27 rows (66.7%) lost to another row" in refused


def test_an_import_of_rows_that_overwrite_each_other_fails(penstock, tmp_path):
    list_of_shops = tmp_path / "shops.csv"
    written = list_of_shops.read_text()
    list_of_shops.write_text("id,town\n1,somewhere\n")
    penstock("run", "shops")
    list_of_shops.write_text(written)

    ended = json.loads(penstock("run", "shops", "--json", code=1))

    assert (ended["status"], ended["proven"]) == ("failed", False)
    assert REFUSAL in ended["note"]
    # the unchanged file is read again, and no better
    again = penstock("run", "shops", code=1)
    assert REFUSAL in " ".join(again.split())


def test_an_import_may_accept_rows_that_overwrite_each_other(penstock):
    accepted = json.loads(penstock("run", "shops", "--accept-duplicates", "--json"))
    again = json.loads(penstock("run", "shops", "--json", code=1))

    assert accepted["proven"]
    assert accepted["records"]["duplicates"] == 693
    # the files and the rows are the same, but nobody has accepted them
    assert REFUSAL in again["note"]
    assert "--accept-duplicates" in again["note"]


def test_who_plans_an_import_accepts_for_who_works_it(penstock):
    penstock("plan", "shops", "--accept-duplicates")
    penstock("run", "shops")

    (ended,) = json.loads(penstock("imports", "--json"))["imports"]
    assert ended["proven"]


def test_only_full_imports_accept_rows_that_overwrite_each_other(penstock):
    penstock("run", "shops", "--mode", "delta", "--accept-duplicates", code=2)


def test_rows_of_a_log_may_overwrite_each_other(penstock):
    declared = "max_duplicates = 1"
    ended = json.loads(penstock("run", "shops", "--json", declared=declared))

    assert ended["proven"]
    assert ended["records"]["duplicates"] == 693


PAGED = """\
[penstock]
database = "sqlite:///penstock.db"

[datasets.shops]
key = "id"
fields = {{ id = {{ path = "ID", type = "int" }}, town = {{}} }}

[datasets.shops.source]
url = "https://example.org/shops"
pages = {{ by = "keyset", send = "after", field = "{field}", size = {{ value = 10 }} }}
"""


@pytest.mark.parametrize(("field", "doubted"), [("ID", False), ("changed", True)])
def test_a_keyset_that_is_not_the_key_is_doubted(
    tmp_path, monkeypatch, capsys, field, doubted
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "penstock.toml").write_text(PAGED.format(field=field))
    monkeypatch.setattr(sys, "argv", ["penstock", "check"])
    with pytest.raises(SystemExit) as end:
        main()

    assert not end.value.code
    assert ("'changed' is not the key" in capsys.readouterr().out) is doubted


@pytest.mark.parametrize(
    ("check", "is_doubted"), [("", True), (', check = "T"', False)]
)
def test_a_filter_without_a_check_is_doubted(
    tmp_path, monkeypatch, capsys, check, is_doubted
):
    monkeypatch.chdir(tmp_path)
    axis = f'town = {{ kind = "list", send = "t", values = ["Ulm"]{check} }}'
    config = PAGED.format(field="ID") + f"\n[datasets.shops.shards]\n{axis}\n"
    (tmp_path / "penstock.toml").write_text(config)
    monkeypatch.setattr(sys, "argv", ["penstock", "check"])
    with pytest.raises(SystemExit) as end:
        main()

    assert not end.value.code
    shown = capsys.readouterr().out
    assert ("shards.town: sends t and has no check" in shown) is is_doubted


TWICE = Random(7).sample([*range(1500)] * 2, 3000)


@pytest.mark.parametrize(
    ("keys", "by", "lost"),
    [
        ([0, 1, 2] * 1000, 'by = "single"', 2997),
        (TWICE, 'by = "offset", send = "at", size = { value = 100 }', 1500),
        ([*range(3000)], 'by = "offset", send = "at", size = { value = 100 }', 0),
    ],
    ids=["on one page", "across pages", "unique"],
)
def test_records_of_an_api_that_overwrite_each_other_fail_the_import(
    tmp_path, monkeypatch, capsys, keys, by, lost
):
    records = [{"ID": key, "town": str(each)} for each, key in enumerate(keys)]

    def answer(request):
        start = int(request.query.get("at", 0))
        return json_reply(records[start : start + 100] if "at" in by else records)

    with scripted_server() as server:
        server.answers = answer
        config = PAGED.format(field="ID").splitlines()
        config[-2:] = [f'url = "{server.url}/shops"', f"pages = {{ {by} }}"]
        monkeypatch.chdir(tmp_path)
        (tmp_path / "penstock.toml").write_text("\n".join(config))
        monkeypatch.setattr(sys, "argv", ["penstock", "run", "shops", "--json"])
        with pytest.raises(SystemExit) as end:
            main()

    ended = json.loads(capsys.readouterr().out)
    counts = ended["records"]
    assert counts["seen"] == 3000
    assert (counts["inserted"], counts["duplicates"]) == (3000 - lost, lost)
    assert (end.value.code or 0, ended["proven"]) == (int(lost > 0), not lost)
    refusal = f"{lost:,} of 3,000 rows ({lost / 3000:.1%}) lost to another row"
    assert (refusal in (ended["note"] or "")) is bool(lost)
