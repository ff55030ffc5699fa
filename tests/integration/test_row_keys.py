"""With `key = "*"`, a row is identified by all of its values: equal rows are one."""

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.domain.jobs import ImportId, ImportStatus
from penstock.domain.mapping.mapper import DIGEST_BYTES
from penstock.entrypoints.cli.app import main
from tests.support.api_client import OF
from tests.support.api_server import Running, form, running_api
from tests.support.builders import rows
from tests.support.postgres import own_schema
from tests.support.scripted_server import json_reply, scripted_server

VISITS = """
[datasets.visits]
key = "*"
missing = { do = "mark", max_drop = 1 }

[datasets.visits.source]
type = "csv"
files = "visits.csv"
null = [""]

[datasets.visits.fields]
at = { type = "timestamp" }
town = {}
fee = { type = "float" }
first = { type = "bool" }
more = { type = "json" }
"""
READINGS = """
[datasets.readings]
key = "*"
source.url = "URL/readings"
source.pages = { by = "page", send = "page", size = { value = SIZE } }
fields = { at = { type = "timestamp" }, level = { type = "float" } }
"""
UNUSED_URL = "http://127.0.0.1:9"

HEADER = "at,town,fee,first,more"
BERN = '2026-01-01T08:00:00Z,Bern,1.50,true,"{""a"": [1, 2]}"'
KOELN = "2026-01-01T08:00:00Z,Köln,,false,"
NOTHING = ",,,false,"
LINES = [BERN, KOELN, BERN, NOTHING, BERN, KOELN]
RECORDS = f"{OF}/visits/records"
AS_JSON = {
    "at": "2026-01-01T08:00:00Z",
    "town": "Bern",
    "fee": 1.5,
    "first": True,
    "more": {"a": [1, 2]},
}


def write_visits(folder: Path, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in [HEADER, *lines])
    (folder / "visits.csv").write_text(text, encoding="utf-8")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request) -> Iterator[str]:
    if request.param == "sqlite":
        yield 'database = "sqlite:///penstock.db"'
        return
    with own_schema(request.getfixturevalue("postgres_url")) as own:
        yield f'database = "{own.url}"\nschema = "{own.schema}"'


@pytest.fixture
def serve(place, tmp_path):
    write_visits(tmp_path, LINES)

    def start(*, url=UNUSED_URL, size=2, visits=VISITS):
        readings = READINGS.replace("URL", url).replace("SIZE", str(size))
        return running_api(tmp_path, place, more=visits + readings)

    return start


