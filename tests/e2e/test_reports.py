"""What `run` tells of an import, and of the rows that it could not store."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shops import read_csv
from tests.support.stores import Store, on_a_file_first
from tests.support.workshop import Workshop

COLUMNS = ["file", "line", "offset", "field", "value", "reason", "detail", "key"]
FATES = ("inserted", "updated", "unchanged", "quarantined", "dropped", "duplicates")

DATASET = """\
[datasets.shops]
key = "id"
max_duplicates = 1
{dataset}

[datasets.shops.fields]
id = {{ type = "int" }}
name = {{ required = true, max_length = {longest} }}
phone = {{ pattern = "^[0-9]+$" }}

[datasets.shops.source]
type = "csv"
files = "*.csv"
timeout = "500ms"
"""
# two good rows, one of them twice, an empty line, and a bad row of each kind
DIRTY = """\
id;name;phone;note
1;first;555;

2;"in two
lines";555;
1;again;555;
4;much too long a name;555;
five;fifth;555;
6;sixth;=1+1;
7;seventh
"""


@pytest.fixture
def shop(tmp_path: Path, store: Store) -> Iterator[Workshop]:
    """Lay a dirty file into a folder without a provider."""
    workshop = Workshop(tmp_path, store=store)
    (tmp_path / "shops.csv").write_text(DIRTY)
    workshop.declare(shops())
    yield workshop
    workshop.clean()


def shops(*, dataset: str = "", longest: int = 15) -> str:
    return DATASET.format(dataset=dataset, longest=longest)


def stored(workshop: Workshop) -> dict[int, str]:
    rows = workshop.ask("select id, name from shops")
    return {row["id"]: row["name"] for row in rows}


@on_a_file_first
def test_every_row_of_a_file_is_accounted_for_in_what_is_printed(shop):
    shown = shop.penstock("run", "shops")
    body = shop.penstock("run", "shops", "--json").json

    (line,) = [each for each in shown.out.splitlines() if "seen" in each]
    printed = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", line)}
    assert shown.code == 0
    assert printed["seen"] == sum(printed[fate] for fate in FATES) == 8
    assert printed["quarantined"] == 4
    assert printed["dropped"] == printed["duplicates"] == 1
    assert body["records"]["seen"] == sum(body["records"][fate] for fate in FATES)
    assert stored(shop) == {1: "again", 2: "in two\nlines"}


@on_a_file_first
def test_bad_rows_are_counted_by_reason_at_the_end_of_a_run(shop):
    shown = shop.penstock("run", "shops")
    again = shop.penstock("run", "shops", "--json").json

    table = shown.out.partition("bad rows by reason")[2].splitlines()[2:]
    assert [each.split() for each in table] == [
        ["1", "length", "name"],
        ["1", "pattern", "phone"],
        ["1", "too_few_values", "-"],
        ["1", "type", "id"],
    ]
    # nothing was read the second time, and the same rows are bad
    assert again["import_id"] == 2
    assert again["rejections"] == [
        {"reason": "length", "field": "name", "rows": 1},
        {"reason": "pattern", "field": "phone", "rows": 1},
        {"reason": "too_few_values", "field": None, "rows": 1},
        {"reason": "type", "field": "id", "rows": 1},
    ]


def test_bad_records_of_a_provider_are_counted_by_reason_too(open_workshop):
    workshop = open_workshop(records=400, bad=0.2)
    workshop.declare(workshop.poi())

    shown = workshop.penstock("run", "poi")
    body = workshop.penstock("run", "poi", "--json", "--errors", "bad.csv").json

    rejections = body["rejections"]
    assert sum(each["rows"] for each in rejections) == body["records"]["quarantined"]
    assert {each["reason"] for each in rejections} == {"missing", "range", "type"}
    assert "missing" in shown.out.partition("bad rows by reason")[2]
    assert body["bytes"] is None
    rows = read_csv(workshop.folder / "bad.csv")
    assert len(rows) == body["records"]["quarantined"]
    assert {row["file"] for row in rows} == {""}


def test_a_clean_import_has_no_table(workshop):
    shown = workshop.penstock("run", "poi")
    body = workshop.penstock("run", "poi", "--json").json

    assert "bad rows" not in shown.out
    assert body["rejections"] == []


def test_the_progress_of_files_is_reported_in_bytes_and_rows(shop):
    shown = shop.penstock("run", "shops")
    body = shop.penstock("run", "shops", "--json").json

    size = len(DIRTY) - len(DIRTY.splitlines()[0]) - 1
    last = shown.err.splitlines()[-1]
    assert last.startswith(f"shops full: {size} bytes of {size} bytes  8 rows")
    assert last.endswith("4 bad")
    assert f"1 with {size} bytes of {size} bytes" in shown.out
    assert "request" not in shown.out + shown.err
    assert body["bytes"] == {"done": size, "total": size}


def test_the_progress_of_a_provider_is_reported_in_shards_and_requests(workshop):
    shown = workshop.penstock("run", "poi")

    last = shown.err.splitlines()[-1]
    assert re.match(r"poi full: (\d+)/\1 shards  \d+ pages 400 records", last)
    assert re.search(r"pages +\d+ with \d+ requests", shown.out)


def test_what_a_check_at_the_files_found_is_reported_before_the_import(shop):
    (shop.folder / "unclosed.csv").write_text('id;name;phone;note\n8;"eighth;555;\n')

    shop.declare(shops() + 'unclosed_quote = "row"\n')
    planned = shop.penstock("plan", "shops")
    shown = shop.penstock("run", "shops")
    quiet = shop.penstock("run", "shops", "--json")

    # on a busy machine, some lines of progress follow
    warnings, _, _ = shown.err.partition("Resuming import 1.\n")
    warnings = warnings.splitlines()
    assert planned.err.splitlines() == warnings
    assert "shops.csv and 1 other file: column 'note' is not declared" in warnings
    assert any("delimiter ';' is a guess" in each for each in warnings)
    assert any(each.startswith("unclosed.csv: the quote") for each in warnings)
    assert quiet.err == ""
    assert {
        "remark": "column 'note' is not declared",
        "files": ["shops.csv", "unclosed.csv"],
    } in quiet.json["remarks"]


@on_a_file_first
def test_errors_are_written_with_their_places(shop):
    shop.penstock("run", "shops", "--errors", "bad.csv")

    rows = read_csv(shop.folder / "bad.csv")
    raw = (shop.folder / "shops.csv").read_bytes()
    assert list(rows[0]) == COLUMNS
    assert [(row["file"], row["line"], row["key"]) for row in rows] == [
        ("shops.csv", "7", "4"),
        ("shops.csv", "8", ""),
        ("shops.csv", "9", "6"),
        ("shops.csv", "10", ""),
    ]
    for row in rows:
        at, number = int(row["offset"]), int(row["line"])
        assert raw[:at].count(b"\n") == number - 1
    assert {row["reason"]: (row["field"], row["value"]) for row in rows} == {
        "length": ("name", "much too long a name"),
        "type": ("id", "five"),
        # what a spreadsheet would run is marked
        "pattern": ("phone", "'=1+1"),
        "too_few_values": ("", "7;seventh"),
    }


def test_errors_of_an_import_that_failed_are_written(shop):
    shop.declare(shops(dataset="bad = { max = 2 }"))

    ended = shop.penstock("run", "shops", "--errors", "bad.csv")

    assert ended.code == 1
    assert "bad.max = 2" in ended.out
    assert len(read_csv(shop.folder / "bad.csv")) == 4


@on_a_file_first
def test_rows_that_lost_to_a_later_one_are_listed_also_when_nothing_is_read(shop):
    first = shop.penstock("run", "shops", "--duplicates", "lost.txt")
    again = shop.penstock("run", "shops", "--duplicates", "again.txt")

    assert "duplicates see: lost.txt" in first.out
    assert "neither the files nor the rows have changed" in again.out
    for name in ("lost.txt", "again.txt"):
        (row,) = read_csv(shop.folder / name)
        assert row == {
            "file": "shops.csv",
            "line": "2",
            "offset": "19",
            "key": "1",
            "kept_file": "shops.csv",
            "kept_line": "6",
        }


def test_duplicates_of_an_import_that_failed_are_not_listed(shop):
    shop.declare(shops(dataset="bad = { max = 2 }"))

    ended = shop.penstock("run", "shops", "--duplicates", "lost.csv")

    assert ended.code == 1
    assert "duplicates not listed: the import failed" in ended.out
    assert not (shop.folder / "lost.csv").exists()


def test_the_records_of_a_provider_have_no_duplicates_to_list(workshop):
    refused = workshop.penstock("run", "poi", "--duplicates", "lost.csv")

    assert refused.code == 2
    assert "--duplicates works only with files" in refused.err
    assert workshop.penstock("imports", "--json").json["imports"] == []


@pytest.mark.parametrize("out", ["no/such/folder/bad.csv", "."])
@pytest.mark.parametrize("option", ["--errors", "--duplicates"])
def test_lists_that_cannot_be_written_are_refused_at_once(shop, option, out):
    refused = shop.penstock("run", "shops", option, out, "--json")

    assert refused.code == 2
    assert f"{option} {out}" in refused.json["error"]["message"]
    assert shop.penstock("imports", "--json").json["imports"] == []


def test_quarantine_names_file_and_line(shop):
    shop.penstock("run", "shops", "--errors", "errors.csv")

    shown = shop.penstock("quarantine", "shops")
    body = shop.penstock("quarantine", "shops", "--json").json["rows"]
    shop.penstock("quarantine", "shops", "--export", "bad.csv")

    assert "shops.csv:7 " in shown.out
    assert ("shops.csv", 7) in [(row["file"], row["line"]) for row in body]
    errors, exported = shop.folder / "errors.csv", shop.folder / "bad.csv"
    assert exported.read_bytes() == errors.read_bytes()


def test_a_list_that_is_cut_says_how_to_go_on(shop):
    shop.penstock("run", "shops")

    cut = shop.penstock("quarantine", "shops", "--limit", "3").out
    last = shop.penstock("quarantine", "shops", "--json").json["rows"][2]["id"]
    rest = shop.penstock("quarantine", "shops", "--after", str(last))
    none = shop.penstock("quarantine", "shops", "--after", str(last + 1))

    remedy = f"Continue with: penstock quarantine shops --after {last}\n"
    assert cut.endswith(f"Showing 3; there are more. {remedy}")
    assert "go on" not in rest.out
    assert len(rest.out.splitlines()) == 3
    assert none.out == f"shops has no bad rows after {last + 1}.\n"


@on_a_file_first
def test_an_export_says_which_bad_rows_of_the_report_are_left_out(shop):
    with (shop.folder / "shops.csv").open("a") as file:
        file.write("4;fourth;555;\n")

    run = shop.penstock("run", "shops", "--json").json
    once = shop.penstock("quarantine", "shops", "--export", "bad.jsonl")
    shop.penstock("run", "shops")
    again = shop.penstock("quarantine", "shops", "--export", "bad.jsonl")

    assert run["records"]["quarantined"] == 4
    assert once.out == (
        "Wrote 3 bad rows to bad.jsonl; "
        "1 more of import 1 was replaced by a valid row with the same key.\n"
    )
    # the second import found the files as they were
    assert again.out == once.out.replace("import 1", "import 2")


def test_an_export_of_bad_rows_into_no_folder_is_refused(shop):
    shop.penstock("migrate")
    refused = shop.penstock("quarantine", "shops", "--export", "no/bad.csv", "--json")

    assert refused.code == 2
    assert "--export no/bad.csv" in refused.json["error"]["message"]


@on_a_file_first
def test_rows_of_a_file_are_good_once_the_declaration_is_mended(shop):
    shop.penstock("run", "shops")
    shop.declare(shops(longest=50))

    replayed = shop.penstock("quarantine", "replay", "shops", "--json")
    run = shop.penstock("run", "shops", "--json")

    assert replayed.json == {"accepted": 1, "superseded": 0, "still_bad": 3}
    assert stored(shop)[4] == "much too long a name"
    # the files say the same
    assert run.json["records"]["unchanged"] == 3
    assert run.json["records"]["quarantined"] == 3


@on_a_file_first
def test_a_row_that_cannot_be_read_keeps_its_reason_when_it_is_tried_again(shop):
    # without its file, this row could be taken for one that fits
    (shop.folder / "shops.csv").write_text('id;name;phone;note\n{"id":1,"name":"x"}\n')
    shop.declare(shops(dataset="bad = { max_ratio = 1.0 }"))
    shop.penstock("run", "shops")
    before = shop.penstock("quarantine", "shops", "--json").json["rows"]

    replayed = shop.penstock("quarantine", "replay", "shops", "--json")

    after = shop.penstock("quarantine", "shops", "--json").json["rows"]
    assert replayed.json == {"accepted": 0, "superseded": 0, "still_bad": 1}
    assert [row["detail"] for row in before] == ["1 values, but the file has 4 columns"]
    assert before == after
    assert stored(shop) == {}


@on_a_file_first
def test_a_row_that_a_new_file_brings_mended_is_no_longer_bad(shop):
    shop.penstock("run", "shops")
    (shop.folder / "shops.csv").unlink()
    (shop.folder / "mended.csv").write_text("id,name,phone\n4,short,555\n6,six,=2\n")

    run = shop.penstock("run", "shops", "--json")
    left = shop.penstock("quarantine", "shops", "--json").json["rows"]

    assert run.json["records"]["inserted"] == 1
    assert stored(shop)[4] == "short"
    assert [(row["key"], row["file"]) for row in left] == [([6], "mended.csv")]
