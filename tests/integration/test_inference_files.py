"""What `init --from` drafts is imported as it stands."""

import csv
import json
import re
import sys
from pathlib import Path

import pytest

from penstock.entrypoints.cli.app import main

ODD = """\
id,land,one,version,number,big,hex,zip,day
1,NO,NO,1.10,12345678901234567890,9007199254740993,12E4,01067,31.1.26
2,SE,NO,1.1,-1,1.5,13E4,00001,2026-01-01T00:00:00.1234567Z
"""
# the text of a file, and its encoding
FILES = {
    "what seems to be something else": (ODD, "utf-8"),
    "a title": ("Shops of May\n\nid;name;x\n1;Ann;Oslo\n2;Ben;Rome\n", "cp1252"),
    "a line of a spreadsheet": ("sep=;\nid;имя\n1;Анна\n2;Борис\n", "cp1251"),
    "UTF-16 without a mark": ("id,name\n1,Zoë\n2,Müller\n", "utf-16-le"),
}


@pytest.fixture
def penstock(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert not end.value.code, out + err
        return out

    return run


@pytest.mark.parametrize("kind", FILES)
def test_every_value_of_a_file_comes_out_as_it_stands(penstock, kind):
    text, encoding = FILES[kind]
    Path("shops.csv").write_bytes(text.encode(encoding))
    penstock("init", "--from", "shops.csv")
    penstock("run", "shops")

    penstock("export", "shops", "--out", "rows.csv", "--raw")

    with Path("rows.csv").open(encoding="utf-8", newline="") as file:
        exported = [*csv.reader(file)][1:]
    rows = [re.split("[,;]", line) for line in text.splitlines()]
    assert exported == [row for row in rows if row[0].isdigit()]


def test_rows_with_broken_bytes_go_to_quarantine_with_their_line(penstock):
    good = "".join(f"{number},Café {number}\n" for number in range(5)).encode()
    bad = b"90,\xe9\n91,\xff\xfe\n92,na\xefve\n"
    Path("shops.csv").write_bytes(b"A title line\nid,name\n" + good + bad)
    drafted = json.loads(penstock("init", "--from", "shops.csv", "--json"))
    done = json.loads(penstock("run", "shops", "--json"))

    penstock("quarantine", "shops", "--export", "bad.csv")

    with Path("bad.csv").open(encoding="utf-8", newline="") as file:
        lines = [int(row["line"]) for row in csv.DictReader(file)]
    assert done["records"]["inserted"] == 5
    assert done["records"]["quarantined"] == 3
    assert lines == [8, 9, 10]
    assert any("characters are no UTF-8" in doubt for doubt in drafted["doubts"])


def test_a_value_that_the_sample_did_not_have_is_not_retyped(penstock):
    path = Path("shops.csv")
    path.write_text("id,code,price\n1,10,1.5\n2,11,2.25\n", encoding="utf-8")
    penstock("init", "--from", "shops.csv")
    rows = "1,10,1.5\n2,00040,2.25\n3,12,1.50\n4,1,1.5\n5,0,2.0\n"
    path.write_text(f"id,code,price\n{rows}", encoding="utf-8")
    done = json.loads(penstock("run", "shops", "--json"))

    penstock("quarantine", "shops", "--export", "bad.csv")

    with Path("bad.csv").open(encoding="utf-8", newline="") as file:
        bad = [(row["field"], row["value"]) for row in csv.DictReader(file)]
    assert done["records"]["inserted"] == 3
    assert bad == [("code", "00040"), ("price", "1.50")]
