"""The OpenAPI document says what the API does, and a browser shows it offline."""

import json
import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from schemathesis.specs.openapi import definitions

from penstock.entrypoints.api.app import all_endpoints
from penstock.entrypoints.api.openapi.document import PREFIX, build_document
from penstock.entrypoints.api.openapi.schemas import schema_name
from penstock.settings import load
from tests.services.databases import new_database
from tests.services.find import provide_chromium
from tests.support.api_client import (
    OF,
    RECORDS,
    ApiResponse,
    Client,
    open_workshop,
    serving,
)
from tests.support.stores import Kind, PostgresStore, SqliteStore, Store

HERE = Path(__file__).parent / "schemathesis"
# seconds for which it makes up requests on demand
SOAKED = "900"
# what it has found at some time with other seeds, requested again in every run
FOUND = [f"{OF}/poi/suggest?q={quote(each)}" for each in ("²²", "ⓑⓔ", "¼")]
# no more conditions than a list takes, so that any of them may be combined
TRIED = """\
[datasets.poi]
key = "id"
filter = ["town"]
search = ["title", "town"]
geo = ["lat", "lon"]

[datasets.poi.source]
type = "csv"
files = "poi-*.csv"

[datasets.poi.fields]
id = { column = "id", type = "int" }
title = { column = "title", required = true, max_length = 40 }
town = { column = "town" }
points = { column = "points", type = "int", min = 0, max = 100, default = 0 }
lat = { column = "lat", type = "float", min = -90, max = 90 }
lon = { column = "lon", type = "float", min = -180, max = 180 }
is_open = { column = "is_open", type = "bool" }
seen = { column = "seen", type = "timestamp" }
extra = { column = "extra", type = "json" }
kind = { column = "kind", choices = ["fast", "slow"] }
phone = { column = "phone", pattern = "^[0-9]{3,6}$" }
note = { type = "text", local = true }

[datasets.visits]
key = ["region", "code"]

[datasets.visits.source]
type = "csv"
files = "visits-*.csv"

[datasets.visits.fields]
region = { column = "region" }
code = { column = "code", type = "int" }
day = { column = "day", type = "date" }
share = { column = "share", type = "float", min = 0, max = 1 }
"""
VISITS = "region,code,day,share\nnorth,1,2026-01-31,0.5\n"
AUTH = """\
[auth]
issuer = "https://id.example.org/"
audience = "penstock"
secret = "a secret of more than thirty-two bytes"
"""


# the document


def drawn(tmp_path: Path, *tables: str) -> Any:
    config = tmp_path / "penstock.toml"
    config.write_text("\n".join(tables), encoding="utf-8")
    result = build_document(all_endpoints(), load(config, {}))
    return json.loads(json.dumps(result))


def operations(result: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in result["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_the_document_is_openapi(tmp_path: Path):
    for auth in ("", AUTH):
        result = drawn(tmp_path, TRIED, auth)
        definitions.OPENAPI_31_VALIDATOR.validate(result)


def test_every_endpoint_of_the_api_is_in_it(tmp_path: Path):
    result = drawn(tmp_path, TRIED)
    drawn_there = {(method, path) for method, path, _ in operations(result)}
    for endpoint in all_endpoints():
        if endpoint.path.startswith(PREFIX):
            path = endpoint.path.replace("{dataset}", "poi")
            path = re.sub(r"\{(\w+):\w+\}", r"{\1}", path).replace("{key}", "{id}")
            assert (endpoint.method, path) in drawn_there


def test_everything_that_it_refers_to_is_there(tmp_path: Path):
    result = drawn(tmp_path, TRIED, AUTH)
    names = [operation["operationId"] for _, _, operation in operations(result)]
    assert len(names) == len(set(names))
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(result)):
        found = result
        for step in reference.split("/"):
            found = found[step]
    for _, _, operation in operations(result):
        for response in operation["responses"].values():
            for link in response.get("links", {}).values():
                assert link["operationId"] in names


def test_every_variable_of_a_path_is_described(tmp_path: Path):
    for _, path, operation in operations(drawn(tmp_path, TRIED)):
        described = {
            each["name"] for each in operation["parameters"] if each["in"] == "path"
        }
        assert described == set(re.findall(r"\{(\w+)\}", path)), path


def test_operations_are_called_as_methods_of_a_client_are(tmp_path: Path):
    result = drawn(tmp_path, TRIED)
    names = {
        (method, path): operation["operationId"]
        for method, path, operation in operations(result)
    }

    assert names["GET", RECORDS] == "listPoi"
    assert names["POST", RECORDS] == "upsertPoi"
    assert names["GET", f"{RECORDS}/{{id}}"] == "getPoi"
    assert names["DELETE", f"{OF}/visits/records/{{region}},{{code}}"] == "deleteVisits"
    assert names["GET", OF] == "listDatasets"
    for name in names.values():
        assert re.fullmatch(r"[a-z]+([A-Z][a-z0-9]*)*", name), name


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("poi", "Poi"),
        ("charging_points", "ChargingPoints"),
        ("a1", "A1"),
        # two of them must not become the same
        ("a_1", "a_1"),
        ("a__b", "a__b"),
        # nor one of ours
        ("page", "Page_records"),
        ("imports", "Imports_records"),
    ],
)
def test_names_of_datasets_stay_apart(dataset: str, name: str):
    assert schema_name(dataset) == name


