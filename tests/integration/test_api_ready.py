"""Whether a process should be asked, and what is not as it should be meanwhile."""

import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from penstock.entrypoints.api.app import build_api
from penstock.entrypoints.api.cache.dataset_versions import POLL_TIMEOUT
from penstock.entrypoints.api.context import AppContext
from penstock.errors import StoreUnavailable
from penstock.flow.list_records import ListRecords
from penstock.ports.record_access import RecordReader
from tests.conftest import StartRedis
from tests.support.api_client import OF, Client
from tests.support.api_server import Running, listening, running_api
from tests.support.auth_server import POI, Folder
from tests.support.postgres import own_schema
from tests.support.workshop import wait_until

RECORDS = f"{OF}/poi/records"


def degraded(client: Any) -> tuple[int, list[str]]:
    response = client.get("/api/ready")
    return response.status, response.json["degraded"]


def test_a_redis_that_is_away_is_named_and_turns_nobody_away(
    tmp_path: Path, own_redis: StartRedis
):
    server = own_redis()
    text = f'[penstock]\ndatabase = "sqlite:///p.db"\nredis = "{server.url}"\n'
    with Folder(tmp_path, text + POI).serve() as client:
        assert degraded(client) == (200, [])

        server.kill()
        wait_until(lambda: degraded(client) == (200, ["redis"]), within=5)
        assert client.get("/api/ready").json["status"] == "degraded"
        assert client.get(RECORDS).status == 200

        server.start()
        wait_until(lambda: degraded(client) == (200, []), within=10)


def test_a_broker_that_is_away_is_named_and_turns_nobody_away(
    tmp_path: Path, postgres_url: str, own_redis: StartRedis
):
    broker = own_redis()
    with own_schema(postgres_url) as place:
        result = (
            f'[penstock]\ndatabase = "{place.url}"\nschema = "{place.schema}"\n'
            f'engine = "celery"\nbroker = "{broker.url}"\n'
        )
        folder = Folder(tmp_path, result + POI)
        assert folder.penstock("migrate").returncode == 0
        with folder.serve() as client:
            assert degraded(client) == (200, [])

            broker.kill()
            wait_until(lambda: degraded(client) == (200, ["broker"]), within=60)
            assert client.get(RECORDS).status == 200

            broker.start()
            wait_until(lambda: degraded(client) == (200, []), within=60)


def test_a_replica_that_is_away_is_named_and_turns_nobody_away(
    tmp_path: Path, postgres_url: str
):
    with own_schema(postgres_url) as place:
        result = (
            f'[penstock]\ndatabase = "{place.url}"\nschema = "{place.schema}"\n'
            'replicas = ["postgresql://nobody@127.0.0.1:1/nothing"]\n'
        )
        folder = Folder(tmp_path, result + POI)
        assert folder.penstock("migrate").returncode == 0
        with folder.serve() as client:
            wait_until(lambda: degraded(client) == (200, ["replicas"]), within=5)
            assert client.get(RECORDS).status == 200


class Stuck:
    """A database that answers everything but what it is asked at the start."""

    def __init__(self, reads: RecordReader) -> None:
        self._reads = reads
        self.release = threading.Event()
        self.requests = 0

    def secret(self, name: str) -> bytes:
        self.requests += 1
        if not self.release.wait(20):
            raise StoreUnavailable("stuck")
        return self._reads.secret(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reads, name)


def stuck(running: Running) -> tuple[AppContext, Stuck]:
    known = running.api
    reads = Stuck(known.served.reads)
    api = build_api(
        known.penstock,
        replace(known.served, reads=cast("RecordReader", reads)),
        threads=8,
    )
    api.records = ListRecords(
        known.penstock.settings.datasets, cast("RecordReader", reads)
    )
    return api, reads


def test_a_database_that_hangs_keeps_no_server_from_listening(running: Running):
    api, reads = stuck(running)
    begun = time.monotonic()
    with listening(api) as url:
        took = time.monotonic() - begun
        assert Client(url).get("/api/health").status == 200
        reads.release.set()

    assert reads.requests
    assert took < POLL_TIMEOUT + 20


def test_who_shows_a_token_makes_nobody_else_wait_for_the_seal(running: Running):
    api, reads = stuck(running)
    token = running.api.records.cursor_signer.write_number("poi", 0)
    with ExitStack() as stack:
        client = Client(stack.enter_context(listening(api)))
        asking = [
            threading.Thread(
                target=client.get,
                args=(RECORDS,),
                kwargs={"x_consistency_token": token},
            ),
            threading.Thread(target=client.put, args=(f"{RECORDS}/1", {"title": "x"})),
            threading.Thread(target=client.get, args=(f"{OF}/poi/changes",)),
        ]
        for each in asking:
            each.start()
        wait_until(lambda: sum(api.metrics.in_flight.values()) == len(asking))
        begun = time.monotonic()
        assert client.get("/api/health").status == 200
        assert client.get(RECORDS).status == 200
        took = time.monotonic() - begun
        reads.release.set()
        for each in asking:
            each.join()
        # and then it is known
        seen = client.get(RECORDS, x_consistency_token=token)

    assert took < 20
    assert seen.status == 200


def test_a_process_that_cannot_plan_serves(tmp_path: Path):
    """What another process left unplanned is no reason to keep clients waiting."""
    with running_api(tmp_path, 'database = "sqlite:///penstock.db"') as running:
        let_go = threading.Event()
        api = build_api(running.api.penstock, running.api.served, threads=8)
        for _ in range(8):
            # all threads that could look what is to be planned are taken
            api.background.submit_once(lambda: assert_set(let_go), trace_id="test")
        begun = time.monotonic()
        with listening(api) as url:
            took = time.monotonic() - begun
            assert Client(url).get("/api/health").status == 200
            let_go.set()

    assert took < POLL_TIMEOUT + 20


def assert_set(event: threading.Event) -> None:
    assert event.wait(20)
