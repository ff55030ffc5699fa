"""Who may come in, how often, how many at a time, and what nobody may send."""

import asyncio
import http.client
import io
import json
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from penstock.domain.auth_claims import AccessScope, Principal
from penstock.domain.client_rate import ClientRate
from penstock.entrypoints.api.app import all_endpoints
from penstock.entrypoints.api.concurrency.thread_shares import DEADLINES, Lane
from penstock.entrypoints.api.endpoints import Endpoint
from penstock.entrypoints.api.middleware.auth import AccessControl
from penstock.entrypoints.api.middleware.rate_limit import RateLimiter
from penstock.entrypoints.api.params.request_body import BodyMemoryLimit
from penstock.entrypoints.api.request_context import RequestContext, new_trace_ids
from penstock.errors import Unauthenticated
from penstock.ports.auth import Verifier
from penstock.settings.models.api import ApiSettings
from tests.conftest import StartRedis
from tests.support.auth_server import (
    AUTH,
    POI,
    RECORDS,
    Client,
    Folder,
    received,
)
from tests.support.scripted_server import Reply, scripted_server
from tests.support.token_issuer import ANN, AUDIENCE, ISSUER, Issuer, rsa_key, signed
from tests.support.workshop import wait_until

SQLITE = '[penstock]\ndatabase = "sqlite:///penstock.db"\n'
# whoever may ask without a token: nothing here depends on what is stored
OPEN = {
    "/api/health",
    "/api/ready",
    "/api/problems/{code}",
    "/openapi.json",
    "/docs",
    "/docs/{file}",
    "/assets/{file}",
}
GUARDED = [each for each in all_endpoints() if each.scope is not None]


def called(endpoint: Endpoint[Any]) -> str:
    """Write an address in which every part is something that is not there."""
    return re.sub(r"\{[^}]*\}", "1", endpoint.path)


def named(endpoint: Endpoint[Any]) -> str:
    return f"{endpoint.method} {endpoint.path}"


def test_every_endpoint_says_on_purpose_who_may_call_it():
    undecided = [
        named(each)
        for each in all_endpoints()
        if (each.scope is None) != (each.path in OPEN)
    ]
    assert undecided == []


def test_whatever_changes_something_needs_more_than_to_read():
    wrong = [
        named(each)
        for each in GUARDED
        if each.method != "GET" and each.scope is AccessScope.READ
    ]
    assert wrong == []


def test_every_endpoint_that_waits_for_a_store_has_a_lane():
    wrong = [
        named(each)
        for each in GUARDED
        if each.lane is Lane.HEALTH and each.path != "/metrics"
    ]
    assert wrong == []


class Tokens:
    def __init__(self, folder: Folder) -> None:
        self.none = folder.token()
        self.read = folder.token(AccessScope.READ)
        self.write = folder.token(AccessScope.WRITE)
        self.operate = folder.token(AccessScope.OPERATE)

    def lacking(self, scope: AccessScope) -> list[str]:
        """Return tokens that are good, but not for this."""
        others = {
            AccessScope.READ: [],
            AccessScope.WRITE: [self.read, self.operate],
            AccessScope.OPERATE: [self.read, self.write],
        }
        return [self.none, *others[scope]]


@pytest.fixture(scope="module")
def guarded_folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    rate = '[api]\nrate = "10000/s"\n'
    return Folder(tmp_path_factory.mktemp("guarded"), SQLITE + POI + AUTH + rate)


@pytest.fixture(scope="module")
def tokens(guarded_folder: Folder) -> Tokens:
    return Tokens(guarded_folder)


@pytest.fixture(scope="module")
def guarded(guarded_folder: Folder, tokens: Tokens) -> Iterator[Client]:
    """Serve with [auth]."""
    with guarded_folder.serve() as client:
        client.store(1, 2, 3, token=tokens.write)
        yield client


@pytest.fixture(scope="module")
def local_folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    api = '[api]\nbody = "1MiB"\ncors = ["https://app.example.org"]\n'
    return Folder(tmp_path_factory.mktemp("local"), SQLITE + POI + api)


@pytest.fixture(scope="module")
def local(local_folder: Folder) -> Iterator[Client]:
    """Serve this machine only."""
    with local_folder.serve() as client:
        client.store(1, 2, 3)
        yield client


@pytest.fixture(scope="module")
def limited_folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    api = '[api]\nrate = "60/h"\nburst = 3\nproxies = ["127.0.0.1"]\n'
    return Folder(tmp_path_factory.mktemp("limited"), SQLITE + POI + AUTH + api)


@pytest.fixture(scope="module")
def limited(limited_folder: Folder) -> Iterator[Client]:
    """Serve who asks three times, and then once a minute."""
    with limited_folder.serve() as client:
        yield client


