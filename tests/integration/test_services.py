"""The servers and the proxy that other tests rely on do what they say."""

import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.services import keeper
from tests.services.find import (
    ServerMissing,
    find_chromium,
    find_postgres,
    find_prometheus,
    find_rabbit,
    find_redis,
)
from tests.services.private import PrivatePostgres, PrivateRedis, ServerFailed
from tests.services.shared import BrokeredServers, OwnedServers
from tests.support.proxy import Proxy
from tests.support.workshop import happens

REPOSITORY = Path(__file__).parents[2]

StartPostgres = Callable[..., PrivatePostgres]
StartRedis = Callable[[], PrivateRedis]


def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).fetchall()


def tell(url: str, statement: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode())


def test_a_missing_postgres_is_reported_in_one_sentence(tmp_path: Path):
    with pytest.raises(ServerMissing) as missing:
        find_postgres(path=str(tmp_path), root=tmp_path)

    assert str(missing.value) == (
        "the tests need PostgreSQL 15 or newer with its contrib modules: install it "
        "(on Debian: apt-get install postgresql postgresql-contrib), "
        "or name a server of your own in PENSTOCK_TEST_POSTGRES_URL"
    )


def test_a_missing_rabbitmq_is_reported_in_one_sentence(tmp_path: Path):
    with pytest.raises(ServerMissing) as missing:
        find_rabbit(path=str(tmp_path), root=tmp_path)

    assert str(missing.value) == (
        "the tests need rabbitmq-server: install it "
        "(on Debian: apt-get install rabbitmq-server), "
        "or name a server of your own in PENSTOCK_TEST_RABBITMQ_URL"
    )


def test_a_missing_redis_is_reported_in_one_sentence(tmp_path: Path):
    with pytest.raises(ServerMissing) as missing:
        find_redis(path=str(tmp_path))

    assert str(missing.value) == (
        "the tests need redis-server: install it "
        "(on Debian: apt-get install redis-server), "
        "or name a server of your own in PENSTOCK_TEST_REDIS_URL"
    )


def test_a_missing_browser_is_reported_in_one_sentence(tmp_path: Path):
    with pytest.raises(ServerMissing) as missing:
        find_chromium(path=str(tmp_path))

    assert str(missing.value) == (
        "the tests need a browser, Chromium: install it "
        "(on Debian: apt-get install chromium)"
    )


def test_a_missing_prometheus_is_reported_in_one_sentence(tmp_path: Path):
    with pytest.raises(ServerMissing) as missing:
        find_prometheus(path=str(tmp_path))

    assert str(missing.value) == (
        "the tests need prometheus: install it (on Debian: apt-get install prometheus)"
    )


def pretend_postgres(root: Path, version: str, *, contrib: bool = True) -> Path:
    """Write programs that only tell their version and where their files are."""
    programs = root / "usr/lib/postgresql" / version / "bin"
    programs.mkdir(parents=True)
    result = {
        "postgres": f"postgres (PostgreSQL) {version}",
        "pg_config": str(programs),
    }
    for program in ("postgres", "pg_config", "initdb"):
        path = programs / program
        path.write_text(f"#!/bin/sh\necho '{result.get(program)}'\n", "utf-8")
        path.chmod(0o755)
    if contrib:
        (programs / "extension").mkdir()
        (programs / "extension" / "pg_trgm.control").touch()
    return programs


def test_the_newest_postgres_is_found(tmp_path: Path):
    pretend_postgres(tmp_path, "9.6")
    pretend_postgres(tmp_path, "15.2")
    newest = pretend_postgres(tmp_path, "17beta1")

    assert find_postgres(path="", root=tmp_path) == newest


@pytest.mark.parametrize(("version", "contrib"), [("14.9", True), ("15.2", False)])
def test_an_unusable_postgres_is_not_found(tmp_path: Path, version, contrib):
    pretend_postgres(tmp_path, version, contrib=contrib)

    with pytest.raises(ServerMissing):
        find_postgres(path="", root=tmp_path)


@pytest.mark.parametrize("_", range(2))
def test_every_test_has_an_empty_database(postgres_database: str, _):
    tell(postgres_database, "create table witness ()")

    tables = "select tablename from pg_tables where schemaname = 'public'"
    assert ask(postgres_database, tables) == [("witness",)]


def test_a_database_knows_unicode_and_trigrams(postgres_database: str):
    tell(postgres_database, "create extension pg_trgm")

    result = ask(postgres_database, "select 'ß' ~ '\\w', upper('ü'), show_trgm('ü')")
    assert result[0][:2] == (True, "Ü")
    assert len(str(result[0][2])) > 0


