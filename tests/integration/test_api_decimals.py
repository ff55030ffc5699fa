"""Decimals, and numbers in documents, have their digits in requests and responses."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from typing import Any

import pytest

from tests.services.databases import new_database
from tests.support.api_client import OF, Client, open_workshop, serving
from tests.support.stores import Kind, PostgresStore, SqliteStore, Store
from tests.support.workshop import Workshop

LONG = "12345678901234567890.12345678901234567890"
PRICES = """\
[datasets.prices]
key = "code"
filter = ["price"]

[datasets.prices.source]
type = "csv"
files = "prices-*.csv"

[datasets.prices.fields]
code = { column = "code", type = "decimal" }
price = { column = "price", type = "decimal", min = 0.1, default = 0.50 }
share = { type = "decimal", local = true }
terms = { column = "terms", type = "json" }

[datasets.offers]
key = "id"
search = ["name"]

[datasets.offers.source]
type = "csv"
files = "offers.csv"

[datasets.offers.fields]
id = { column = "id", type = "int" }
code = { column = "code", type = "decimal", references = "prices.code" }
name = { column = "name" }
"""
RECORDS = f"{OF}/prices/records"
BYTES = {"Content-Type": "application/octet-stream"}


def read(body: bytes) -> Any:
    """Read JSON whose numbers are shown as they were written."""
    return json.loads(body, parse_float=Written, parse_int=Written)


class Written(str):
    __slots__ = ()


@pytest.fixture(scope="module", params=[Kind.SQLITE, Kind.POSTGRES])
def workshop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workshop]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("prices")
        store: Store = SqliteStore(folder)
        if request.param is Kind.POSTGRES:
            server = request.getfixturevalue("postgres_url")
            store = PostgresStore(stack.enter_context(new_database(server)))
        workshop = open_workshop(folder, store, PRICES)
        stack.callback(workshop.clean)
        yield workshop


@pytest.fixture(scope="module")
def process(workshop: Workshop) -> Iterator[Client]:
    with serving(workshop) as client:
        yield client


@pytest.fixture
def api(process: Client) -> Client:
    for row in read(process.get(RECORDS, {"limit": 200}).body)["items"]:
        assert process.delete(f"{RECORDS}/{row['code']}").status == 204
    return process


def store(api: Client, *records: str) -> None:
    response = api.ask("POST", RECORDS, body=f"[{','.join(records)}]".encode())
    assert response.status == 200, response.body


def test_a_decimal_is_served_with_the_digits_it_was_sent_with(api: Client):
    body = f'{{"price": {LONG}, "share": 1.10}}'.encode()
    assert api.ask("PUT", f"{RECORDS}/7.5", body=body).status == 201

    one = api.get(f"{RECORDS}/7.50")
    assert read(one.body) == {
        "code": "7.5",
        "price": LONG,
        "share": "1.10",
        "terms": None,
    }
    assert read(api.get(RECORDS).body)["items"] == [read(one.body)]

    patched = api.ask("PATCH", f"{RECORDS}/7.5", body=b'{"price": 2.500e0}')
    assert patched.status == 200
    assert read(patched.body)["price"] == "2.500"
    assert read(patched.body)["share"] == "1.10"


def test_a_file_brings_its_digits_and_the_same_file_changes_nothing(
    api: Client, workshop: Workshop
):
    cells = {str(at): f"{at}.{'0' * at}5" for at in range(1, 40)} | {"40": LONG}
    rows = [f"{code},{price}," for code, price in cells.items()]
    file = workshop.folder / "prices-1.csv"
    file.write_text("\n".join(["code,price,terms", *rows, ""]))
    imported = workshop.penstock("run", "prices")
    assert "40 inserted" in imported.out + imported.err

    items = [*read(api.get(RECORDS, {"limit": 200}).body)["items"]]
    # another file, which is read again
    (workshop.folder / "prices-2.csv").write_text("code,price,terms\n41,1,\n")
    again = workshop.penstock("run", "prices")

    assert {row["code"]: row["price"] for row in items} == cells
    assert "1 inserted, 0 updated, 40 unchanged" in again.out + again.err


def test_changes_have_keys_that_are_numbers(api: Client):
    store(api, '{"code": 1.10}')

    response = api.get(f"{OF}/prices/changes", {"limit": 1000})

    assert read(response.body)["items"][-1]["key"] == ["1.1"]


def test_keys_are_numbers_of_one_form(api: Client):
    response = api.ask("POST", RECORDS, body=b'[{"code": 1.10}, {"code": 100.0}]')

    assert [item["key"] for item in read(response.body)["items"]] == [
        {"code": "1.1"},
        {"code": "100"},
    ]
    assert api.get(f"{RECORDS}/%2B01.100").status == 200
    assert api.delete(f"{RECORDS}/1.1000").status == 204
    assert api.get(f"{RECORDS}/1.1").status == 404


def test_defaults_and_bounds_are_exact(api: Client):
    store(api, '{"code": 1}', '{"code": 2, "price": 0.1}')

    found = {row["code"]: row["price"] for row in read(api.get(RECORDS).body)["items"]}
    assert found == {"1": "0.50", "2": "0.1"}
    low = api.ask("PUT", f"{RECORDS}/3", body=b'{"price": 0.09999999999999999999}')
    assert (low.status, low.flaws) == (422, {"/price": "range"})


@pytest.mark.parametrize(
    ("number", "code"),
    [('"1.5"', "type"), ("true", "type"), ("1e250", "range"), ("1e-251", "range")],
)
def test_what_is_no_decimal_is_refused(api: Client, number: str, code: str):
    response = api.ask("PUT", f"{RECORDS}/7", body=f'{{"price": {number}}}'.encode())

    assert (response.status, response.flaws) == (422, {"/price": code})


def test_decimals_are_filtered_sorted_and_counted_as_numbers(api: Client):
    prices = ["10", "9", "1.10", "1.1", LONG]
    store(api, *(f'{{"code": {at}, "price": {p}}}' for at, p in enumerate(prices)))

    def codes(**query: Any) -> list[int]:
        return [int(row["code"]) for row in api.walk({"limit": 2, **query}, RECORDS)]

    assert codes(sort="price") == [2, 3, 1, 0, 4]
    assert codes(sort="-price") == [4, 0, 1, 3, 2]
    assert codes(price="eq.1.100") == [2, 3]
    assert codes(price="in.9.0,10") == [0, 1]
    assert codes(price="gte.9.5") == [0, 4]
    (facet,) = read(api.get(f"{OF}/prices/facets", {"by": "price"}).body)["facets"]
    assert {each["value"]: each["rows"] for each in facet["values"]} == {
        **dict.fromkeys(("10", "9", LONG[:-1]), "1"),
        "1.1": "2",
    }


def test_many_decimals_are_counted_in_ranges(api: Client):
    store(api, *(f'{{"code": {at}, "price": {at + 1}.25}}' for at in range(60)))

    (facet,) = read(api.get(f"{OF}/prices/facets", {"by": "price"}).body)["facets"]

    assert facet["values"] == []
    for each in facet["ranges"]:
        start, end = Decimal(each["start"]), Decimal(each["end"])
        inside = [at for at in range(60) if start <= at + Decimal("1.25") < end]
        assert int(each["rows"]) == len(inside)


def test_numbers_in_documents_have_the_digits_they_were_sent_with(api: Client):
    terms = f'{{"a":[1.10,{LONG}],"b":{{"c":1E5,"d":-0.0}}}}'
    shuffled = f'{{"b": {{"d": -0.0, "c": 1E5}}, "a": [1.10, {LONG}]}}'
    body = f'{{"terms": {shuffled}}}'.encode()
    assert api.ask("PUT", f"{RECORDS}/1", body=body).status == 201
    store(api, f'{{"code": 2, "terms": {shuffled}}}', '{"code": 3, "terms": {}}')
    patched = api.ask("PATCH", f"{RECORDS}/3", body=body)
    # another field of a stored document
    again = api.ask("PATCH", f"{RECORDS}/1", body=b'{"price": 1.0}')

    assert patched.status == again.status == 200
    listed = api.get(RECORDS, {"sort": "code"}).body.decode()
    assert listed.count(f'"terms":{terms}') == 3
    lines = api.get(f"{OF}/prices/export", {"format": "jsonl"}).body.decode()
    assert lines.count(f'"terms":{terms}') == 3
    cells = api.get(f"{OF}/prices/export", {"format": "csv"}).body.decode()
    rows = [*csv.DictReader(io.StringIO(cells, newline=""))]
    assert [row["terms"] for row in rows] == [terms] * 3


def test_rows_refer_to_equal_numbers_and_are_found_with_their_digits(
    api: Client, workshop: Workshop
):
    store(api, '{"code": 1.10}', f'{{"code": {LONG}}}')
    rows = ["1,1.1000,bread", f"2,{LONG},bread", f"3,{LONG}1,none", "4,1.1,rolls"]
    file = workshop.folder / "offers.csv"
    file.write_text("\n".join(["id,code,name", *rows, ""]))
    ran = workshop.penstock("run", "offers")
    assert "3 inserted" in ran.out
    assert "1 quarantined" in ran.out

    found = read(api.get(f"{OF}/offers/search", {"q": "bread"}).body)["items"]

    codes = {item["record"]["id"]: item["record"]["code"] for item in found}
    assert codes == {"1": "1.1000", "2": LONG}
    # and the key that is shown is the one that is referred to
    assert api.get(f"{RECORDS}/{codes['2']}").status == 200


def test_a_preview_reads_decimals_as_an_import_would(api: Client):
    body = f"code,price,terms\n1.10,0.5,\n1.1,7,\n{LONG},0.01,\n".encode()

    shown = api.ask("POST", f"{OF}/prices/preview", body=body, headers=BYTES).json

    assert (shown["check"]["rows"], shown["check"]["bad"]) == (3, 1)
    assert shown["check"]["repeated"] == 1
    assert shown["check"]["reasons"][0]["detail"].startswith("0.01 is not in")


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_exports_have_the_digits(api: Client, form: str):
    store(api, f'{{"code": 1, "price": {LONG}}}', '{"code": 2, "price": 1.10}')

    body = api.get(f"{OF}/prices/export", {"format": form}).body

    if form == "csv":
        assert body.decode().split() == [
            "code,price,share,terms",
            f"1,{LONG},,",
            "2,1.10,,",
        ]
    else:
        prices = [read(line)["price"] for line in body.splitlines()]
        assert prices == [LONG, "1.10"]


def test_the_document_describes_decimals(api: Client):
    schemas = api.get("/openapi.json").json["components"]["schemas"]

    price = schemas["PricesBody"]["properties"]["price"]
    assert price["type"] == ["number", "null"]
    assert (price["minimum"], price["default"]) == (0.1, 0.5)
    assert "250" in price["description"]


def test_the_dashboard_shows_the_digits(api: Client):
    store(
        api,
        f'{{"code": 1, "price": {LONG}}}',
        f'{{"code": 2, "price": 1.10, "terms": [1E5, {LONG}]}}',
    )

    html = api.get("/datasets/prices").body.decode()

    assert f">{LONG}<" in html
    assert ">1.10<" in html
    assert f">[1E5, {LONG}]<" in html