class TestTokens:
    @pytest.mark.parametrize("endpoint", GUARDED, ids=named)
    def test_nobody_comes_in_without_one(
        self, guarded: Client, endpoint: Endpoint[Any]
    ):
        response = guarded.ask(endpoint.method, called(endpoint))

        assert response.status == 401
        assert response.code == "unauthenticated"
        assert response.headers["www-authenticate"] == 'Bearer realm="penstock"'

    @pytest.mark.parametrize("endpoint", GUARDED, ids=named)
    def test_nobody_comes_in_with_one_that_is_no_token(
        self, guarded: Client, endpoint: Endpoint[Any]
    ):
        response = guarded.ask(endpoint.method, called(endpoint), token="abc.def.ghi")

        assert response.status == 401
        assert 'error="invalid_token"' in response.headers["www-authenticate"]
        assert b"abc.def" not in response.body

    @pytest.mark.parametrize("endpoint", GUARDED, ids=named)
    def test_nobody_comes_in_with_one_for_something_else(
        self, guarded: Client, tokens: Tokens, endpoint: Endpoint[Any]
    ):
        assert endpoint.scope is not None
        for token in tokens.lacking(endpoint.scope):
            response = guarded.ask(endpoint.method, called(endpoint), token=token)

            assert response.status == 403
            assert response.code == "forbidden"
            assert repr(endpoint.scope.value) in response.json["detail"]
            challenge = response.headers["www-authenticate"]
            assert f'scope="{endpoint.scope}"' in challenge

    @pytest.mark.parametrize("path", ["/api/health", "/api/ready", "/openapi.json"])
    def test_some_things_are_for_all(self, guarded: Client, path: str):
        assert guarded.get(path).status == 200

    @pytest.mark.parametrize(
        "given",
        ["Basic YW5uOmFubg==", "Bearer", "Bearer ", "bearer\tx", "Bearer \xff\xfe", ""],
    )
    def test_what_is_no_bearer_token_is_refused(self, guarded: Client, given: str):
        with guarded.open() as line:
            head = f"GET {RECORDS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            line.sendall(f"{head}Authorization: {given}\r\n\r\n".encode("latin-1"))
            assert received(line).startswith(b"HTTP/1.1 401 ")

    def test_the_scheme_is_written_as_one_likes(self, guarded: Client, tokens: Tokens):
        response = guarded.get(RECORDS, authorization=f"bEARER   {tokens.read}")

        assert response.status == 200

    def test_two_of_them_are_refused(self, guarded: Client, tokens: Tokens):
        with guarded.open() as line:
            head = f"GET {RECORDS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            both = f"Authorization: Bearer {tokens.read}\r\n" * 2
            line.sendall(f"{head}{both}\r\n".encode())
            assert received(line).startswith(b"HTTP/1.1 400 ")

    def test_what_is_retained_is_not_given_to_those_who_may_not_ask(
        self, guarded: Client, tokens: Tokens
    ):
        target = f"{RECORDS}?limit=2"
        first = guarded.get(target, token=tokens.read)
        again = guarded.get(target, token=tokens.read)
        assert first.status == again.status == 200
        hits = guarded.get("/metrics", token=tokens.operate).body.decode()
        assert re.search(r'cache_answers_total\{found="hit"\} [1-9]', hits)

        for given in ({}, {"token": tokens.none}, {"token": "x.y.z"}):
            response = guarded.get(target, **given)
            assert response.status in {401, 403}
            assert b"title 1" not in response.body
            # nor does it say that somebody has asked before
            known = guarded.get(target, if_none_match=first.headers["etag"], **given)
            assert known.status in {401, 403}

    def test_a_method_that_is_not_there_tells_nothing_else(self, guarded: Client):
        response = guarded.ask("PATCH", RECORDS)

        assert response.status == 405
        assert response.headers["allow"] == "GET, HEAD, POST"

    def test_without_keys_nobody_is_let_in_and_nobody_is_to_blame(self, tmp_path: Path):
        auth = f"""
[auth]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
jwks = "http://127.0.0.1:1/jwks.json"
"""
        with Folder(tmp_path, SQLITE + POI + auth).serve() as client:
            response = client.get(RECORDS, token=signed(rsa_key("ours")))
            assert response.status == 503
            assert response.code == "unavailable"
            assert int(response.headers["retry-after"]) >= 1
            ready = client.get("/api/ready")
            assert ready.json["degraded"] == ["keys"]
            assert ready.status == 503

    def test_a_process_is_ready_once_it_has_keys_and_as_long(self, tmp_path: Path):
        with scripted_server() as server:
            issuer = Issuer(server)
            issuer.server.script(Reply(status=503))
            auth = f"""
[auth]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
jwks = "{issuer.url}"
"""
            with Folder(tmp_path, SQLITE + POI + auth).serve() as client:
                ready = client.get("/api/ready")
                assert (ready.status, ready.json["degraded"]) == (503, ["keys"])

                # nobody comes with a token: whoever balances loads sends nobody here
                server.answers = issuer.answer
                wait_until(lambda: client.get("/api/ready").status == 200, within=30)
                assert client.get("/api/ready").json["degraded"] == []
                assert client.get(RECORDS, token=signed(rsa_key("one"))).status == 200


