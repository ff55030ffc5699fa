"""Behind a load balancer, whatever dies: no wrong answer, and it heals by itself."""

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import urllib3

from penstock.ports import Stores
from penstock.settings import load
from tests.conftest import StartPostgres, StartRedis, StartStandby
from tests.services.private import (
    PrivateNginx,
    PrivatePostgres,
    PrivateRedis,
    free_port,
)
from tests.support.builders import last, record, run
from tests.support.postgres import Place, opened
from tests.support.workshop import PENSTOCK

ROWS = 200
CLIENTS = 6
# seconds that each thing is away
AWAY = 1.0

CONFIG = """
[penstock]
database = "{primary}"
replicas = ["{standby}"]
redis = "{redis}"

[datasets.poi]
key = "id"
filter = ["points"]

[datasets.poi.fields]
id = {{ path = "id", type = "int", required = true }}
points = {{ path = "points", type = "int" }}

[datasets.poi.source]
type = "http"
url = "http://127.0.0.1:1/"
"""


@dataclass
class Client:
    """Changes a row of its own again and again, and reads what it wrote."""

    base: str
    number: int
    # what the row holds, as far as we know: more than one where an answer was lost
    possible: set[int] = field(default_factory=lambda: {0})
    token: str | None = None
    wrong: list[str] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._pool = urllib3.PoolManager(num_pools=1, maxsize=1)

    @property
    def url(self) -> str:
        return f"{self.base}/api/v1/datasets/poi/records/{self.number}"

    def go_on(self, stopped: threading.Event) -> None:
        value = 0
        while not stopped.is_set():
            value += 1
            self.write(value)
            self.read()
            self.read_list()

    def write(self, value: int) -> None:
        body = json.dumps({"points": value}).encode()
        headers = {"content-type": "application/json"}
        answer = self._ask("PATCH", self.url, body=body, headers=headers)
        if answer is None:
            # it may have been done before the answer was lost
            self.possible.add(value)
            return
        if json.loads(answer.data)["points"] != value:
            self.wrong.append(f"wrote {value}, answered {answer.data!r}")
        self.possible = {value}
        self.token = answer.headers["x-consistency-token"]

    def read(self) -> None:
        headers = {} if self.token is None else {"x-consistency-token": self.token}
        answer = self._ask("GET", self.url, headers=headers)
        if answer is None:
            return
        found = json.loads(answer.data)["points"]
        if found not in self.possible:
            self.wrong.append(f"read {found}, may be {sorted(self.possible)}")

    def read_list(self) -> None:
        url = f"{self.base}/api/v1/datasets/poi/records?sort=-points&limit=20"
        answer = self._ask("GET", url)
        if answer is None:
            return
        points = [row["points"] for row in json.loads(answer.data)["items"]]
        if len(points) != 20 or points != sorted(points, reverse=True):
            self.wrong.append(f"a list of {points}")

    def _ask(self, method: str, url: str, **how: Any) -> Any:
        try:
            answer = self._pool.request(method, url, retries=False, timeout=30, **how)
        except urllib3.exceptions.HTTPError as error:
            self.wrong.append(f"{method}: no answer at all: {error}")
            return None
        self.statuses[f"{method} {answer.status}"] += 1
        if answer.status == 200:
            return answer
        if answer.status != 503 or "retry-after" not in answer.headers:
            self.wrong.append(f"{method}: {answer.status} {answer.data!r}")
        time.sleep(0.05)
        return None


@dataclass
class Site:
    folder: Path
    base: str
    ports: tuple[int, ...]
    standby: PrivatePostgres
    redis: PrivateRedis
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, port: int) -> None:
        with (self.folder / f"{port}.err").open("ab") as err:
            self.processes[port] = subprocess.Popen(
                [*PENSTOCK, "serve", "--port", str(port)],
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )
        wait_until(lambda: is_ready(port))

    def stop_all(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGKILL)
            process.wait()


def is_ready(port: int) -> bool:
    url = f"http://127.0.0.1:{port}/api/ready"
    try:
        return urllib3.request("GET", url, retries=False, timeout=2).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


@pytest.fixture
def site(
    tmp_path: Path,
    own_postgres: StartPostgres,
    own_standby: StartStandby,
    own_redis: StartRedis,
) -> Iterator[Site]:
    primary, redis = own_postgres(), own_redis()
    place = Place(primary.url, "penstock")
    standby = own_standby(primary)
    config = tmp_path / "penstock.toml"
    config.write_text(
        CONFIG.format(primary=primary.url, standby=standby.url, redis=redis.url)
    )
    poi = load(config, {}).dataset("poi")
    with opened(place) as (stores, _):
        fill(stores, poi)
    ports = (free_port(), free_port())
    with ExitStack() as stack:
        nginx = stack.enter_context(PrivateNginx(*ports))
        site = Site(tmp_path, nginx.url, ports, standby, redis)
        stack.callback(site.stop_all)
        for port in ports:
            site.start(port)
        yield site


def fill(stores: Stores, poi: Any) -> None:
    stores.schema.migrate()
    stores.schema.ensure_table(poi)
    rows = [record(number, 0, of=poi) for number in range(1, ROWS + 1)]
    run(stores, poi, last(*rows))
    stores.schema.maintain(poi)


def lose_a_process(site: Site) -> None:
    port = site.ports[0]
    site.processes[port].send_signal(signal.SIGKILL)
    site.processes[port].wait()
    time.sleep(AWAY)
    site.start(port)


def lose_the_replica(site: Site) -> None:
    site.standby.stop("immediate")
    time.sleep(AWAY)
    site.standby.start()


def lose_redis(site: Site) -> None:
    site.redis.kill()
    time.sleep(AWAY)
    site.redis.start()


@pytest.mark.parametrize("lose", [lose_a_process, lose_the_replica, lose_redis])
def test_what_dies_under_load_costs_nothing_but_a_moment(site: Site, lose):
    clients = [Client(site.base, number) for number in range(1, CLIENTS + 1)]
    stopped = threading.Event()
    threads = [threading.Thread(target=each.go_on, args=(stopped,)) for each in clients]
    for thread in threads:
        thread.start()
    try:
        time.sleep(AWAY)
        lose(site)
        time.sleep(AWAY)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()

    assert [each.wrong for each in clients] == [[]] * CLIENTS
    result = sum((each.statuses for each in clients), Counter())
    assert result["PATCH 200"] > 50
    assert result["GET 200"] > 100
    # and then it is as if nothing had been
    after = [Client(site.base, number + 100) for number in range(1, 4)]
    for client in after:
        for value in range(1, 6):
            client.write(value)
            client.read()
        assert client.wrong == []
        assert client.statuses == {"PATCH 200": 5, "GET 200": 5}
    for port in site.ports:
        assert b"Traceback" not in (site.folder / f"{port}.err").read_bytes()