@pytest.mark.parametrize("_", range(2))
def test_every_test_has_an_empty_redis(redis_url: str, _):
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("witness", 1)


def test_an_immediate_restart_keeps_what_was_committed(own_postgres: StartPostgres):
    server = own_postgres(fsync=True)
    tell(server.url, "create table witness as select 1 as id")
    connection = psycopg.connect(server.url)
    connection.execute("insert into witness values (2)")

    server.restart(mode="immediate")

    assert ask(server.url, "select id from witness") == [(1,)]
    with pytest.raises(psycopg.OperationalError):
        connection.commit()


def test_a_stopped_postgres_refuses_until_it_is_started(own_postgres: StartPostgres):
    server = own_postgres()

    server.stop("fast")

    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(server.url)
    server.start()
    assert ask(server.url, "select 1") == [(1,)]


def test_a_postgres_of_ones_own_takes_settings(own_postgres: StartPostgres):
    server = own_postgres(fsync=True, max_connections="20")

    assert ask(server.url, "show fsync") == [("on",)]
    assert ask(server.url, "show max_connections") == [("20",)]
    assert ask(server.url, "show deadlock_timeout") == [("200ms",)]


def test_a_server_that_cannot_start_tells_why(own_postgres: StartPostgres):
    with pytest.raises(ServerFailed, match="shared_buffers"):
        own_postgres(shared_buffers="plenty")


def test_a_killed_redis_comes_back_empty(own_redis: StartRedis):
    server = own_redis()
    with redis.Redis.from_url(server.url) as client:
        client.set("witness", 1)

        server.kill()

        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert client.dbsize() == 0


def test_a_stopped_redis_can_be_started_again(own_redis: StartRedis):
    server = own_redis()

    server.stop()
    server.start()

    with redis.Redis.from_url(server.url) as client:
        assert client.ping()


@pytest.mark.parametrize("kind", ["PrivatePostgres", "PrivateRedis"])
def test_a_server_ends_when_its_owner_is_killed(kind):
    script = (
        f"import time\nfrom tests.services.private import {kind}\n"
        f"with {kind}() as server:\n"
        "    print(server.port, server.folder, flush=True)\n"
        "    time.sleep(100)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout as stream:
        port, folder = stream.readline().split()
    socket.create_connection(("127.0.0.1", int(port))).close()

    owner.kill()
    owner.wait()

    assert happens(lambda: not Path(folder).exists(), within=30)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)))


def test_a_server_ends_when_its_owner_died_while_starting_it(tmp_path: Path):
    folder = tmp_path / "server"
    folder.mkdir()
    reading, writing = os.pipe()
    os.close(reading)
    stored = ("9", folder, "sleep", "100")

    ended = subprocess.run(
        [sys.executable, "-I", "-S", keeper.__file__, *stored],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        timeout=30,
        check=False,
    )

    os.close(writing)
    assert ended.returncode != 0
    assert not folder.exists()


def test_all_processes_of_a_run_share_one_server():
    owned = OwnedServers()
    try:
        auth = owned.open_broker()
        urls = {BrokeredServers(auth).redis_url(), BrokeredServers(auth).redis_url()}
        assert urls == {owned.redis_url()}
        with redis.Redis.from_url(urls.pop()) as client:
            assert client.ping()
    finally:
        owned.close()

        with pytest.raises(redis.ConnectionError):
            client.ping()


def test_servers_of_the_caller_are_used_instead(monkeypatch):
    monkeypatch.setenv("PENSTOCK_TEST_POSTGRES_URL", "postgresql://me@db/mine")
    monkeypatch.setenv("PENSTOCK_TEST_REDIS_URL", "redis://cache/3")

    owned = OwnedServers()

    assert owned.postgres_url() == "postgresql://me@db/mine"
    assert owned.redis_url() == "redis://cache/3"