class Hanging(Verifier):
    """Has the key of one token, and waits for an issuer that hangs for all others."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.is_waited_for = threading.Event()

    def cached(self, token: str) -> Principal | None: ...

    def verify_locally(self, token: str) -> Principal | None:
        return ANN if token == "known" else None

    def verify(self, token: str) -> Principal:
        self.is_waited_for.set()
        assert self.release.wait(60)
        raise Unauthenticated(f"no key for {token}")

    def renew(self) -> None: ...

    def has_keys(self) -> bool:
        return True

    def failure(self) -> str | None: ...


def test_a_token_of_a_known_key_waits_for_no_other():
    verifier = Hanging()
    rate = ClientRate(requests=10_000, period=timedelta(seconds=1), burst=10_000)
    settings = ApiSettings(rate=rate, largest_body=1, origins=frozenset(), proxies=())
    gate = AccessControl(settings, verifier, RateLimiter(rate, None))
    endpoint = next(each for each in GUARDED if each.scope is AccessScope.READ)

    async def let_in(token: str) -> str:
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "client": ("127.0.0.1", 1),
            "headers": [(b"authorization", f"Bearer {token}".encode())],
        }
        exchange = RequestContext(
            scope,
            cast("Any", None),
            trace_ids=new_trace_ids(),
            bodies=BodyMemoryLimit(1),
        )
        await gate.authorize(endpoint, scope, exchange)
        return str(scope["principal"])

    async def try_out() -> None:
        others = [asyncio.create_task(let_in(f"unknown{n}")) for n in range(60)]
        await asyncio.to_thread(verifier.is_waited_for.wait, 60)
        assert [await let_in("known") for _ in range(10)] == [ANN.subject] * 10
        assert not any(each.done() for each in others)
        verifier.release.set()
        found = await asyncio.gather(*others, return_exceptions=True)
        assert {type(each) for each in found} == {Unauthenticated}

    asyncio.run(try_out())
    gate.close()


class TestOneMachineOnly:
    @pytest.mark.parametrize(
        "host",
        [
            "localhost",
            "localhost:80",
            "LOCALHOST.",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:8",
        ],
    )
    def test_it_is_served_by_its_own_names(self, local: Client, host: str):
        assert local.get(RECORDS, host=host).status == 200

    @pytest.mark.parametrize(
        "host",
        [
            *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example"),
            *("10.0.0.1", "[2001:db8::1]", "evil.example:8000", "0.0.0.0"),
        ],
    )
    def test_a_page_whose_name_points_here_learns_nothing(
        self, local: Client, host: str
    ):
        for path in (RECORDS, "/api/health", "/metrics"):
            response = local.get(path, host=host)
            assert response.status == 421
            assert response.code == "misdirected"
            assert "127.0.0.1" in response.json["detail"]

    @pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://[bad"])
    def test_a_page_of_another_site_changes_nothing(self, local: Client, origin: str):
        body = b'[{"id": 77, "title": "planted"}]'
        response = local.ask("POST", RECORDS, body=body, origin=origin)

        assert response.status == 403
        assert local.get(f"{RECORDS}/77").status == 404

    def test_a_page_of_this_machine_may(self, local: Client):
        for origin in ("http://localhost:3000", "https://app.example.org", local.url):
            response = local.ask("POST", RECORDS, body=b'[{"id": 1}]', origin=origin)
            assert response.status == 200, response.body


class TestOtherOrigins:
    ORIGIN = "https://app.example.org"

    def test_a_page_that_is_named_may_ask(self, local: Client):
        response = local.get(RECORDS, origin=self.ORIGIN)

        assert response.headers["access-control-allow-origin"] == self.ORIGIN
        assert "origin" in response.headers["vary"]
        exposed = response.headers["access-control-expose-headers"].split(", ")
        assert {"ETag", "Link", "RateLimit", "Retry-After"} <= {*exposed}
        assert "X-Consistency-Token" in exposed
        assert "access-control-allow-credentials" not in response.headers

    def test_it_may_ask_beforehand(self, local: Client):
        response = local.ask(
            "OPTIONS",
            RECORDS,
            origin=self.ORIGIN,
            access_control_request_method="PUT",
            access_control_request_headers="authorization, if-match",
        )

        assert response.status == 204
        assert "PUT" in response.headers["access-control-allow-methods"]
        allowed = response.headers["access-control-allow-headers"].lower().split(", ")
        assert {"authorization", "if-match", "content-type"} <= {*allowed}

    def test_errors_can_be_read_by_it(self, local: Client):
        response = local.get(f"{RECORDS}/nothing", origin=self.ORIGIN)

        assert response.status == 400
        assert response.headers["access-control-allow-origin"] == self.ORIGIN

    def test_others_may_not(self, local: Client):
        for origin in ("https://evil.example", "https://app.example.org.evil.example"):
            response = local.get(RECORDS, origin=origin)
            assert "access-control-allow-origin" not in response.headers
            request = local.ask(
                "OPTIONS",
                RECORDS,
                origin=origin,
                access_control_request_method="GET",
            )
            assert request.status == 405

    def test_without_a_name_nothing_is_said(self, guarded: Client):
        response = guarded.get("/api/health", origin=self.ORIGIN)

        assert [
            each for each in response.headers if each.startswith("access-con")
        ] == []


class TestRates:
    def test_who_asks_too_often_is_reported_how_long_to_wait(
        self, limited: Client, limited_folder: Folder
    ):
        token = limited_folder.token(AccessScope.READ, subject="often")
        # the first is charged to the address: nobody knows the token yet
        found = [limited.get(RECORDS, token=token) for _ in range(6)]

        assert [each.status for each in found] == [200, 200, 200, 429, 429, 429]
        left = [each.headers["ratelimit"] for each in found[:3]]
        assert left[0].startswith('"client";r=2;t=')
        assert left[2].startswith('"client";r=0;t=')
        assert found[0].headers["ratelimit-policy"] == '"client";q=3;w=180'
        refused = found[-1]
        assert refused.code == "rate-limited"
        assert 50 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["ratelimit"].startswith('"client";r=0;t=')

    def test_others_are_not_stopped_by_that(
        self, limited: Client, limited_folder: Folder
    ):
        token = limited_folder.token(AccessScope.READ, subject="seldom")
        response = limited.get(RECORDS, token=token, x_forwarded_for="198.51.100.1")

        assert response.status == 200

    def test_health_is_never_limited(self, limited: Client):
        found = {limited.get("/api/health").status for _ in range(20)}
        ready = {limited.get("/api/ready").status for _ in range(20)}

        assert found == ready == {200}

    def test_who_tries_tokens_is_stopped_by_its_address(self, limited: Client):
        client = {"x_forwarded_for": "203.0.113.7"}
        found = [limited.get(RECORDS, token=f"a.b.{n}", **client) for n in range(5)]

        assert [each.status for each in found] == [401, 401, 401, 429, 429]

    @pytest.mark.parametrize(
        ("method", "target", "client"),
        [
            ("GET", "/api/nothing", "203.0.113.20"),
            ("TRACE", "/api/nothing", "203.0.113.21"),
            ("PATCH", RECORDS, "203.0.113.22"),
            ("DELETE", "/api/health", "203.0.113.23"),
        ],
    )
    def test_who_asks_for_what_there_is_not_is_stopped_too(
        self, limited: Client, method: str, target: str, client: str
    ):
        found = [limited.ask(method, target, x_forwarded_for=client) for _ in range(5)]

        assert {each.status for each in found[:3]} <= {404, 405}
        assert [each.status for each in found[3:]] == [429, 429]

    def test_a_proxy_that_is_trusted_says_for_whom_it_asks(self, limited: Client):
        # what stands before the last stranger is whatever the stranger wrote
        for number in range(3):
            said = f"10.0.0.{number}, 203.0.113.8, 127.0.0.1"
            assert limited.get(RECORDS, x_forwarded_for=said).status == 401
        said = "8.8.8.8, 203.0.113.8"
        assert limited.get(RECORDS, x_forwarded_for=said).status == 429

    def test_an_ipv6_client_is_known_by_its_network(self, limited: Client):
        for number in range(3):
            said = f"2001:db8:1:2::{number}"
            assert limited.get(RECORDS, x_forwarded_for=said).status == 401
        assert limited.get(RECORDS, x_forwarded_for="2001:db8:1:2:9::").status == 429
        assert limited.get(RECORDS, x_forwarded_for="2001:db8:1:3::").status == 401

    def test_malformed_requests_count_too(self, tmp_path: Path):
        api = '[api]\nrate = "60/h"\nburst = 2\n'
        with Folder(tmp_path, SQLITE + POI + api).serve() as client:
            found = [client.get(f"{RECORDS}?limit=0").status for _ in range(3)]
            found.append(client.get(RECORDS).status)

        assert found == [400, 400, 429, 429]

    def test_nobody_learns_what_is_malformed_without_a_token(self, limited: Client):
        said = "203.0.113.31"
        for path in (f"{RECORDS}?limit=0", RECORDS.replace("poi", "no")):
            assert limited.get(path, x_forwarded_for=said).status == 401

    def test_others_are_not_believed(self, tmp_path: Path):
        api = '[api]\nrate = "60/h"\nburst = 2\n'
        with Folder(tmp_path, SQLITE + POI + api).serve() as client:
            found = [
                client.get(RECORDS, x_forwarded_for=f"203.0.113.{number}").status
                for number in range(4)
            ]
            assert client.metric("penstock_http_rate_limited_total") == 2

        assert found == [200, 200, 429, 429]

    def test_processes_count_together_and_go_on_without_redis(
        self, tmp_path: Path, own_redis: StartRedis
    ):
        redis = own_redis()
        api = '[api]\nrate = "60/h"\nburst = 40\nproxies = ["127.0.0.1"]\n'
        folder = Folder(tmp_path, f'{SQLITE}redis = "{redis.url}"\n{POI}{api}')
        with folder.serve() as one, folder.serve() as other:
            both = [one, other] * 30
            found = [each.get(RECORDS).status for each in both]
            assert found.count(200) == 40
            redis.kill()
            begun = time.monotonic()
            ben = {"x_forwarded_for": "203.0.113.9"}
            found = [each.get(RECORDS, **ben).status for each in both]
            # each by its own count
            assert found.count(200) == 60
            assert time.monotonic() - begun < 30
            # who was refused by all is not let in by that
            assert one.get(RECORDS).status == 429


class TestLanes:
    """On PostgreSQL, where a lock makes every question as slow as a test likes."""

    @pytest.fixture
    def folder(self, tmp_path: Path, postgres_database: str) -> Folder:
        config = f'[penstock]\ndatabase = "{postgres_database}"\n{POI}'
        folder = Folder(tmp_path, config)
        assert folder.penstock("migrate").returncode == 0
        return folder

    @pytest.fixture
    def locked(self, postgres_database: str) -> Iterator[psycopg.Connection]:
        """Hold the table of the dataset until the test is over."""
        with psycopg.connect(postgres_database) as connection:
            connection.execute("lock table penstock.poi in access exclusive mode")
            yield connection
            connection.rollback()

    def waiting(self, database: str) -> int:
        """Count the statements of requests that wait; index upkeep waits as well."""
        with psycopg.connect(database, autocommit=True) as server:
            found = server.execute(
                "select count(*) from pg_stat_activity where state = 'active' "
                "and wait_event_type = 'Lock' and datname = current_database() "
                "and query not like '%pg_index%'"
            ).fetchone()
        assert found is not None
        return int(found[0])

    def test_who_leaves_leaves_nothing_behind_in_the_database(
        self, folder: Folder, postgres_database: str, locked: psycopg.Connection
    ):
        with folder.serve() as client:
            client.leave(f"{RECORDS}?limit=7", after=0.5)
            client.leave(f"{RECORDS}/1", after=0.5)
            wait_until(lambda: self.waiting(postgres_database) == 0, within=10)
            assert client.metric("penstock_http_called_off_total") == 2
            assert client.metric("penstock_http_requests_total", status="left") == 2
            wait_until(lambda: client.metric("penstock_http_threads_busy") == 0)

    def test_a_table_that_is_locked_takes_no_thread_from_another_dataset(
        self, tmp_path: Path, postgres_database: str
    ):
        other = POI.replace("datasets.poi", "datasets.other")
        config = f'[penstock]\ndatabase = "{postgres_database}"\n{POI}{other}'
        folder = Folder(tmp_path, config)
        assert folder.penstock("migrate").returncode == 0
        reads = RECORDS.replace("poi", "other")
        with (
            folder.serve() as client,
            psycopg.connect(postgres_database) as connection,
            ThreadPoolExecutor(12) as clients,
        ):
            connection.execute("lock table penstock.poi in access exclusive mode")
            stuck = [clients.submit(client.get, f"{RECORDS}/{n}") for n in range(12)]
            wait_until(lambda: self.waiting(postgres_database) >= 3)
            statuses = [client.get(f"{reads}/{n}").status for n in range(60)]
            # as many again, while those who found no thread have been refused
            statuses += [client.get(f"{reads}?limit={n + 1}").status for n in range(60)]
            connection.rollback()
            for each in stuck:
                each.result()

        assert statuses == [404] * 60 + [200] * 60

    def test_the_last_who_leaves_ends_what_several_requested(
        self, folder: Folder, postgres_database: str, locked: psycopg.Connection
    ):
        with folder.serve() as client, ThreadPoolExecutor(1) as other:
            patient = other.submit(client.get, f"{RECORDS}?limit=7")
            wait_until(lambda: self.waiting(postgres_database) == 1)
            client.leave(f"{RECORDS}?limit=7", after=0.5)
            assert self.waiting(postgres_database) == 1
            locked.rollback()
            assert patient.result().status == 200

    def test_a_change_goes_on_without_its_client(
        self, folder: Folder, postgres_database: str, locked: psycopg.Connection
    ):
        with folder.serve() as client:
            body = b'{"title": "kept"}'
            head = (
                f"PUT {RECORDS}/5 HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            with client.open() as line:
                line.sendall(head.encode() + body)
                wait_until(lambda: self.waiting(postgres_database) == 1)
            time.sleep(0.3)
            locked.rollback()
            wait_until(lambda: client.get(f"{RECORDS}/5").status == 200)

    def test_an_answer_that_takes_too_long_is_reported_in_time(
        self, folder: Folder, postgres_database: str, locked: psycopg.Connection
    ):
        with folder.serve() as client:
            for lane, target in (
                (Lane.SEARCH, "/api/v1/datasets/poi/facets?by=points"),
                (Lane.READS, RECORDS),
            ):
                begun = time.monotonic()
                response = client.get(target)
                took = time.monotonic() - begun
                assert response.status == 504
                assert response.code == "took-too-long"
                longest = DEADLINES[lane].total_seconds()
                assert longest - 0.1 <= took < longest + 20
            wait_until(lambda: self.waiting(postgres_database) == 0, within=10)
        stood_out = [
            each for each in folder.log if each["event"] == "request_stood_out"
        ]
        assert {each["status"] for each in stood_out} == {504}
        assert all("?" not in each["route"] for each in stood_out)

    def test_a_flood_is_refused_early_and_stops_nobody_else(
        self, folder: Folder, postgres_database: str, locked: psycopg.Connection
    ):
        with folder.serve("--threads", "4") as client, ThreadPoolExecutor(80) as many:
            flood = [
                many.submit(client.get, f"/api/v1/datasets/poi/search?q=word{number}")
                for number in range(80)
            ]
            wait_until(lambda: client.metric("penstock_http_refused_total") > 0)
            begun = time.monotonic()
            assert client.metric("penstock_http_threads_busy", lane="search") == 2
            assert client.get("/api/health").status == 200
            assert client.get("/api/ready").status == 200
            assert client.get("/api/v1/datasets").status == 200
            # long before the first of the flood is given up
            assert time.monotonic() - begun < 4
            assert self.waiting(postgres_database) == 2
            found = [each.result() for each in flood]
        refused = [each for each in found if each.status == 503]
        assert {each.status for each in found} == {503, 504}
        assert len(refused) >= 70
        assert {each.code for each in refused} == {"overloaded"}
        assert {each.headers["retry-after"] for each in refused} == {"1"}

    def test_those_who_wait_for_news_hold_no_thread(self, folder: Folder):
        target = "/api/v1/datasets/poi/changes?after=0&wait=5"
        with folder.serve("--threads", "4") as client, ThreadPoolExecutor(40) as many:
            waiting = [many.submit(client.get, target) for _ in range(40)]
            wait_until(lambda: client.metric("penstock_http_feeds") == 40)
            wait_until(lambda: client.metric("penstock_http_threads_busy") == 0)
            assert client.metric("penstock_http_feeds") == 40
            assert client.get(RECORDS).status == 200
            assert {each.result().status for each in waiting} == {200}
            assert client.metric("penstock_http_feeds") == 0


def test_who_leaves_leaves_nothing_behind_in_sqlite(tmp_path: Path):
    folder = Folder(tmp_path, SQLITE + POI)
    with folder.serve() as client:
        client.store(1)
        with closing(sqlite3.connect(tmp_path / "penstock.db")) as file:
            file.execute("alter table poi rename to poi_kept")
            file.execute(
                "create view poi as select * from poi_kept where 0 < ("
                "with recursive n (i) as (select 1 union all "
                "select i + 1 from n where i < 1000000000) select count(*) from n)"
            )
        client.leave(f"{RECORDS}?limit=7", after=1)
        wait_until(lambda: client.metric("penstock_http_called_off_total") == 1)
        begun = time.monotonic()
        wait_until(lambda: client.metric("penstock_http_threads_busy") == 0)
        # the statement itself would take minutes
        assert time.monotonic() - begun < 20

        begun = time.monotonic()
        response = client.get(f"{RECORDS}?limit=8")
        assert response.status == 504
        assert 4.9 <= time.monotonic() - begun < 30
        wait_until(lambda: client.metric("penstock_http_threads_busy") == 0, within=20)


class Received(io.BytesIO):
    """What came, to be read as an answer."""

    def makefile(self, *_: object) -> "Received":
        return self


class TestWhatNobodyMaySend:
    def send(self, client: Client, request: bytes) -> bytes:
        with client.open() as line:
            line.sendall(request)
            return received(line)

    def test_an_address_that_is_too_long(self, local: Client):
        response = local.get(f"{RECORDS}?sort={'a' * 8_200}")

        assert response.status == 414
        assert response.code == "uri-too-long"

    @pytest.mark.parametrize("size", [20_000, 70_000, 200_000])
    def test_whatever_is_too_long_is_reported_as_a_problem(
        self, local: Client, size: int
    ):
        long = "a" * size
        for target, header, status in (
            (f"{RECORDS}?sort={long}", "b", 414),
            (f"/{long}", "b", 414),
            (RECORDS, long, 431),
        ):
            head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nX-Large: {header}\r\n"
            response = self.send(local, f"{head}Connection: close\r\n\r\n".encode())
            answered = http.client.HTTPResponse(Received(response))  # type: ignore[arg-type]
            answered.begin()
            assert answered.status == status
            assert answered.headers["content-type"] == "application/problem+json"
            assert answered.headers["x-content-type-options"] == "nosniff"
            document = json.loads(answered.read())
            assert document["status"] == status
            assert document["trace_id"] == answered.headers["x-trace-id"]

    def test_headers_that_are_too_large(self, local: Client):
        assert local.get(RECORDS, x_large="a" * 16_400).code == "headers-too-large"

    def test_headers_that_are_too_many(self, local: Client):
        many = "".join(f"X-{number}: 1\r\n" for number in range(101))
        head = f"GET /api/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{many}\r\n"

        assert self.send(local, head.encode()).startswith(b"HTTP/1.1 431 ")

    def test_a_head_without_end(self, local: Client):
        with local.open() as line:
            line.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n")
            try:
                for _ in range(40):
                    line.sendall(b"X-More: " + b"a" * 4_000 + b"\r\n")
                    time.sleep(0.002)
            except OSError:
                # hung up on, as it should be
                return
            assert received(line).startswith(b"HTTP/1.1 431 ")

    def test_a_head_that_does_not_come(self, local: Client):
        with ExitStack() as opened:
            parts = [b"", b"GET /api/he", b"\r\n"]
            lines = [opened.enter_context(local.open()) for _ in parts]
            begun = time.monotonic()
            for line, part in zip(lines, parts, strict=True):
                line.sendall(part)
            found = [received(line) for line in lines]

        assert [each[:13] for each in found] == [b"HTTP/1.1 408 "] * 3
        assert 9 < time.monotonic() - begun < 40

    def test_a_body_that_is_too_large(self, local: Client):
        response = local.ask("POST", RECORDS, body=b"[" + b" " * (1024 * 1024) + b"]")

        assert response.status == 413
        assert "1,048,576" in response.json["detail"]

    def test_a_body_that_is_larger_than_it_says(self, local: Client):
        chunks = b"".join(b"10000\r\n" + b" " * 65_536 + b"\r\n" for _ in range(17))
        head = (
            f"POST {RECORDS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

        response = self.send(local, head.encode() + chunks + b"0\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 413 ")

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            (b'[{"id": 1, "title": "a", "title": "b"}]', "/0/title"),
            (b'[{"id": 1}, {"id": 2, "id": 2}]', "/1/id"),
            (
                b'[{"id": 1, "extra": {"a": [{"b/c": 1, "b\\u002fc": 1}]}}]',
                "/0/extra/a/0/b~1c",
            ),
            (b'[{"id": 1, "id": 2' + b" " * 70_000 + b"}]", "/0/id"),
        ],
    )
    def test_a_body_in_which_a_name_stands_twice(
        self, local: Client, body: bytes, pointer: str
    ):
        response = local.ask("POST", RECORDS, body=body)

        assert response.status == 400
        assert response.code == "bad-request"
        (flaw,) = response.json["errors"]
        assert (flaw["pointer"], flaw["code"]) == (pointer, "duplicate")

    def test_a_body_that_is_nested_without_end(self, local: Client):
        response = local.ask("POST", RECORDS, body=b"[" * 100_000 + b"]" * 100_000)

        assert response.status == 400
        assert response.code == "bad-request"

    @pytest.mark.parametrize(
        "target",
        [
            "/api/v1/datasets/poi/records/%00",
            "/api/v1/datasets/poi%2Frecords/5",
            "/api/v1/datasets/poi/records%2F5/6",
            "/%2e%2e/%2e%2e/etc/passwd",
            "//",
            "/a%0d%0ab",
        ],
    )
    def test_addresses_of_nothing(self, local: Client, target: str):
        assert local.get(target).status in {400, 404}

    def test_a_body_that_comes_after_its_refusal_is_no_request(self, local: Client):
        """Not even where it is longer than a head may be, or comes to no end."""
        body = b"x" * 100_000
        head = (
            f"POST {RECORDS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
            f"Content-Length: {len(body) + 1}\r\n\r\n"
        )
        with local.open() as line:
            line.sendall(head.encode())
            refusal = b""
            while not refusal.endswith(b"}"):
                refusal += line.recv(65_536)
            assert refusal.startswith(b"HTTP/1.1 415 ")
            line.sendall(body)
            line.settimeout(0.5)
            with pytest.raises(TimeoutError):
                line.recv(65_536)
            line.settimeout(30)
            line.sendall(b"x")
            line.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")

            assert line.recv(65_536).startswith(b"HTTP/1.1 200 ")

    def test_a_body_where_none_is_read(self, local: Client):
        response = local.ask("POST", "/api/v1/jobs/1/retry", body=b" " * 65)

        assert response.status == 413

    def test_bodies_together_take_no_more_than_there_is_room(self, local: Client):
        """A process of 64 MiB for bodies reads 63 of a MiB at once, and no more."""
        head = (
            f"POST {RECORDS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: 1048576\r\n\r\n"
        )
        with ExitStack() as opened:
            lines = [opened.enter_context(local.open()) for _ in range(70)]
            for line in lines:
                line.sendall(head.encode() + b" " * 1_048_575)
            results = []
            for line in lines:
                line.settimeout(0.2)
                try:
                    results.append(line.recv(13))
                except TimeoutError:
                    results.append(b"waits")
        assert set(results) == {b"waits", b"HTTP/1.1 503 "}
        assert results.count(b"waits") in {63, 64}

        # what they held is free again
        large = b"{" + b" " * 1_000_000 + b"}"
        wait_until(lambda: local.ask("POST", RECORDS, body=large).status == 422)

    @pytest.mark.parametrize(
        "headers",
        [
            {"content_encoding": "gzip"},
            {"content_type": "application/json; charset=utf-16"},
        ],
        ids=["gzip", "utf-16"],
    )
    def test_a_body_that_others_would_read_differently(
        self, local: Client, headers: dict[str, str]
    ):
        response = local.ask("POST", RECORDS, body=b'[{"id": 1}]', **headers)

        assert response.code == "unsupported-media-type"

    def test_a_coding_that_nobody_understands(self, local: Client):
        head = (
            f"POST {RECORDS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: gzip, chunked\r\n"
            '\r\nb\r\n[{"id": 1}]\r\n0\r\n\r\n'
        )

        assert self.send(local, head.encode()).startswith(b"HTTP/1.1 400 ")

    def test_a_request_that_names_no_host(self, local: Client):
        head = b"GET /api/health HTTP/1.1\r\nConnection: close\r\n\r\n"

        assert self.send(local, head).startswith(b"HTTP/1.1 400 ")

    def test_a_form_with_another_boundary_is_not_reported_in_the_log(
        self, local: Client, local_folder: Folder
    ):
        response = local.ask(
            "POST",
            "/api/v1/datasets/poi/imports",
            body=b"--BB\r\n\r\n",
            content_type="multipart/form-data; boundary=ZZ",
        )

        assert response.code == "bad-request"
        assert "boundary" not in local_folder.errors

    def test_what_is_no_http(self, local: Client):
        response = self.send(local, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")

        assert response.startswith(b"HTTP/1.1 400 ")
        assert json.loads(response.partition(b"\r\n\r\n")[2])["code"] == "bad-request"

    @pytest.mark.parametrize(
        "both",
        [
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 4\r\nContent-Length: 5\r\n",
            "Host: evil.example\r\n",
        ],
    )
    def test_what_two_servers_would_read_differently(self, local: Client, both: str):
        head = f"POST {RECORDS} HTTP/1.1\r\nHost: localhost\r\n{both}\r\nabcd"

        response = self.send(local, head.encode().replace(b"\r\nabcd", b"\r\n\r\nabcd"))
        assert response.startswith(b"HTTP/1.1 400 ")

    def test_it_lives_on(self, local: Client, local_folder: Folder):
        assert local.get("/api/health").status == 200
        assert [
            each for each in local_folder.log if each["event"] == "request_failed"
        ] == []


class TestHeaders:
    def test_every_answer_guards_its_reader(self, local: Client):
        for path in (RECORDS, "/api/health", "/nowhere", f"{RECORDS}?limit=0"):
            response = local.get(path).headers
            assert response["x-content-type-options"] == "nosniff"
            assert response["x-frame-options"] == "DENY"
            assert "frame-ancestors 'none'" in response["content-security-policy"]
            assert response["referrer-policy"] == "no-referrer"
            assert re.fullmatch("[0-9a-f]{32}", response["x-trace-id"])
            assert "date" in response
            assert "server" not in response

    def test_trace_ids_never_come_twice(self, local: Client):
        found = {local.get("/api/health").headers["x-trace-id"] for _ in range(20)}

        assert len(found) == 20

    def test_a_trace_goes_on(self, local: Client):
        results = local.get("/api/health", traceparent=f"00-{'ab' * 16}-{'cd' * 8}-01")

        assert results.headers["x-trace-id"] == "ab" * 16


class TestMetrics:
    def test_routes_are_reported_as_they_are_declared(self, local: Client):
        for number in range(3):
            assert local.get(f"{RECORDS}/{number + 1}").status == 200
        assert local.get("/no/such/secret-path").status == 404
        response = local.get("/metrics").body.decode()

        route = "/api/v1/datasets/{dataset}/records/{key}"
        found = f'requests_total{{method="GET",route="{route}",status="2xx"}} '
        assert float(response.partition(found)[2].partition("\n")[0]) >= 3
        assert 'route="none",status="4xx"' in response
        assert "secret-path" not in response
        assert "records/1" not in response

    def test_everything_is_counted(self, local: Client):
        local.get(RECORDS)
        response = local.get("/metrics").body.decode()

        for name in (
            "penstock_http_request_seconds_bucket",
            "penstock_http_in_flight",
            "penstock_http_refused_total",
            "penstock_http_waiting",
            "penstock_http_threads_busy",
            "penstock_http_rate_limited_total",
            "penstock_http_called_off_total",
            "penstock_http_cache_answers_total",
            "penstock_http_cache_bytes",
            "penstock_info",
            "process_cpu_seconds_total",
            "process_open_fds",
        ):
            assert f"\n{name}" in response, name
        assert "_created" not in response

    def test_in_flight_is_nothing_when_nobody_asks(self, local: Client):
        assert local.metric("penstock_http_in_flight", lane="reads") == 0
        # the one who asks
        assert local.metric("penstock_http_in_flight", lane="health") == 1


def test_the_log_tells_of_errors_and_not_of_what_was_requested(tmp_path: Path):
    folder = Folder(tmp_path, SQLITE + POI)
    with folder.serve() as client:
        assert client.get(f"{RECORDS}?points=eq.7").status == 200
        with closing(sqlite3.connect(tmp_path / "penstock.db")) as file:
            file.execute("drop table poi")
        response = client.get(f"{RECORDS}?points=eq.123456789&limit=9")
        assert response.status >= 500
        assert b"sqlite" not in response.body.lower()
        assert client.get("/api/health").status == 200
    events = {each["event"]: each for each in folder.log}
    assert events["request_stood_out"]["route"] == "/api/v1/datasets/{dataset}/records"
    assert events["request_stood_out"]["trace_id"] == response.headers["x-trace-id"]
    assert "no such table" in events["request_stood_out"]["cause"]
    assert "123456789" not in json.dumps(folder.log)