def test_datasets_may_be_called_like_anything(tmp_path: Path):
    names = ["page", "count", "json", "problem", "jobs", "imports", "a_1", "a1", "list"]
    tables = [
        f'[datasets.{name}]\nkey = "id"\nfields = {{ id = {{ column = "id" }} }}\n'
        f'source = {{ type = "csv", files = "{name}.csv" }}\n'
        for name in names
    ]
    result = drawn(tmp_path, *tables)

    definitions.OPENAPI_31_VALIDATOR.validate(result)
    ids = [operation["operationId"] for _, _, operation in operations(result)]
    assert len(ids) == len(set(ids))
    assert {*result["components"]["schemas"]} >= {*map(schema_name, names), "Page"}


def test_fields_are_reported_with_their_rules(tmp_path: Path):
    schemas = drawn(tmp_path, TRIED)["components"]["schemas"]
    fields = schemas["PoiBody"]["properties"]

    assert schemas["PoiBody"]["required"] == ["title"]
    assert schemas["PoiRow"]["required"] == ["id", "title"]
    assert "required" not in schemas["PoiPatch"]
    assert fields["id"]["readOnly"] is True
    assert fields["points"]["type"] == ["integer", "null"]
    assert (fields["points"]["minimum"], fields["points"]["maximum"]) == (0, 100)
    assert fields["points"]["default"] == 0
    assert fields["title"]["maxLength"] == 40
    kind = {"type": "string", "enum": ["fast", "slow"]}
    assert fields["kind"]["anyOf"] == [kind, {"type": "null"}]
    phone = fields["phone"]["anyOf"][0]
    assert phone["allOf"] == [{"type": "string", "pattern": "^[0-9]{3,6}$"}]
    assert fields["seen"]["format"] == "date-time"
    assert fields["note"]["description"].startswith("Edited only here")


def test_choices_of_numbers_are_constants(tmp_path: Path):
    table = """\
    [datasets.offers]
    key = "id"
    source = { type = "csv", files = "offers.csv" }

    [datasets.offers.fields]
    id = { column = "id", type = "decimal", choices = [1.5, 2] }
    share = { column = "share", type = "float", choices = [0.5] }
    is_new = { column = "is_new", type = "bool", required = true, choices = [true] }
    size = { column = "size", type = "int", choices = [1, 2] }
    """
    result = drawn(tmp_path, table)
    fields = result["components"]["schemas"]["OffersRow"]["properties"]
    (key,) = [
        each["schema"]
        for each in result["paths"][f"{OF}/offers/records/{{id}}"]["get"]["parameters"]
        if each["in"] == "path"
    ]

    # generators have no enums of them
    half = {"type": "number", "const": 0.5}
    assert fields["share"]["anyOf"] == [half, {"type": "null"}]
    assert fields["is_new"]["anyOf"] == [{"type": "boolean", "const": True}]
    assert [each["const"] for each in key["anyOf"]] == [1.5, 2]
    assert fields["size"]["anyOf"][0]["enum"] == [1, 2]


def test_only_complete_records_have_defaults(tmp_path: Path):
    schemas = drawn(tmp_path, TRIED)["components"]["schemas"]
    points = {
        name: schemas[name]["properties"]["points"].get("default")
        for name in ("Poi", "PoiPatch", "PoiBody", "PoiRow")
    }

    # a generated client would send them with every patch
    assert points == {"Poi": None, "PoiPatch": None, "PoiBody": 0, "PoiRow": 0}


def test_what_a_list_takes_is_reported(tmp_path: Path):
    listed = drawn(tmp_path, TRIED)["paths"][RECORDS]["get"]
    result = {each["name"]: each["schema"] for each in listed["parameters"]}

    assert result["sort"]["enum"] == ["id", "town", "-id", "-town"]
    assert result["town"]["items"]["$ref"].endswith("/TextCondition")
    assert result["limit"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 200,
        "default": 50,
    }
    assert {"cursor", "fields", "Prefer", "If-None-Match"} <= result.keys()
    assert {"ETag", "Link"} <= listed["responses"]["200"]["headers"].keys()
    expected = {"304", "400", "405", "414", "429", "500", "503"}
    assert expected <= listed["responses"].keys()