class Echo(socketserver.ThreadingTCPServer):
    """Sends back what it receives, and remembers it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EchoHandler)
        self.received: list[bytes] = []
        self.ended = 0

    def handle_error(self, *_: object) -> None:
        """Say nothing: connections are reset here on purpose."""


class EchoHandler(socketserver.BaseRequestHandler):
    server: Echo

    def handle(self) -> None:
        while chunk := self.request.recv(1 << 16):
            self.server.received.append(chunk)
            self.request.sendall(chunk)

    def finish(self) -> None:
        self.server.ended += 1


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.server_address[1]) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def echoed(client: socket.socket, message: bytes) -> bytes:
    client.sendall(message)
    return received(client, len(message))


def received(client: socket.socket, length: int) -> bytes:
    with client.makefile("rb", buffering=0) as stream:
        found = b""
        while len(found) < length and (chunk := stream.read(length - len(found))):
            found += chunk
    return found


def test_the_proxy_passes_everything_on(proxy: Proxy):
    message = os.urandom(5_000_000)
    with connect(proxy) as client, connect(proxy) as other:
        sending = threading.Thread(target=client.sendall, args=(message,))
        sending.start()

        assert received(client, len(message)) == message
        assert echoed(other, b"hello") == b"hello"
        sending.join()


def test_the_proxy_passes_the_end_on(proxy: Proxy, echo: Echo):
    with connect(proxy) as client:
        client.sendall(b"last words")
        client.shutdown(socket.SHUT_WR)

        assert received(client, 100) == b"last words"
        assert happens(lambda: echo.ended == 1, within=10)


def test_the_proxy_holds_messages_back(proxy: Proxy):
    with connect(proxy) as client:
        proxy.delay(0.2)
        start = time.monotonic()
        assert echoed(client, b"slow") == b"slow"
        # there and back
        assert time.monotonic() - start >= 0.4

        proxy.delay(60)
        proxy.delay(0)
        start = time.monotonic()
        assert echoed(client, b"fast") == b"fast"
        assert time.monotonic() - start < 60


def test_a_cut_resets_connections_and_refuses_new_ones(proxy: Proxy, echo: Echo):
    with connect(proxy) as client:
        echoed(client, b"hello")

        proxy.cut()

        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    assert happens(lambda: echo.ended == 1, within=10)

    proxy.mend()

    with connect(proxy) as client:
        assert echoed(client, b"hello") == b"hello"


def test_a_black_hole_takes_everything_and_gives_nothing(proxy: Proxy, echo: Echo):
    with connect(proxy) as old:
        echoed(old, b"before")

        proxy.black_hole()

        with connect(proxy) as new:
            # more than all buffers on the way could hold
            old.sendall(b"x" * 50_000_000)
            new.sendall(b"x" * 50_000_000)
            assert is_silent(old)
            assert is_silent(new)
            proxy.mend()
            assert is_silent(old)
            assert is_silent(new)
    assert b"".join(echo.received) == b"before"
    # the server is left waiting for a client that is gone
    assert not happens(lambda: echo.ended, within=0.2)
    with connect(proxy) as client:
        assert echoed(client, b"after") == b"after"


def is_silent(client: socket.socket) -> bool:
    client.settimeout(0.1)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    return False


def test_one_reply_is_lost(proxy: Proxy, echo: Echo):
    with connect(proxy) as client, connect(proxy) as other:
        proxy.lose_reply_after(b"commit")
        assert echoed(client, b"begin") == b"begin"
        client.sendall(b"COM")
        assert client.recv(3) == b"COM"

        client.sendall(b"MIT;")

        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert b"".join(echo.received) == b"beginCOMMIT;"
        assert proxy.lost_replies == 1
        assert echoed(other, b"commit") == b"commit"


def test_a_reply_is_lost_after_what_a_test_chooses(proxy: Proxy):
    proxy.lose_reply_after(lambda message: len(message) > 3)
    with connect(proxy) as client:
        assert echoed(client, b"abc") == b"abc"

        with pytest.raises(ConnectionResetError):
            echoed(client, b"abcd")


def test_a_commit_is_done_though_its_reply_is_lost(postgres_database: str):
    tell(postgres_database, "create table witness (id int)")
    target = psycopg.conninfo.conninfo_to_dict(postgres_database)
    with Proxy(str(target["host"]), int(str(target["port"]))) as proxy:
        connection = psycopg.connect(proxy.via(postgres_database))
        connection.execute("insert into witness values (1)")
        proxy.lose_reply_after(b"commit")

        with pytest.raises(psycopg.OperationalError):
            connection.commit()

        assert proxy.lost_replies == 1
    assert ask(postgres_database, "select id from witness") == [(1,)]


def test_a_server_that_is_down_is_down_through_the_proxy(own_redis: StartRedis):
    server = own_redis()
    with (
        Proxy("127.0.0.1", server.port) as proxy,
        redis.Redis.from_url(proxy.via(server.url)) as client,
    ):
        assert client.ping()

        server.kill()

        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert client.ping()
