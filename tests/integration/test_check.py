"""What `check` and `migrate` tell, and how each command refuses a wrong server."""

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from penstock.adapters.postgres import schema as postgres_schema
from penstock.adapters.sqlstore.schema import load_migrations
from penstock.entrypoints.cli.app import main
from penstock.entrypoints.cli.check_migrate import bring_up_to_date
from penstock.entrypoints.cli.common import ignore_event, read_settings
from penstock.entrypoints.cli.connection_checks import compare_clocks
from penstock.ports import ServerDiagnostics
from penstock.sandbox import Sandbox, SandboxOptions
from penstock.wiring import open_container
from tests.services.private import PrivatePostgres, free_port
from tests.support.proxy import Proxy
from tests.support.workshop import BUGS, Ran

# of a user, of a server, in an address: no command may ever print it
PASSWORD = "s3cret-pa55-w0rd"
KEY = "practice-key-0a1b2c3d"
# every command that opens the database, for what must be refused by all
COMMANDS = (
    ("migrate",),
    ("migrate", "--check"),
    ("plan", "poi"),
    ("run", "poi"),
    ("worker", "--until-idle"),
    ("imports",),
    ("jobs", "--json"),
    ("audit", "poi"),
    ("quarantine", "poi"),
    ("budgets",),
)

# what an empty database lacks
LEDGER = [each.name for each in load_migrations("penstock.adapters.postgres")]
STEPS = [*LEDGER, "create table poi"]

Command = Callable[..., Ran]


class Shop:
    """A folder with a penstock.toml, and commands that run in this process."""

    def __init__(self, folder: Path, provider: str, run: Command) -> None:
        self._config = folder / "penstock.toml"
        self._provider = provider
        self.penstock = run

    @property
    def config(self) -> Path:
        return self._config

    def declare(
        self,
        database: str = "sqlite:///penstock.db",
        *,
        redis: str | None = None,
        broker: str | None = None,
        queue: str = "penstock",
        queue_type: str = "classic",
        dataset: str = "",
        key: str = '"id"',
        points: str = "int",
        fields: str = "",
        more: str = "",
    ) -> None:
        server = "" if redis is None else f'redis = "{redis}"\n'
        celery = ""
        if broker is not None:
            server += f'engine = "celery"\nbroker = "{broker}"\n'
            celery = f'[celery]\nqueue = "{queue}"\nqueue_type = "{queue_type}"\n'
        self._config.write_text(
            f'[penstock]\ndatabase = "{database}"\n{server}'
            f'lease = "9s"\nwait = "1s"\ncommit_timeout = "1s"\n\n{celery}\n'
            '[budgets.practice]\nrate = "1000/s"\nburst = 10\n\n'
            f"[datasets.poi]\nkey = {key}\n{dataset}\n\n"
            "[datasets.poi.fields]\n"
            'id = { path = "ID", type = "int", required = true }\n'
            'town = { path = "AddressInfo.Town", required = true }\n'
            f'points = {{ path = "NumberOfPoints", type = "{points}" }}\n{fields}\n\n'
            "[datasets.poi.source]\n"
            f'url = "{self._provider}/v3/poi/"\n'
            f'headers = {{ X-API-Key = "{KEY}" }}\n'
            'budget = "practice"\ntimeout = "5s"\n\n'
            '[datasets.poi.source.pages]\nby = "keyset"\nsend = "greaterthanid"\n'
            'field = "ID"\norder = { sortby = "id_asc" }\n'
            f'size = {{ send = "maxresults", value = 50 }}\n{more}\n',
            encoding="utf-8",
        )

    def checked(self, *options: str) -> dict[str, dict[str, Any]]:
        """Try everything; return what was found by its name."""
        report = self.penstock("check", "--connect", "--json", *options)
        found = report.json["connections"]
        assert report.code == (0 if all(each["ok"] for each in found) else 1)
        return {each["what"]: each for each in found}

    def refusals(self, *commands: tuple[str, ...]) -> set[tuple[int, str]]:
        """Run commands that cannot work; return how each ended, and its sentence."""
        ended = [self.penstock(*each) for each in commands or COMMANDS]
        return {(each.code, each.err.strip()) for each in ended}


