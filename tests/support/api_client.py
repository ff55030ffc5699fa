"""An API that runs in a process of its own, and a client that hides nothing of it."""

import http.client
import json
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tests.support.workshop import Process, Workshop, wait_until

# every type of field, every kind of rule, and fields that are called like parameters
POI = """\
[datasets.poi]
key = "id"
filter = ["town", "points", "seen", "limit"]
search = ["title", "town"]
geo = ["lat", "lon"]

[datasets.poi.source]
type = "csv"
files = "poi-*.csv"

[datasets.poi.fields]
id = { column = "id", type = "int" }
title = { column = "title", required = true, max_length = 40 }
town = { column = "town" }
points = { column = "points", type = "int", min = 0, max = 1000, default = 0 }
lat = { column = "lat", type = "float", min = -90, max = 90 }
lon = { column = "lon", type = "float", min = -180, max = 180 }
is_open = { column = "is_open", type = "bool" }
day = { column = "day", type = "date" }
seen = { column = "seen", type = "timestamp" }
extra = { column = "extra", type = "json" }
kind = { column = "kind", choices = ["fast", "slow"] }
phone = { column = "phone", pattern = "^[+]?[0-9 ()-]{6,20}$" }
limit = { column = "limit", type = "int" }
note = { type = "text", local = true }
"""
# a key of several fields, and values that must be known elsewhere
SHOPS = """\
[datasets.regions]
key = "code"

[datasets.regions.source]
type = "csv"
files = "regions-*.csv"

[datasets.regions.fields]
code = { column = "code" }
name = { column = "name" }

[datasets.shops]
key = ["region", "name"]
filter = ["opened"]

[datasets.shops.source]
type = "csv"
files = "shops-*.csv"

[datasets.shops.fields]
region = { column = "region", references = "regions.code" }
name = { column = "name" }
opened = { column = "opened", type = "date" }
"""
# more than any test asks for
UNHURRIED = '[api]\nrate = "100000/s"\n'

OF = "/api/v1/datasets"
RECORDS = f"{OF}/poi/records"


@dataclass(frozen=True)
class ApiResponse:
    """An answer as it came."""

    status: int
    # by names in small letters; of several, all with commas
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def items(self) -> list[Any]:
        assert self.status == 200, self.body
        found = self.json["items"]
        assert isinstance(found, list)
        return found

    @property
    def flaws(self) -> dict[str, str]:
        """The code of each flaw by its place."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        return {each["pointer"]: each["code"] for each in self.json["errors"]}


class Client:
    """Asks one server; each question has a connection of its own."""

    def __init__(self, url: str, *, process: Process | None = None) -> None:
        split = urlsplit(url)
        self.host, self.port = split.hostname or "", split.port or 80
        self.url = url
        self.process = process

    def ask(
        self,
        method: str,
        path: str,
        *,
        document: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | list[tuple[str, str]] | None = None,
    ) -> ApiResponse:
        given = dict(headers or {})
        if document is not None:
            body = json.dumps(document).encode()
        if body is not None and "Content-Type" not in given:
            given["Content-Type"] = "application/json"
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request(method, target, body=body, headers=given)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        result: dict[str, str] = {}
        for name, value in response.getheaders():
            known = result.get(name.lower())
            result[name.lower()] = value if known is None else f"{known}, {value}"
        return ApiResponse(response.status, result, content)

    def get(
        self,
        path: str,
        query: Mapping[str, Any] | list[tuple[str, str]] | None = None,
        **headers: str,
    ) -> ApiResponse:
        return self.ask("GET", path, query=query, headers=named(headers))

    def put(self, path: str, document: Any, **headers: str) -> ApiResponse:
        return self.ask("PUT", path, document=document, headers=named(headers))

    def patch(self, path: str, document: Any, **headers: str) -> ApiResponse:
        return self.ask("PATCH", path, document=document, headers=named(headers))

    def post(self, path: str, document: Any, **headers: str) -> ApiResponse:
        return self.ask("POST", path, document=document, headers=named(headers))

    def delete(self, path: str, **headers: str) -> ApiResponse:
        return self.ask("DELETE", path, headers=named(headers))

    def store(self, *documents: Mapping[str, Any], dataset: str = "poi") -> None:
        """Bring records in, which must be accepted."""
        for begin in range(0, len(documents), 1000):
            some = documents[begin : begin + 1000]
            response = self.post(f"{OF}/{dataset}/records", [*some])
            assert response.status == 200, response.body

    def walk(self, query: Mapping[str, Any], path: str = RECORDS) -> Iterator[Any]:
        """Yield all records of a list, page by page."""
        response = self.get(path, query)
        yield from response.items
        while cursor := response.json["page"]["next"]:
            response = self.get(path, {**query, "cursor": cursor})
            yield from response.items

    def empty(self, *datasets: str) -> None:
        """Delete all records, as any client could."""
        for name in datasets:
            described = self.get(f"{OF}/{name}").json
            path = f"{OF}/{name}/records"
            for each in [*self.walk({"limit": 200}, path)]:
                key = [quote(str(each[part]), safe="") for part in described["key"]]
                response = self.delete(f"{path}/{','.join(key)}")
                assert response.status == 204, response.body

    def raw(self, request: bytes) -> ApiResponse:
        """Send bytes that no honest client would."""
        with socket.create_connection((self.host, self.port), timeout=30) as line:
            line.sendall(request)
            response = http.client.HTTPResponse(line)
            response.begin()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return ApiResponse(response.status, headers, response.read())


def named(headers: Mapping[str, str]) -> dict[str, str]:
    """Write `if_match` as it is sent."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


def open_workshop(folder: Path, store: Any, *datasets: str) -> Workshop:
    """Declare datasets in a folder, without a provider."""
    workshop = Workshop(folder, store=store)
    workshop.declare(*datasets, UNHURRIED, lease="60s")
    return workshop


@contextmanager
def serving(workshop: Workshop, *more: str, **environ: str | None) -> Iterator[Client]:
    """Run `penstock serve`, and end it."""
    process = workshop.start(
        "serve", "--port", "0", "--json", "--grace", "0", *more, **environ
    )
    text = workshop.folder / f"{workshop._processes.index(process)}.out"
    wait_until(lambda: b'"url"' in text.read_bytes() or process.poll() is not None)
    assert process.poll() is None, workshop.output_of(process).err
    try:
        yield Client(json.loads(text.read_bytes())["url"], process=process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
