"""`penstock serve` says where, stops without hurting anyone, replaces its dead."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.auth_server import AUTH, POI, RECORDS, Client, Folder, received
from tests.support.workshop import PENSTOCK, happens, wait_until

SQLITE = '[penstock]\ndatabase = "sqlite:///penstock.db"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, SQLITE + POI)


@pytest.fixture
def on_postgres(tmp_path: Path, postgres_database: str) -> Folder:
    config = f'[penstock]\ndatabase = "{postgres_database}"\n{POI}'
    folder = Folder(tmp_path, config)
    assert folder.penstock("migrate").returncode == 0
    return folder


@pytest.fixture
def locked(postgres_database: str) -> Iterator[psycopg.Connection]:
    """Hold the table of the dataset, so that whoever asks for a row waits."""
    with psycopg.connect(postgres_database) as connection:
        connection.execute("lock table penstock.poi in access exclusive mode")
        yield connection
        connection.rollback()


class TestTheAddress:
    def test_it_is_an_event_if_nobody_watches(self, folder: Folder):
        process = folder.start("--grace", "0")
        assert process.stdout is not None
        wait_until(lambda: folder.log)
        process.terminate()
        rest = process.stdout.read()
        process.stdout.close()

        assert process.wait(20) == 0
        assert rest == b""
        assert [line["event"] for line in folder.log] == [
            "server_started",
            "server_stopping",
        ]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", folder.log[0]["url"])

    def test_it_is_a_sentence_on_a_terminal(self, folder: Folder):
        terminal, other_end = os.openpty()
        process = folder.start("--grace", "0", stdout=other_end, stderr=other_end)
        os.close(other_end)
        text = os.read(terminal, 1024).decode()
        process.terminate()
        status = process.wait(20)
        os.close(terminal)

        pattern = r"Serving 1 dataset at http://127\.0\.0\.1:\d+ \(press .* stop\)\s+"
        assert re.fullmatch(pattern, text)
        assert status == 0

    def test_it_may_be_ipv6(self, folder: Folder):
        with folder.serve("--host", "::1") as client:
            assert client.url.startswith("http://[::1]:")
            assert client.get("/api/health").status == 200

    def test_one_that_is_taken_is_reported_in_a_sentence(self, folder: Folder):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = folder.penstock("serve", "--port", str(port))

        assert done.returncode == 2
        assert done.stderr == (
            f"penstock: 127.0.0.1:{port}: the address is already in use; "
            "choose another --port, or 0\n"
        )

    def test_one_of_another_machine_is_reported_in_a_sentence(self, tmp_path: Path):
        folder = Folder(tmp_path, SQLITE + POI + AUTH)
        done = folder.penstock("serve", "--host", "192.0.2.1")

        assert done.returncode == 2
        assert done.stderr.startswith("penstock: 192.0.2.1:8000: this machine has no")

    @pytest.mark.parametrize("host", ["no such host", "a..b", "x" * 300])
    def test_what_is_no_address_is_reported_in_a_sentence(
        self, folder: Folder, host: str
    ):
        done = folder.penstock("serve", "--host", host)

        assert done.returncode == 2
        assert "this is no address of this machine" in done.stderr
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
    @pytest.mark.parametrize("workers", ["1", "2"])
    def test_without_auth_only_this_machine_may_ask(
        self, folder: Folder, host: str, workers: str
    ):
        done = folder.penstock("serve", "--host", host, "--workers", workers)

        assert done.returncode == 2
        assert "without [auth] only this machine may connect" in done.stderr

    def test_with_auth_all_may(self, tmp_path: Path):
        folder = Folder(tmp_path, SQLITE + POI + AUTH)
        with folder.serve("--host", "0.0.0.0") as client:
            assert client.get("/api/health", host="any.example").status == 200


@pytest.mark.parametrize("workers", ["1", "2"])
def test_too_few_files_are_reported_in_a_sentence(folder: Folder, workers: str):
    process = folder.start(
        *("--workers", workers, "--json"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 150)),
    )

    assert process.wait(60) == 2
    assert process.stdout is not None
    process.stdout.close()
    assert "may open 150 files" in folder.errors
    assert "allow it 200 at least" in folder.errors


def test_health_answers_when_there_are_too_many_connections(folder: Folder):
    def allow_few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))

    process = folder.start("--json", "--grace", "0", preexec_fn=allow_few_files)
    assert process.stdout is not None
    client = Client(json_url(process), process)
    (result,) = limited_by_files(folder)
    assert result["files"] == 256
    assert result["connections"] == 90
    with ExitStack() as opened:
        for _ in range(80):
            opened.enter_context(client.open())
        assert client.get(RECORDS).status == 200
        for _ in range(10):
            opened.enter_context(client.open())
        wait_until(lambda: client.get(RECORDS).status == 503)
        assert client.get("/api/health").status == 200
        assert client.get("/api/ready").status == 200
        for _ in range(100):
            opened.enter_context(client.open())
        assert not is_deaf(client)
    wait_until(lambda: client.get(RECORDS).status == 200)
    process.terminate()
    assert process.wait(20) == 0
    process.stdout.close()
    assert len(limited_by_files(folder)) == 1


def limited_by_files(folder: Folder) -> list[dict[str, Any]]:
    return [line for line in folder.log if line["event"] == "connections_limited"]


class TestStopping:
    @pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=str)
    def test_it_says_so_first_and_finishes_what_is_under_way(
        self, on_postgres: Folder, locked: psycopg.Connection, sign: signal.Signals
    ):
        process = on_postgres.start("--json", "--grace", "2")
        assert process.stdout is not None
        client = Client(json_url(process), process)
        with ThreadPoolExecutor(1) as other:
            slow = other.submit(client.get, RECORDS)
            wait_until(lambda: client.metric("penstock_http_threads_busy") == 1)
            begun = time.monotonic()
            process.send_signal(sign)
            wait_until(lambda: client.get("/api/ready").status == 503, within=1)
            response = client.get("/api/ready")
            assert response.json["degraded"] == ["stopping"]
            assert response.headers["connection"] == "close"
            # others are served as long as they may not have heard of it
            assert client.get("/api/v1/datasets").status == 200
            assert happens(lambda: is_deaf(client), within=3)
            assert time.monotonic() - begun > 1.5
            # and what was under way still is
            assert not slow.done()
            locked.rollback()
            assert slow.result().status == 200
        assert process.wait(20) == 0
        process.stdout.close()
        assert "Traceback" not in on_postgres.errors

    @pytest.mark.parametrize("workers", ["1", "2"])
    def test_whoever_sits_there_is_reported_why_it_goes_on(
        self, folder: Folder, workers: str
    ):
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            [*PENSTOCK, "serve", "--port", "0", "--grace", "7", "--workers", workers],
            cwd=folder.path,
            env=folder.environ,
            stdout=subprocess.PIPE,
            stderr=theirs,
        )
        os.close(theirs)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        text = os.read(ours, 1_000).decode()
        process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stdout.close()
        os.close(ours)

        assert text.strip() == (
            "Stopping in 7 s, so that load balancers notice; "
            "press Ctrl-C again to stop now."
        )

    def test_requested_twice_it_does_not_wait(self, folder: Folder):
        process = folder.start("--json", "--grace", "60")
        assert process.stdout is not None
        client = Client(json_url(process), process)
        process.terminate()
        wait_until(lambda: client.get("/api/ready").status == 503)
        process.terminate()

        assert process.wait(10) == 0
        process.stdout.close()
        assert {line["level"] for line in folder.log} == {"info"}

    @pytest.mark.parametrize("workers", ["1", "2"])
    def test_no_connection_that_was_made_is_reset(self, folder: Folder, workers: str):
        results: list[bytes] = []

        def knock() -> None:
            while True:
                try:
                    connection = client.open()
                except OSError:
                    # closed for good: nobody promised anything
                    return
                with connection:
                    connection.sendall(
                        b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    )
                    results.append(connection.recv(12))

        with folder.serve("--workers", workers) as client:
            with ThreadPoolExecutor(8) as many:
                knocking = [many.submit(knock) for _ in range(8)]
                wait_until(lambda: len(results) > 200)
                client.process.terminate()
                for thread in knocking:
                    thread.result()
            assert client.process.wait(20) == 0
        assert {*results} == {b"HTTP/1.1 200"}

    def test_a_client_that_is_sending_can_read_an_early_response(self, folder: Folder):
        target = "/api/v1/datasets/none/records"
        size = 2_000_000
        with folder.serve("--grace", "10") as client, client.open() as line:
            client.process.terminate()
            wait_until(lambda: client.get("/api/ready").status == 503)
            head = (
                f"POST {target} HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Length: {size}\r\n\r\n"
            )
            line.sendall(head.encode())
            for _ in range(100):
                line.sendall(b" " * (size // 100))
                time.sleep(0.005)
            response = received(line)
            client.process.terminate()
            assert client.process.wait(20) == 0
        assert response.startswith(b"HTTP/1.1 404 ")
        assert b"connection: close\r\n" in response
        assert response.endswith(b"}")

    def test_those_who_wait_for_news_are_sent_away(self, folder: Folder):
        target = "/api/v1/datasets/poi/changes?after=0&wait=30"
        with ThreadPoolExecutor(5) as many:
            with folder.serve() as client:
                waiting = [many.submit(client.get, target) for _ in range(5)]
                wait_until(lambda: client.metric("penstock_http_feeds") == 5)
                begun = time.monotonic()
            found = [each.result() for each in waiting]

        assert time.monotonic() - begun < 25
        assert {each.status for each in found} == {200}
        assert all(each.json["items"] == [] for each in found)

    def test_a_connection_that_asks_nothing_holds_nobody_up(self, folder: Folder):
        with folder.serve() as client, client.open() as line:
            line.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line.recv(100).startswith(b"HTTP/1.1 200 ")
            with client.open() as silent:
                begun = time.monotonic()
                client.process.terminate()
                assert client.process.wait(20) == 0
                assert silent.recv(1) == b""
        assert time.monotonic() - begun < 20

    def test_a_client_that_never_takes_its_answer_does_not_hold_it_up_for_ever(
        self, folder: Folder
    ):
        """It is bounded, and there is no traceback when the bound is reached."""
        with folder.serve() as client, client.open() as line:
            body = b'[{"id": 1}]'
            head = (
                f"POST {RECORDS} HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
            )
            line.sendall(head.encode() + body)
            time.sleep(0.3)
            begun = time.monotonic()
            client.process.terminate()
            assert client.process.wait(40) == 0
            assert time.monotonic() - begun < 25
            result = received(line)
            assert result.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in result


class TestWorkers:
    def children(self, client: Client) -> set[int]:
        result = Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children")
        return {*map(int, result.read_text("utf-8").split())}

    def processes(self, client: Client) -> set[str]:
        response = client.get("/metrics").body.decode()
        return {*re.findall(r'penstock_info\{process="(\d+)"', response)}

    def test_they_serve_one_address_and_count_together(self, folder: Folder):
        with folder.serve("--workers", "3") as client:
            assert len(self.children(client)) == 3
            for _ in range(60):
                assert client.get("/api/v1/datasets").status == 200
            wait_until(lambda: self.processes(client) == {"0", "1", "2"})
            route = "/api/v1/datasets"
            total = "penstock_http_requests_total"
            wait_until(lambda: client.metric(total, route=route) == 60, within=5)

    def test_what_the_stores_hold_is_exposed_once(self, folder: Folder):
        with folder.serve("--workers", "2") as client:
            client.store(1, 2)
            wait_until(lambda: client.metric("penstock_dataset_rows") == 2)
            body = client.get("/metrics").body.decode()

        families = [*text_string_to_metric_families(body)]
        names = [family.name for family in families]
        assert len(names) == len(set(names))
        samples = [sample for family in families for sample in family.samples]
        rows = [each for each in samples if each.name == "penstock_dataset_rows"]
        assert [(each.labels, each.value) for each in rows] == [({"dataset": "poi"}, 2)]
        processes = {each.labels.get("process") for each in samples}
        assert processes <= {"0", "1", None}

    def test_one_that_dies_is_replaced(self, folder: Folder):
        with folder.serve("--workers", "2") as client:
            before = self.children(client)
            time.sleep(1)
            victim = min(before)
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: len(self.children(client) - before) == 1)
            for _ in range(20):
                assert client.get("/api/health").status == 200
            wait_until(lambda: self.processes(client) == {"0", "1"})
        results = [each for each in folder.log if each["event"] == "server_replaced"]
        assert [(each["process"], each["status"]) for each in results] == [(victim, -9)]

    def held(self, client: Client, process: int) -> int:
        """Count the connections of clients that a process has."""
        tables = [Path(f"/proc/{process}/net/{name}") for name in ("tcp", "tcp6")]
        rows = [
            line.split()
            for table in tables
            for line in table.read_text("ascii").splitlines()[1:]
        ]
        port = f":{client.address[1]:04X}"
        inodes = {row[9] for row in rows if row[1].endswith(port) and row[3] == "01"}
        links = []
        for each in Path(f"/proc/{process}/fd").iterdir():
            # one may be closed since it was listed
            with suppress(FileNotFoundError):
                links.append(str(each.readlink()))
        return sum(each[len("socket:[") : -1] in inodes for each in links)

    def ask_on(self, line: socket.socket) -> bool:
        """Ask on a connection that stays open; False if it is broken."""
        try:
            line.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            response = b""
            # head and body may arrive apart
            while not response.endswith(b"}"):
                chunk = line.recv(65_536)
                if not chunk:
                    return False
                response += chunk
            return response.startswith(b"HTTP/1.1 200 ")
        except ConnectionError:
            return False

    @pytest.mark.parametrize("workers", [2, 4])
    def test_none_has_no_connection_of_many(self, folder: Folder, workers: int):
        with (
            folder.serve("--workers", str(workers)) as client,
            ExitStack() as opened,
        ):
            lines = [opened.enter_context(client.open()) for _ in range(64)]
            assert all(map(self.ask_on, lines))
            held = [self.held(client, each) for each in self.children(client)]

        assert sum(held) == 64
        assert min(held) > 0

    def test_one_that_dies_takes_nothing_of_others_along(self, folder: Folder):
        with folder.serve("--workers", "2") as client, ExitStack() as opened:
            lines = [opened.enter_context(client.open()) for _ in range(64)]
            assert all(map(self.ask_on, lines))
            children = self.children(client)
            victim = min(children)
            lost = self.held(client, victim)
            # nobody accepts for a while, and others come meanwhile
            for each in children:
                os.kill(each, signal.SIGSTOP)
            late = [opened.enter_context(client.open()) for _ in range(32)]
            for line in late:
                line.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            os.kill(victim, signal.SIGKILL)
            for each in children - {victim}:
                os.kill(each, signal.SIGCONT)

            # who was accepted by the other, or by nobody yet, is answered
            assert all(line.recv(9) == b"HTTP/1.1 " for line in late)
            assert sum(map(self.ask_on, lines)) == 64 - lost
            wait_until(lambda: len(self.children(client) - children) == 1)

    @pytest.mark.slow
    def test_one_that_hangs_leaves_all_connections_to_the_others(self, folder: Folder):
        with folder.serve("--workers", "2") as client, ExitStack() as opened:
            hung = min(self.children(client))
            os.kill(hung, signal.SIGSTOP)
            opened.callback(os.kill, hung, signal.SIGCONT)
            lines = [opened.enter_context(client.open()) for _ in range(64)]
            assert all(map(self.ask_on, lines))

    def test_all_finish_what_is_under_way(
        self, on_postgres: Folder, locked: psycopg.Connection
    ):
        with (
            on_postgres.serve("--workers", "2", grace=1) as client,
            ThreadPoolExecutor(6) as many,
        ):
            children = self.children(client)
            slow = [
                many.submit(client.get, f"{RECORDS}?limit={number + 1}")
                for number in range(6)
            ]
            busy = "penstock_http_threads_busy"
            wait_until(lambda: client.metric(busy) == 6, within=10)
            client.process.terminate()
            wait_until(lambda: client.get("/api/ready").status == 503, within=2)
            time.sleep(1.5)
            locked.rollback()
            assert {each.result().status for each in slow} == {200}
            assert client.process.wait(20) == 0
        assert not any(map(is_alive, children))

    def test_ctrl_c_reaches_them_once(self, folder: Folder):
        """A terminal sends it to all; a second one would end the grace."""
        process = subprocess.Popen(
            [*PENSTOCK, "serve", "--port", "0", "--workers", "2", "--json"],
            cwd=folder.path,
            env=folder.environ,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        client = Client(json_url(process), process)
        begun = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        wait_until(lambda: client.get("/api/ready").status == 503, within=1)
        assert process.wait(20) == 0
        process.stdout.close()
        assert time.monotonic() - begun >= 5

    def test_they_do_not_outlive_who_started_them(self, folder: Folder):
        process = folder.start("--workers", "2", "--json", "--grace", "0")
        assert process.stdout is not None
        client = Client(json_url(process), process)
        children = self.children(client)
        process.kill()
        process.wait()
        process.stdout.close()

        wait_until(lambda: not any(map(is_alive, children)), within=20)

    def test_what_is_wrong_is_reported_once(self, tmp_path: Path):
        folder = Folder(tmp_path, SQLITE + POI + '[api]\nrate = "often"\n')
        done = folder.penstock("serve", "--workers", "2")

        assert done.returncode == 2
        assert done.stderr.count("api.rate") == 1


def json_url(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline())["url"])


def is_deaf(client: Client) -> bool:
    with suppress(ConnectionError), client.open():
        return False
    return True


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # one that nobody has waited for yet is dead all the same
    status = Path(f"/proc/{process}/stat").read_text("utf-8")
    return status.rpartition(")")[2].split()[0] != "Z"