@pytest.fixture(scope="module")
def provider() -> Iterator[Sandbox]:
    with Sandbox(SandboxOptions(key=KEY, records=60, duplicates=0.0)) as sandbox:
        yield sandbox


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run a command as its process would: a traceback or a password fails the test."""

    def penstock(*arguments: str) -> Ran:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        code = end.value.code
        ran = Ran(code if isinstance(code, int) else 0, out, err)
        assert not any(word in ran.err for word in BUGS), ran.err
        assert PASSWORD not in ran.out + ran.err
        assert KEY not in ran.out + ran.err
        return ran

    return penstock


@pytest.fixture
def shop(tmp_path: Path, provider: Sandbox, run: Command) -> Shop:
    return Shop(tmp_path, provider.base_url, run)


@pytest.fixture
def migrated(shop: Shop, postgres_database: str) -> Shop:
    shop.declare(postgres_database)
    assert shop.penstock("migrate").code == 0
    return shop


@pytest.fixture
def ask(postgres_database: str) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Ask the database as it is, past Penstock, as its administrator."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:

        def execute(statement: str) -> list[tuple[Any, ...]]:
            answer = connection.execute(statement.encode())
            return answer.fetchall() if answer.description else []

        yield execute


@pytest.fixture
def user(postgres_url: str, postgres_database: str) -> Iterator[str]:
    """Create a user who may only connect; yield the address under this name."""
    name = f"app_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"create role {name} login")
        yield named(postgres_database, name)
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute(f"drop owned by {name} cascade")
        database.execute(f"drop role {name}")


def named(url: str, user: str, password: str = "") -> str:
    """Put a user, and a password, into an address."""
    parts = urlsplit(url)
    login = f"{user}:{password}" if password else user
    place = f"{login}@{parts.hostname}:{parts.port}"
    return parts._replace(netloc=place).geturl()


def name_in(url: str) -> str:
    return urlsplit(url).username or ""


class TestMigrate:
    def test_check_tells_what_is_pending_and_changes_nothing(
        self, shop, postgres_database, ask
    ):
        shop.declare(postgres_database)

        report = shop.penstock("migrate", "--check")
        as_json = shop.penstock("migrate", "--check", "--json")

        assert report.code == as_json.code == 1
        assert as_json.json["pending"] == STEPS
        assert report.out == "\n  ".join(["Pending:", *STEPS]) + "\n"
        assert ask("select to_regnamespace('penstock')") == [(None,)]

    def test_it_tells_what_it_did_and_then_that_nothing_is_left(
        self, shop, postgres_database
    ):
        shop.declare(postgres_database)

        first = shop.penstock("migrate", "--json")
        again = shop.penstock("migrate", "--json")
        checked = shop.penstock("migrate", "--check", "--json")

        assert first.json["applied"] == STEPS
        assert (first.code, again.code, checked.code) == (0, 0, 0)
        assert again.json["applied"] == checked.json["pending"] == []

    def test_columns_and_indexes_that_a_declaration_gained_are_pending_until_made(
        self, migrated, postgres_database
    ):
        assert migrated.penstock("run", "poi").code == 0
        migrated.declare(
            postgres_database, dataset='filter = ["town"]', fields='note = "Note"'
        )
        steps = ["add column note to poi", "build index penstock:poi:town"]

        pending = migrated.penstock("migrate", "--check", "--json")
        applied = migrated.penstock("migrate", "--json")
        left = migrated.penstock("migrate", "--check")

        assert (pending.code, pending.json["pending"]) == (1, steps)
        assert (applied.code, applied.json["applied"]) == (0, steps)
        assert (left.code, left.out) == (0, "The schema is up to date.\n")

    def test_ten_at_once_do_each_step_once(self, shop, postgres_database):
        shop.declare(postgres_database, dataset='search = ["town"]')
        settings = read_settings(shop.config)

        def migrate(_: int) -> list[str]:
            with open_container(settings, ignore_event) as penstock:
                return bring_up_to_date(penstock)

        with ThreadPoolExecutor(10) as pool:
            done = sorted(
                step for each in pool.map(migrate, range(10)) for step in each
            )

        assert sorted(done) == sorted(STEPS)

    def test_check_creates_no_file(self, shop):
        shop.declare()

        report = shop.penstock("migrate", "--check", "--json")

        assert report.code == 1
        assert "create table poi" in report.json["pending"]
        assert not (shop.config.parent / "penstock.db").exists()

    def test_a_file_tells_its_steps_as_a_server_does(self, shop):
        shop.declare()
        created = shop.penstock("migrate", "--json")
        shop.declare(dataset='filter = ["town"]', fields='note = "Note"')

        pending = shop.penstock("migrate", "--check", "--json")
        applied = shop.penstock("migrate", "--json")

        steps = ["add column note to poi", "build index penstock:poi:town"]
        assert created.json["applied"][-1] == "create table poi"
        assert pending.json["pending"] == applied.json["applied"] == steps
        assert shop.penstock("migrate", "--check").code == 0


OTHER = (
    '[datasets.other]\nkey = "id"\n[datasets.other.fields]\n'
    'id = { path = "ID", type = "int", required = true }\n'
    '[datasets.other.source]\nurl = "http://127.0.0.1:9/"\n'
)


OTHER_TYPE = (
    "datasets.poi.fields.points: the stored column has type int, the declaration says "
    "text; rename the field, or convert it: penstock datasets retype poi"
)
OTHER_KEY = (
    "datasets.poi.key: the stored table has the key id; "
    "rename the dataset, or drop the dataset with penstock datasets drop, and import "
    "again"
)
OTHER_PARTITION = (
    "datasets.poi.partition: the stored table is partitioned by nothing; "
    "rename the dataset, or drop the dataset with penstock datasets drop, and import "
    "again"
)


class TestDestructiveChanges:
    @pytest.fixture(autouse=True)
    def row(self, migrated, ask):
        """Store a row: an empty table becomes whatever is declared."""
        ask(
            "insert into penstock.poi "
            "(id, town, _digest, _import, _created_at, _updated_at) "
            "values (1, 'Ulm', 'x', 1, now(), now())"
        )

    @pytest.mark.parametrize(
        ("change", "report"),
        [
            ({"points": "text"}, OTHER_TYPE),
            ({"key": '["id", "town"]'}, OTHER_KEY),
            ({"dataset": 'partition = "town"'}, OTHER_PARTITION),
        ],
        ids=["type", "key", "partition"],
    )
    def test_every_command_refuses_one_and_says_what_to_do(
        self, migrated, postgres_database, change, report
    ):
        migrated.declare(postgres_database, **change)

        # whoever has to cancel an import first can find it
        assert migrated.penstock("imports").code == 0
        refusing = [each for each in COMMANDS if each != ("imports",)]
        assert migrated.refusals(*refusing) == {(2, f"penstock: {report}")}
        assert migrated.checked()["tables"]["detail"] == report

    def test_a_refusal_leaves_the_tables_of_others_alone(
        self, migrated, postgres_database, ask
    ):
        migrated.declare(postgres_database, points="text", more=OTHER)

        assert migrated.penstock("migrate").code == 2
        assert ask("select to_regclass('penstock.other')") == [(None,)]


class TestVersions:
    def test_an_unmigrated_database_is_reported_to_a_worker(
        self, shop, postgres_database
    ):
        shop.declare(postgres_database)
        place = read_settings(shop.config).place

        report = f"not up to date ({', '.join(LEDGER)})"

        found = shop.refusals(("worker",), ("run", "poi"), ("plan", "poi"))

        assert found == {
            (2, f"penstock: {place}: the tables are {report}; run: penstock migrate")
        }
        assert shop.checked()["tables"] == {
            "what": "tables",
            "ok": False,
            "detail": f"{place}: not up to date ({', '.join(STEPS)}); "
            "run: penstock migrate",
        }

    def test_an_older_penstock_refuses_newer_tables(self, migrated, ask):
        ask("insert into penstock.penstock_migration values (99, '0099_later.sql')")
        place = read_settings(migrated.config).place
        known = int(LEDGER[-1][:4])
        report = (
            f"{place}: schema penstock has version 99, this penstock knows {known}; "
        )

        assert migrated.refusals() == {(2, f"penstock: {report}use a newer one")}
        assert migrated.checked()["tables"]["detail"] == f"{report}use a newer one"

    def test_an_old_server_is_refused(self, migrated, monkeypatch):
        monkeypatch.setattr(postgres_schema, "MIN_SERVER_VERSION", 99)
        ((code, report),) = migrated.refusals()

        assert code == 2
        assert report.endswith("; Penstock needs 99 or newer")
        assert report.endswith(migrated.checked()["database"]["detail"])


class TestConnect:
    def test_everything_is_well_on_a_migrated_database(self, migrated):
        found = migrated.checked()

        assert {what: each["ok"] for what, each in found.items()} == {
            "database": True,
            "rights": True,
            "connections": True,
            "tables": True,
            "clocks": True,
            "datasets.poi": True,
        }
        assert "PostgreSQL" in found["database"]["detail"]
        assert found["clocks"]["detail"] == "database is within 1 s of this host"
        assert "opens up to 7 connections" in found["connections"]["detail"]
        assert found["datasets.poi"]["detail"].startswith("50 records")

    def test_people_get_a_line_each(self, migrated):
        report = migrated.penstock("check", "--connect")

        lines = report.out.splitlines()[1:]
        assert report.code == 0
        assert all(line.startswith("ok   ") for line in lines)
        assert lines[3] == "ok   tables: up to date"

    def test_a_sound_redis_is_reported_with_its_version(
        self, migrated, postgres_database, redis_url
    ):
        migrated.declare(postgres_database, redis=redis_url)

        found = migrated.checked()

        assert found["redis"]["ok"]
        assert found["redis"]["detail"].startswith("Redis ")
        assert "redis is within 1 s" in found["clocks"]["detail"]

    def test_what_is_wrong_with_a_broker_is_reported_with_its_remedy(
        self, migrated, postgres_database, rabbit_url
    ):
        queue = f"penstock-{uuid.uuid4().hex[:8]}"
        right = urlsplit(rabbit_url)
        wrong = right._replace(netloc=f"me:{PASSWORD}@{right.hostname}:{right.port}")

        def report(broker: str, queue_type: str = "classic") -> tuple[bool, str]:
            migrated.declare(
                postgres_database, broker=broker, queue=queue, queue_type=queue_type
            )
            found = migrated.checked()
            assert found["datasets.poi"]["ok"]
            return found["broker"]["ok"], found["broker"]["detail"]

        assert report(rabbit_url) == (True, f"{queue}: 0 waiting")
        is_ok, detail = report(rabbit_url, "quorum")
        assert not is_ok
        assert "set celery.queue_type to its type" in detail
        is_ok, detail = report(wrong.geturl())
        assert not is_ok
        assert "put the right user and password into penstock.broker" in detail
        is_ok, detail = report(right._replace(path="/nowhere").geturl())
        assert not is_ok
        assert "create its virtual host" in detail
        is_ok, detail = report(f"redis://:{PASSWORD}@127.0.0.1:{free_port()}/0")
        assert not is_ok
        assert "check that it runs and that penstock.broker is its address" in detail

    def test_what_fails_keeps_nothing_else_from_being_tried(self, shop):
        nobody = free_port()
        shop.declare(
            named(f"postgresql://127.0.0.1:{nobody}/db", "app", PASSWORD),
            redis=f"redis://:{PASSWORD}@127.0.0.1:{nobody}/0",
        )

        found = shop.checked()

        assert {what: each["ok"] for what, each in found.items()} == {
            "database": False,
            "redis": False,
            "datasets.poi": False,
        }
        assert found["database"]["detail"] == (
            f"postgresql://app@127.0.0.1:{nobody}/db: Connection refused; check that "
            "the server runs, and the host and port in penstock.database"
        )
        assert "check that it runs" in found["redis"]["detail"]
        # who cannot count a request does not send it
        assert found["datasets.poi"]["detail"].startswith("skipped")

    def test_a_request_is_counted_where_the_budgets_are_retained(self, migrated, ask):
        migrated.checked()

        assert ask("select name, taken from penstock.penstock_budget") == [
            ("practice", 1)
        ]

    def test_too_few_connections_for_a_worker_are_reported(self, migrated, ask, user):
        name = name_in(user)
        ask(f"alter role {name} connection limit 5")
        migrated.declare(user)

        found = migrated.checked("--threads", "4")
        fewer = migrated.checked("--threads", "2")

        assert found["connections"]["detail"].endswith(
            "a worker with 4 threads opens up to 7 connections, and 5 of 5 are free; "
            "run fewer workers or threads, or raise the connection limit of role "
            f"{name}"
        )
        assert fewer["connections"]["ok"]


class FakeClock(ServerDiagnostics):
    def __init__(self, server: str, seconds: float) -> None:
        self._server = server
        self._ahead = timedelta(seconds=seconds)

    @property
    def server(self) -> str:
        return self._server

    def about(self, datasets, *, threads):
        return iter(())

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


class TestClocks:
    @pytest.mark.parametrize(
        ("seconds", "is_well", "report"),
        [
            (0.2, True, "database is within 1 s of this host"),
            (5, True, "database is 5.0 s ahead of this host; synchronise them"),
            (-29, True, "database is 29.0 s behind this host; synchronise them"),
            (31, False, "database is 31.0 s ahead of this host; synchronise them"),
            (-7200, False, "database is 7,200.0 s behind this host"),
        ],
    )
    def test_a_difference_is_reported_and_a_large_one_is_a_fault(
        self, seconds, is_well, report
    ):
        fact = compare_clocks([FakeClock("database", seconds)])

        assert (fact.is_ok, fact.message[: len(report)]) == (is_well, report)

    def test_two_servers_are_compared_with_each_other(self):
        fact = compare_clocks([FakeClock("database", 20), FakeClock("redis", -20)])

        assert not fact.is_ok
        assert "redis is 20.0 s behind" in fact.message
        assert "leases and budgets use the servers' clocks" in fact.message


class TestRights:
    def test_a_user_who_may_not_create_the_schema_is_reported_who_must(
        self, shop, user
    ):
        shop.declare(user)
        name = name_in(user)

        code, report = shop.refusals(("migrate",)).pop()
        found = shop.checked()["rights"]

        assert code == 2
        assert "permission denied for database" in report
        assert "create schema penstock authorization" in report
        assert found["detail"].endswith(
            f'user {name} lacks the right to create schema "penstock"; let an '
            f'administrator run: create schema "penstock" authorization "{name}"'
        )

    def test_what_an_administrator_runs_is_enough(self, shop, user, ask):
        shop.declare(user)
        name = name_in(user)

        ask(f'create schema "penstock" authorization "{name}"')

        assert shop.checked()["rights"]["ok"]
        assert shop.penstock("migrate").code == 0
        assert shop.penstock("run", "poi").code == 0
        assert shop.penstock("check", "--connect").code == 0

    def test_tables_of_somebody_else_are_refused_until_granted(
        self, migrated, user, ask
    ):
        migrated.declare(user)
        name = name_in(user)

        refused = migrated.refusals(("worker",), ("run", "poi"), ("imports",))
        found = migrated.checked()["rights"]
        ask(f'grant usage, create on schema penstock to "{name}"')
        without_tables = migrated.refusals(("worker",))
        *_, cures = migrated.checked()["rights"]["detail"].partition("run: ")
        ask(cures)

        assert {code for code, _ in refused} == {2}
        assert all("permission denied for schema" in report for _, report in refused)
        assert "the right to use and create in schema" in found["detail"]
        assert "permission denied for table" in str(without_tables)
        assert "the ownership of table poi" in found["detail"]
        assert migrated.checked()["rights"]["ok"]
        assert migrated.penstock("run", "poi").code == 0

    def test_a_user_who_may_create_no_extension_can_search(self, shop, user, ask):
        ask(f"create schema penstock authorization {name_in(user)}")
        shop.declare(user, dataset='search = ["town"]')

        assert shop.penstock("migrate").code == 0
        assert all(each["ok"] for each in shop.checked().values())


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePostgres]:
    """Start a server that asks for passwords and has few connections to give."""
    with PrivatePostgres(
        max_connections="8", superuser_reserved_connections="3", shared_buffers="16MB"
    ) as started:
        (started._data / "pg_hba.conf").write_text(
            "host all postgres 127.0.0.1/32 trust\n"
            "host all ghost 127.0.0.1/32 trust\n"
            "host all app 127.0.0.1/32 scram-sha-256\n"
        )
        with psycopg.connect(started.url, autocommit=True) as administrator:
            administrator.execute(f"create role app login password '{PASSWORD}'")
            administrator.execute("create database shop owner app")
        started.restart("fast")
        yield started


@pytest.fixture
def address(server: PrivatePostgres) -> str:
    return named(server.url.replace("/postgres", "/shop"), "app", PASSWORD)


def place(url: str) -> str:
    return named(url, name_in(url))


class TestWrongAddresses:
    """Each is refused by every command alike, with exit code 2 and a remedy."""

    @pytest.fixture
    def refused(self, shop: Shop) -> Callable[[str], str]:
        def refused(url: str) -> str:
            shop.declare(url)
            ((code, report),) = shop.refusals()
            found = shop.checked()
            assert code == 2
            # as JSON tells it, before the line for people
            assert report == f"penstock: {found['database']['detail']}"
            assert found["datasets.poi"]["detail"].startswith("skipped")
            return report

        return refused

    def test_a_wrong_password(self, refused, address):
        wrong = address.replace(PASSWORD, f"{PASSWORD}-old")

        assert refused(wrong) == (
            f"penstock: {place(address)}: password authentication failed for user "
            '"app"; check user and password in penstock.database'
        )

    def test_no_password(self, refused, address, monkeypatch):
        monkeypatch.setenv("PGPASSFILE", "/nonexistent")

        assert refused(place(address)).endswith(
            "fe_sendauth: no password supplied; "
            "give a password in penstock.database, or in ~/.pgpass"
        )

    def test_an_unknown_role(self, refused, address):
        assert refused(named(address, "ghost")).endswith(
            'role "ghost" does not exist; create it: createuser, or correct the name'
        )

    def test_a_role_that_the_server_lets_in_from_nowhere(self, refused, address):
        report = refused(named(address, "stranger"))

        assert 'no pg_hba.conf entry for host "127.0.0.1"' in report
        assert report.endswith("; allow it in the server's pg_hba.conf")

    def test_an_unknown_database(self, refused, address):
        assert refused(address.replace("/shop", "/shpo")).endswith(
            'database "shpo" does not exist; create it: createdb, or correct the name'
        )

    def test_a_server_without_tls(self, refused, address):
        assert refused(f"{address}?sslmode=require").endswith(
            "server does not support SSL, but SSL was required; "
            "check sslmode and the certificates"
        )

    def test_a_server_of_the_web(self, refused):
        with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
            report = refused(f"postgresql://app:{PASSWORD}@127.0.0.1:{port}/shop")

        assert report.endswith("is no PostgreSQL server; correct host and port")

    def test_an_unknown_host(self, shop):
        shop.declare(f"postgresql://app:{PASSWORD}@nosuch.invalid/shop")

        code, report = shop.refusals(("worker",)).pop()

        # a machine without name servers cannot know that there is no such host
        assert (code, report.partition("; ")[2]) in {
            (2, "correct the host in penstock.database"),
            (1, "check the name servers of this host"),
        }
        assert "nosuch.invalid" in report


class TestServersThatMayRecover:
    """Each is told by exit code 1: the same command may work later."""

    @pytest.fixture
    def report(self, shop: Shop) -> Callable[[str], str]:
        def report(url: str) -> str:
            shop.declare(url)
            found = shop.checked()
            ended = shop.refusals(("worker",), ("imports",))
            assert ended == {(1, f"penstock: {found['database']['detail']}")}
            assert found["datasets.poi"]["detail"].startswith("skipped")
            return str(found["database"]["detail"])

        return report

    def test_nobody_listens(self, report):
        address = f"postgresql://app:{PASSWORD}@127.0.0.1:{free_port()}/shop"

        assert report(address).endswith(
            "Connection refused; check that the server runs, "
            "and the host and port in penstock.database"
        )

    def test_the_server_is_full(self, report, server, address):
        with ExitStack() as taken:
            for _ in range(5):
                taken.enter_context(psycopg.connect(address))
            sentence = report(address)

        assert "; run fewer workers or threads, or raise max_connections" in sentence

    def test_the_role_has_no_connection_left(self, report, server, address):
        with psycopg.connect(server.url, autocommit=True) as administrator:
            administrator.execute("alter role app connection limit 0")
            try:
                sentence = report(address)
            finally:
                administrator.execute("alter role app connection limit -1")

        assert sentence.endswith(
            'too many connections for role "app"; '
            "run fewer workers or threads, or raise its connection limit"
        )

    def test_the_server_is_starting(self, report, server, address):
        with turned(server, "recovery.signal", restore_command="sleep 60; false"):
            sentence = report(address)

        assert sentence.endswith(
            "the database system is starting up; wait until it is ready"
        )

    def test_a_redis_server_where_postgresql_should_be(self, report, redis_url):
        port = urlsplit(redis_url).port

        # it waits for the end of a line, which PostgreSQL's greeting never sends
        assert report(
            f"postgresql://app:{PASSWORD}@127.0.0.1:{port}/shop?connect_timeout=2"
        ).endswith("no PostgreSQL server answers there; check host, port and firewall")

    def test_a_server_that_says_nothing_is_given_up_in_time(self, shop, address):
        with Proxy("127.0.0.1", urlsplit(address).port) as proxy:
            proxy.black_hole()
            shop.declare(proxy.via(address))
            began = time.monotonic()
            code, report = shop.refusals(("worker",)).pop()
            took = time.monotonic() - began

        assert code == 1
        assert report.endswith("check host, port and firewall")
        assert took < 40


class TestServersThatTakeNoWrites:
    def test_a_read_only_server(self, shop, server, address):
        shop.declare(address)
        assert shop.penstock("migrate").code == 0
        with psycopg.connect(server.url, autocommit=True) as administrator:
            setting = "default_transaction_read_only"
            administrator.execute(f"alter role app set {setting} = on")
            try:
                found = shop.checked()["database"]
                code, report = shop.refusals(("plan", "poi"), ("run", "poi")).pop()
            finally:
                administrator.execute(f"alter role app reset {setting}")

        assert "takes no writes, since default_transaction_read_only" in found["detail"]
        assert code == 2
        assert "read-only transaction" in report
        assert report.endswith("; penstock.database must name the primary server")

    def test_a_standby(self, shop, server, address):
        shop.declare(address)
        assert shop.penstock("migrate").code == 0
        with turned(server, "standby.signal", is_ready=True):
            found = shop.checked()["database"]
            code, report = shop.refusals(("plan", "poi"), ("run", "poi")).pop()
            looked = shop.penstock("imports")

        assert found["detail"] == (
            f"{place(address)}: is a standby, which takes no writes; "
            "penstock.database must name the primary server"
        )
        assert code == 2
        assert "during recovery; penstock.database must name the primary" in report
        assert looked.code == 0


@contextmanager
def turned(
    server: PrivatePostgres, sign: str, *, is_ready: bool = False, **settings: str
) -> Iterator[None]:
    """Restart a server as a standby, or so that it never gets ready."""
    server.stop()
    before = dict(server._settings)
    server._settings.update(settings)
    (server._data / sign).touch()
    try:
        if is_ready:
            server.start()
        else:
            server._keep(server._command())
            time.sleep(1)
        yield
    finally:
        server.stop("immediate")
        server._settings = before
        (server._data / sign).unlink()
        server.start()


@contextmanager
def answering(with_what: bytes) -> Iterator[int]:
    """Listen, and answer whatever comes with the same bytes."""

    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            self.request.recv(1024)
            self.request.sendall(with_what)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        serving = threading.Thread(target=http.serve_forever, args=(0.05,))
        serving.start()
        yield http.server_port
        http.shutdown()
        serving.join()


class TestRedis:
    @pytest.fixture
    def report(self, shop: Shop) -> Callable[[str], str]:
        def report(url: str) -> str:
            shop.declare(redis=url)
            found = shop.checked()
            assert (found["database"]["ok"], found["redis"]["ok"]) == (True, False)
            assert found["datasets.poi"]["detail"].startswith("skipped")
            return str(found["redis"]["detail"])

        return report

    def test_a_wrong_password(self, report, own_redis):
        server = own_redis()
        with redis.Redis.from_url(server.url) as client:
            client.config_set("requirepass", PASSWORD)
        wrong = server.url.replace("//", f"//:{PASSWORD}-old@")

        assert "invalid username-password pair" in report(wrong)
        assert report(wrong).endswith(
            "put the right user and password into penstock.redis"
        )
        assert "Authentication required" in report(server.url)

    def test_nobody_listens(self, report):
        port = free_port()

        sentence = report(f"redis://:{PASSWORD}@127.0.0.1:{port}/0")

        assert sentence.startswith(f"redis://127.0.0.1:{port}/0: ")
        assert sentence.endswith(
            "check that it runs and that penstock.redis is its address"
        )

    def test_a_postgresql_server_where_redis_should_be(self, report, postgres_url):
        port = urlsplit(postgres_url).port

        assert "penstock.redis is its address" in report(f"redis://127.0.0.1:{port}/0")

    def test_a_server_of_the_web(self, report):
        with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
            sentence = report(f"redis://127.0.0.1:{port}/0")

        assert "penstock.redis is its address" in sentence


def test_the_failures_of_the_pool_are_not_printed(shop, server, address):
    shop.declare(address)
    assert shop.penstock("migrate").code == 0
    with psycopg.connect(server.url, autocommit=True) as administrator:
        administrator.execute("alter role app connection limit 2")
        try:
            # a process of its own: here, pytest would catch what is logged
            ended = subprocess.run(
                [sys.executable, "-m", "penstock", "run", "poi", "--json"],
                cwd=shop.config.parent,
                env=os.environ,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            administrator.execute("alter role app connection limit -1")

    assert not [
        line for line in ended.stderr.splitlines() if not line.startswith("penstock: ")
    ]
    assert PASSWORD not in ended.stdout + ended.stderr


def test_a_field_that_could_not_move_to_postgresql_is_noted(shop):
    shop.declare(fields='xmin = "Other"')

    checked = shop.penstock("check", "--json")

    assert checked.code == 0
    (note,) = checked.json["notes"]
    assert note.startswith("datasets.poi.fields.xmin: every PostgreSQL table has")


@pytest.mark.parametrize("store", ["a missing file", "an empty file", "postgres"])
@pytest.mark.parametrize(
    "command",
    [
        ("export", "poi", "--out", "rows.csv"),
        ("quarantine", "poi", "--export", "bad.csv"),
    ],
    ids=" ".join,
)
def test_rows_of_a_database_that_was_never_migrated_are_refused(
    shop, request, store, command
):
    if store == "postgres":
        shop.declare(request.getfixturevalue("postgres_database"))
    else:
        shop.declare()
    if store == "an empty file":
        (shop.config.parent / "penstock.db").touch()

    report = shop.penstock(*command)

    assert report.code == 2
    assert "has no tables yet: nothing has been imported" in report.err
    assert report.out == ""
    assert not [*shop.config.parent.glob("*.csv")]