@pytest.fixture
def penstock(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CANARY", "x")

    def run(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        assert (end.value.code or 0) == code, shown
        # the API beside it shows its events, too
        results = [line for line in shown.out.splitlines() if line.startswith("{")]
        return json.loads(results[0]) if results else shown.err

    return run


def counts_of(document) -> tuple[int, int, int, int]:
    assert document["proven"]
    counted = document["records"]
    names = ("inserted", "unchanged", "deleted", "duplicates")
    return tuple(counted[name] for name in names)


def keys_of(running: Running) -> dict[object, object]:
    """Return the key of each town, past the cache of the API."""
    declared = running.api.dataset("visits")
    names = [field.name for field in declared.fields]
    records = [
        dict(zip(names, row, strict=True)) for row in rows(running.stores, declared)
    ]
    return {record["town"]: record["row_key"] for record in records}


def test_equal_rows_of_a_file_are_one(serve, penstock, tmp_path):
    with serve() as running:
        assert counts_of(penstock("run", "visits", "--json")) == (3, 0, 0, 3)
        keys = keys_of(running)
        assert all(
            re.fullmatch(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}", str(key))
            for key in keys.values()
        )

        # in another order, and one of them not at all
        write_visits(tmp_path, [NOTHING, BERN, NOTHING])
        assert counts_of(penstock("run", "visits", "--json")) == (0, 2, 1, 1)
        assert keys_of(running) == {town: keys[town] for town in ("Bern", None)}

        penstock("export", "visits", "--out", "export.csv")
        exported = csv.DictReader(Path("export.csv").read_text("utf-8").splitlines())
        assert {row["row_key"] for row in exported} == {keys["Bern"], keys[None]}


def test_the_order_of_the_fields_changes_no_key(serve, penstock):
    with serve() as running:
        penstock("run", "visits", "--json")
        keys = keys_of(running)
    town = "town = {}\n"
    with serve(visits=VISITS.replace(town, "") + town) as running:
        assert counts_of(penstock("run", "visits", "--json")) == (0, 3, 0, 3)
        assert keys_of(running) == keys


def test_other_fields_would_change_each_key(serve, penstock):
    with serve():
        penstock("run", "visits", "--json")
    penstock_toml = Path("penstock.toml")
    declared = penstock_toml.read_text(encoding="utf-8")
    penstock_toml.write_text(declared.replace("town = {}\n", ""), encoding="utf-8")

    refusal = " ".join(penstock("run", "visits", code=2).split())

    assert "datasets.visits.fields: town changed" in refusal
    assert "penstock datasets drop" in refusal


def test_a_record_is_written_under_the_key_of_its_values(serve, penstock):
    with serve() as running:
        client = running.client
        penstock("run", "visits", "--json")
        bern = keys_of(running)["Bern"]
        assert client.get(f"{RECORDS}/{bern}").json == {"row_key": bern, **AS_JSON}

        stored = client.post(RECORDS, [AS_JSON, {**AS_JSON, "town": "Basel"}])
        assert (stored.status, stored.json["created"]) == (200, 1)
        basel = keys_of(running)["Basel"]
        assert [each["key"]["row_key"] for each in stored.json["items"]] == [
            bern,
            basel,
        ]

        assert client.put(f"{RECORDS}/{bern}", AS_JSON).status == 200
        for refused in (
            client.put(f"{RECORDS}/{bern}", {**AS_JSON, "town": "Basel"}),
            client.patch(f"{RECORDS}/{bern}", {"town": "Basel"}),
            client.post(RECORDS, [{**AS_JSON, "town": "Basel", "row_key": bern}]),
        ):
            assert refused.status == 422
            (error,) = refused.json["errors"]
            assert error["pointer"].endswith("/row_key")
            assert f"these values have the key {basel}" in error["detail"]
        assert client.delete(f"{RECORDS}/{basel}").status == 204
        assert "Basel" not in keys_of(running)


STRICT = VISITS.replace('key = "*"', 'key = "*"\nmax_duplicates = 0.1')


def test_an_upload_that_comes_first_says_how_its_rows_are_accepted(serve, tmp_path):
    file = ("file", "visits.csv", (tmp_path / "visits.csv").read_bytes())
    flag = ("accept_duplicates", None, b"true")
    headers = {"Content-Type": "multipart/form-data; boundary=edge"}
    with serve(visits=STRICT) as running:
        path = f"{OF}/visits/imports"
        refused = running.client.ask("POST", path, body=form(file), headers=headers)
        accepted = running.client.ask(
            "POST", path, body=form(flag, file), headers=headers
        )

    assert refused.status == 422
    (error,) = refused.json["errors"]
    assert error["pointer"] == "/file"
    assert error["detail"].endswith("once: send accept_duplicates=true as well")
    assert accepted.status == 202


def test_an_import_that_the_api_begins_fails_by_its_sample(serve):
    with serve(visits=STRICT) as running:
        path = f"{OF}/visits/imports"
        response = running.client.post(path, {})
        import_id = ImportId(response.json["import_id"])
        running.wait_for(import_id, ImportStatus.FAILED)
        note = running.stores.imports.peek(import_id).note
        accepted = running.client.post(path, {"accept_duplicates": True})
        running.wait_for(accepted.json["import_id"], ImportStatus.RUNNING)

    assert "3 of 6 rows (50.0%) are equal to another row" in str(note)


@pytest.mark.parametrize("per_page", [2, 8])
def test_equal_records_of_an_api_are_one(serve, penstock, per_page):
    levels = [1, 2, 2, 2.5, 2, 1.0, 3]
    records = [{"at": "2026-01-01T08:00:00Z", "level": level} for level in levels]

    def answer(request):
        start = (int(request.query["page"]) - 1) * per_page
        return json_reply(records[start : start + per_page])

    with scripted_server() as server:
        server.answers = answer
        with serve(url=server.url, size=per_page) as running:
            ended = penstock("run", "readings", "--json")
            found = running.client.get(f"{OF}/readings/records").items

    assert ended["proven"]
    assert (ended["records"]["seen"], ended["records"]["inserted"]) == (7, 4)
    assert sorted(record["level"] for record in found) == [1, 2, 2.5, 3]


def test_how_many_rows_may_be_equal_can_be_declared(serve, penstock):
    with serve(visits=STRICT):
        refused = " ".join(penstock("run", "visits", code=2).split())

    assert (
        "datasets.visits.key: nothing was imported: in a sample, 3 of 6 rows (50.0%) "
        "are equal to another row, more than max_duplicates = 0.1; to accept them once"
    ) in refused


def test_clients_need_not_know_the_key_of_a_new_record(serve):
    with serve() as running:
        document = running.client.get("/openapi.json").json
    schemas = document["components"]["schemas"]

    assert schemas["Visits"]["properties"]["row_key"]["type"] == "string"
    assert "required" not in schemas["VisitsRow"]