def test_only_what_a_dataset_has_is_reported_it(tmp_path: Path):
    paths = drawn(tmp_path, TRIED)["paths"]

    for name in ("search", "suggest", "facets"):
        assert f"{OF}/poi/{name}" in paths
        assert f"{OF}/visits/{name}" not in paths


def test_tokens_are_requested_where_they_are_needed(tmp_path: Path):
    openly, guarded = drawn(tmp_path, TRIED), drawn(tmp_path, TRIED, AUTH)

    assert "securitySchemes" not in openly["components"]
    scheme = guarded["components"]["securitySchemes"]["bearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    paths = guarded["paths"]
    assert paths[RECORDS]["get"]["security"] == [{"bearer": ["read"]}]
    assert paths[RECORDS]["post"]["security"] == [{"bearer": ["write"]}]
    assert paths["/api/health"]["get"]["security"] == []
    assert {"401", "403"} <= paths[RECORDS]["get"]["responses"].keys()
    assert "401" not in openly["paths"][RECORDS]["get"]["responses"]


# what it says, tried out


# both databases are tried by `make soak`
@pytest.fixture(
    params=[pytest.param(Kind.SQLITE, marks=pytest.mark.slow), Kind.POSTGRES]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param is Kind.SQLITE:
        yield SqliteStore(tmp_path)
        return
    with new_database(request.getfixturevalue("postgres_url")) as url:
        yield PostgresStore(url)


@pytest.fixture
def tried(store: Store, tmp_path: Path) -> Iterator[Client]:
    workshop = open_workshop(tmp_path, store, TRIED)
    (tmp_path / "visits-1.csv").write_text(VISITS, encoding="utf-8")
    with serving(workshop) as client:
        yield client
        assert client.process is not None
        events = workshop.log_of(client.process)
        assert [each for each in events if each["event"] == "request_failed"] == []
    workshop.clean()


@pytest.mark.timeout(400)
def test_schemathesis_finds_nothing(tried: Client, store: Store, tmp_path: Path):
    tried.store({"id": 1, "title": "²² ⓑⓔ ¼"})

    for target in FOUND:
        assert tried.get(target).status < HTTPStatus.INTERNAL_SERVER_ERROR, target
    try_out(tried, store, tmp_path, "config.toml")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_schemathesis_finds_nothing_with_thousands_of_requests(
    tried: Client,
    store: Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    seed = os.environ.get("PENSTOCK_SEED", str(random.SystemRandom().getrandbits(32)))
    with capsys.disabled():
        sys.stdout.write(f"\nschemathesis with PENSTOCK_SEED={seed}\n")
    options = ("--seed", seed, "--max-time", SOAKED)
    try_out(tried, store, tmp_path, "soak.toml", *options)


def try_out(
    tried: Client, store: Store, folder: Path, config: str, *options: str
) -> None:
    tried.store(
        *({"id": n, "title": f"Point {n}", "lat": n, "lon": n} for n in range(9))
    )
    environ = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "SCHEMATHESIS_HOOKS": "hooks",
        # on one database as it is written, on the other so that changes get through
        **({"WITHOUT_PRECONDITIONS": "1"} if isinstance(store, PostgresStore) else {}),
    }
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("schemathesis"),),
            *("--config-file", str(HERE / config)),
            *("run", f"{tried.url}/openapi.json", "--no-color", *options),
        ],
        env=environ,
        # it leaves files behind
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


class Generated:
    """What a generator makes of the document: a method for each operation."""

    def __init__(self, api: Client) -> None:
        self._api = api
        self._operations = {
            each["operationId"]: (method, path, each)
            for method, path, each in operations(api.get("/openapi.json").json)
        }

    def __call__(self, name: str, *, body: Any = None, **given: Any) -> ApiResponse:
        method, path, operation = self._operations[name]
        query: list[tuple[str, str]] = []
        headers: dict[str, str] = {}
        for each in operation["parameters"]:
            key = each["name"].replace("-", "_").lower()
            if key not in given:
                continue
            value = given.pop(key)
            match each["in"], value:
                case "path", _:
                    path = path.replace(
                        f"{{{each['name']}}}", quote(str(value), safe="")
                    )
                case "header", _:
                    headers[each["name"]] = value
                case _, list() if each.get("explode", True):
                    query += [(each["name"], one) for one in value]
                case _, list():
                    query.append((each["name"], ",".join(value)))
                case _:
                    query.append((each["name"], str(value)))
        assert not given, f"{name} takes no {', '.join(given)}"
        target = f"{path}?{urlencode(query)}" if query else path
        return self._api.ask(method, target, document=body, headers=headers)


