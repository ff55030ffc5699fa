"""A key that many rows share is doubted by `check` and `run`, on screen and in JSON."""

import json
import sys

import pytest

from penstock.entrypoints.cli.app import main

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
files = "shops.csv"
"""


@pytest.fixture
def penstock(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{number},town {number % 7}\n" for number in range(700)]
    (tmp_path / "shops.csv").write_text("id,town\n" + "".join(rows))

    def run(*arguments, key="town"):
        (tmp_path / "penstock.toml").write_text(CONFIG.format(key=key))
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        return capsys.readouterr().out

    return run


DOUBT = "the key (town) is not unique: 700 rows have only 7 different keys"


def test_a_key_that_many_rows_share_is_doubted_on_screen(penstock):
    results = [penstock(*each) for each in (["check"], ["check", "--connect"])]
    results.append(penstock("run", "shops"))

    assert all(DOUBT in " ".join(each.split()) for each in results)


def test_a_key_of_its_own_in_each_row_is_not_doubted(penstock):
    results = [penstock(*each, key="id") for each in (["check"], ["run", "shops"])]

    assert not any("different keys" in each for each in results)


def test_a_program_is_reported_too(penstock):
    checked = json.loads(penstock("check", "--json"))
    done = json.loads(penstock("run", "shops", "--json"))

    assert DOUBT in checked["notes"][0]
    assert DOUBT in done["doubt"]


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
