"""The API inside of the test's own process, so that a test can reach behind it."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from penstock.domain.jobs import ImportId, ImportStatus
from penstock.entrypoints.api.app import build_api, build_app
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.worker.loop import work_in_threads
from penstock.ports import Stores
from penstock.settings import load
from penstock.wiring import open_container
from penstock.wiring.api import open_api_stores
from tests.support.api_client import Client
from tests.support.workshop import wait_until

SECRET = "canary-1f0c7d55"
DATASETS = """\
[budgets.practice]
rate = "5/s"

[datasets.poi]
key = "id"
fields = { id = { path = "ID", type = "int" }, title = "Title" }
source = { url = "http://127.0.0.1:9/poi", budget = "practice", \
headers = { X-Key = "${CANARY}" } }
shards = { country = { kind = "list", send = "country", values = [1, 2, 3] } }

[datasets.news]
key = "id"
fields = { id = { path = "ID", type = "int" }, at = "At" }
source = { url = "http://127.0.0.1:9/news" }
delta = { send = "since", field = "At" }

[datasets.news.shards.window]
kind = "time"
from = "2026-01-01T00:00:00Z"
step = "1d"
send = { from = "from", until = "until" }
check = "At"

[datasets.shops]
key = "uid"
bad = { max_ratio = 1 }

[datasets.shops.source]
type = "csv"
files = "shops-*.csv"
max_bytes = "1MiB"

[datasets.shops.fields]
uid = { column = "uid", required = true }
name = { column = "name", required = true }
points = { column = "points", type = "int", min = 0 }

[api]
rate = "100000/s"
"""


@dataclass(frozen=True)
class Running:
    """An API, a client of it, and all that it works with."""

    api: AppContext
    client: Client
    folder: Path

    @property
    def stores(self) -> Stores:
        return self.api.penstock.stores

    def spooled(self) -> list[Path]:
        """Return the files that clients sent and that are still there."""
        return [each for each in (self.folder / "spool").rglob("*") if each.is_file()]

    def work(self, dataset: str = "shops") -> None:
        """Work all jobs until none is left, as a worker would."""
        datasets = {dataset: self.api.dataset(dataset)}
        penstock = self.api.penstock
        work_in_threads(
            penstock, datasets, threads=1, halt=threading.Event(), until_idle=True
        )
        penstock.sweep()

    def wait_for(self, import_id: int, status: ImportStatus) -> None:
        wanted = ImportId(import_id)
        wait_until(lambda: self.stores.imports.peek(wanted).status is status)

    def cancel_all(self) -> None:
        """Leave nothing behind that another test would go on with."""
        for status in (ImportStatus.PLANNING, ImportStatus.RUNNING):
            for known, _ in self.stores.imports.recent(status=status, limit=50):
                self.stores.imports.cancel(known.id, reason="the test is over")
        for path in self.spooled():
            path.unlink()


@contextmanager
def running_api(folder: Path, result: str, *, more: str = "") -> Iterator[Running]:
    """Serve the datasets above, kept as these settings tell."""
    config = folder / "penstock.toml"
    config.write_text(f"[penstock]\n{result}\n{DATASETS}{more}", encoding="utf-8")
    settings = load(config, {"CANARY": SECRET})
    with ExitStack() as stack:
        penstock = stack.enter_context(open_container(settings, print, threads=8))
        penstock.stores.schema.migrate()
        for each in settings.datasets.values():
            penstock.stores.schema.ensure_table(each)
        clients = stack.enter_context(
            open_api_stores(settings, penstock.emit, threads=10)
        )
        api = build_api(penstock, clients, threads=8)
        url = stack.enter_context(listening(api))
        yield Running(api, Client(url), folder)


@contextmanager
def listening(api: AppContext) -> Iterator[str]:
    door = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        build_app(api), lifespan="on", log_config=None, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        api.close()
        server.should_exit = True
        thread.join()
        door.close()


@dataclass(frozen=True)
class Event:
    """One of the events of a stream; `kind` is empty for a comment."""

    kind: str
    id: str
    data: Any


class Stream:
    """Somebody who follows an import."""

    def __init__(self, client: Client, path: str, headers: Mapping[str, str]) -> None:
        self._line = http.client.HTTPConnection(client.host, client.port, timeout=10)
        self._line.request("GET", path, headers=dict(headers))
        self.response = self._line.getresponse()

    def events(self) -> Iterator[Event]:
        """Yield what comes until the server ends it."""
        while True:
            lines = []
            while (line := self.response.readline().decode().rstrip("\n")) != "":
                lines.append(line)
            if not lines:
                return
            result = dict(each.split(": ", 1) for each in lines if ": " in each)
            if "retry" in result:
                continue
            data = json.loads(result["data"]) if "data" in result else None
            yield Event(result.get("event", ""), result.get("id", ""), data)

    def close(self) -> None:
        self.response.close()
        self._line.close()


def form(*parts: tuple[str, str | None, bytes], end: bool = True) -> bytes:
    """Write a form; a part is its name, the name of its file if any, and content."""
    result = b""
    for name, file, content in parts:
        named = "" if file is None else f'; filename="{file}"'
        result += (
            f'--edge\r\nContent-Disposition: form-data; name="{name}"{named}\r\n'
            "Content-Type: text/csv\r\n\r\n"
        ).encode()
        result += content + b"\r\n"
    return result + (b"--edge--\r\n" if end else b"")


FORM = {"Content-Type": "multipart/form-data; boundary=edge"}