def test_a_client_can_be_made_of_it(tried: Client):
    client = Generated(tried)

    row = {"region": "a,b/c", "code": 7, "share": 0.5}
    made = client("upsertVisits", body=[row, {**row, "code": 8}])
    etag = made.json["items"][0]["etag"]
    patched = client(
        "patchVisits", region="a,b/c", code=7, if_match=etag, body={"day": "2026-01-31"}
    )
    assert (patched.status, patched.json["day"]) == (200, "2026-01-31")
    listed = client(
        "listVisits",
        region=["eq.a,b/c"],
        code=["gte.7", "lt.9"],
        sort="-code",
        fields=["code", "day"],
        limit=1,
    )
    assert listed.items == [{"code": 8, "day": None}]
    rest = client(
        "listVisits",
        region=["eq.a,b/c"],
        code=["gte.7", "lt.9"],
        sort="-code",
        cursor=listed.json["page"]["next"],
    )
    assert [each["code"] for each in rest.items] == [7]
    gone = client("deleteVisits", region="a,b/c", code=7)
    assert gone.status == 204
    assert client("getVisits", region="a,b/c", code=7).status == 404


def test_the_examples_of_the_page_work(api: Client):
    page = (Path(__file__).parents[2] / "docs/howto/query-the-api.md").read_text(
        "utf-8"
    )
    commands = re.findall(r"^curl .*$", page, re.MULTILINE)
    assert len(commands) >= 7
    for command in commands:
        result = curl(api, command)
        assert result.status < 300, (command, result.body)


def curl(api: Client, command: str) -> ApiResponse:
    """Ask as the command does, of this server."""
    words = iter(shlex.split(command)[1:])
    method, headers, body, target = "GET", {}, None, ""
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            case "-d":
                body = next(words).encode()
            case _:
                target = word.removeprefix("http://127.0.0.1:8000")
    assert target.startswith("/api/"), command
    return api.ask(method, target, body=body, headers=headers)


# what browsers see


def test_the_document_is_drawn_once_and_known_by_its_version(api: Client):
    body = api.get("/openapi.json")

    assert body.json["openapi"] == "3.1.0"
    etag = body.headers["etag"]
    assert api.get("/openapi.json", if_none_match=etag).status == 304
    assert api.get("/openapi.json", if_none_match='"other"').status == 200


def test_the_pages_come_from_here_alone(api: Client):
    page = api.get("/docs")
    text = page.body.decode()

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "connect-src 'self'" in policy
    assert "http" not in policy
    assert "://" not in text
    # every script is a file
    assert re.findall(r"<script(?! src=)", text) == []
    files = re.findall(r'(?:src|href)="(/docs/[^"]+)"', text)
    assert len(files) == 4
    for each in files:
        response = api.get(each)
        assert response.status == 200
        assert len(response.body) > 100
        again = api.get(each, if_none_match=response.headers["etag"])
        assert (again.status, again.body) == (304, b"")
    for name in ("nothing.js", "docs.html", "..%2Fapp.py", "__init__.py"):
        assert api.get(f"/docs/{name}").status == 404


def test_importing_the_pages_does_not_import_a_framework():
    script = (
        "import sys; from penstock.entrypoints.api import app; "
        "from penstock.entrypoints.api.resources import swagger_ui; "
        "swagger_ui.load('swagger-ui.css'); "
        "sys.exit('fastapi' in sys.modules or 'fastapi_swagger' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_browser_shows_every_operation_without_a_network(api: Client, tmp_path: Path):
    shown = subprocess.run(
        [
            provide_chromium(),
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", f"--user-data-dir={tmp_path}"),
            # nobody else is found
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            *("--enable-logging=stderr", "--virtual-time-budget=20000"),
            *("--dump-dom", f"{api.url}/docs"),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )

    paths = set(re.findall(r'data-path="([^"]+)"', shown.stdout))
    assert paths == set(api.get("/openapi.json").json["paths"])
    # what the page complains of, such as a script that may not run
    assert "CONSOLE" not in shown.stderr, shown.stderr


def test_the_table_of_endpoints_has_one_of_each_kind():
    known = [(each.method, each.path) for each in all_endpoints()]

    assert len(known) == len(set(known))
    for each in all_endpoints():
        assert (each.handle is None) is not (each.read is None), each.path
