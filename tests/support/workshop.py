"""A folder with a penstock.toml, a provider to import from, and real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from penstock.sandbox import Sandbox
from tests.support.stores import SqliteStore, Store

# asked for by every provider here, so that every test also looks for it in what is
# printed and stored
KEY = "practice-key-7f3a91c2"
# what no user may ever see
BUGS = ("Traceback", "this is a bug")
Process: TypeAlias = subprocess.Popen[bytes]

PENSTOCK = (sys.executable, "-m", "penstock")

FIELDS = """\
id = { path = "ID", type = "int" }
title = { path = "AddressInfo.Title", required = true }
town = "AddressInfo.Town"
country_id = { path = "AddressInfo.CountryID", type = "int" }
lat = { path = "AddressInfo.Latitude", type = "float", min = -90, max = 90 }
lon = { path = "AddressInfo.Longitude", type = "float", min = -180, max = 180 }
points = { path = "NumberOfPoints", type = "int" }
updated_at = { path = "DateLastStatusUpdate", type = "timestamp" }
"""
COLUMNS = ("id", "title", "town", "country_id", "lat", "lon", "points", "updated_at")

COUNTRIES = """\
country = { kind = "list", send = "countryid", values = %s, \
check = "AddressInfo.CountryID" }
"""


def keyset(size: int) -> str:
    """Page through /v3/poi/ by id."""
    return (
        'by = "keyset"\nsend = "greaterthanid"\nfield = "ID"\n'
        'order = { sortby = "id_asc" }\n'
        f'size = {{ send = "maxresults", value = {size} }}\n'
    )


def countries_of(sandbox: Sandbox) -> list[int]:
    points = sandbox.expected().values()
    return sorted({point["AddressInfo"]["CountryID"] for point in points})


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one document on standard output; anything else there fails the test."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


class Workshop:
    def __init__(
        self,
        folder: Path,
        sandbox: Sandbox | None = None,
        store: Store | None = None,
    ) -> None:
        self.folder = folder
        self.store = store or SqliteStore(folder)
        self._sandbox = sandbox
        self.environ = {
            **os.environ,
            "PRACTICE_KEY": KEY,
            "COLUMNS": "200",
            **self.store.environ,
        }
        self.more_secrets: list[str] = []
        self._processes: list[Process] = []
        self._groups: list[int] = []

    @property
    def sandbox(self) -> Sandbox:
        assert self._sandbox is not None, "this workshop has no provider"
        return self._sandbox

    @property
    def config(self) -> Path:
        return self.folder / "penstock.toml"

    @property
    def secrets(self) -> tuple[str, ...]:
        return KEY, *self.store.secrets, *self.more_secrets

    def declare(
        self,
        *datasets: str,
        lease: str = "4s",
        rate: float | None = None,
        burst: int = 10,
        attempts: int = 12,
        migrate: bool = True,
        more: str = "",
    ) -> None:
        """Write the configuration, and do what an operator does with a new one."""
        budget = f'rate = "{rate}/s"\nburst = {burst}\n' if rate else 'rate = "5000/s"'
        head = (
            f'[penstock]\n{self.store.declaration()}\nlease = "{lease}"\n'
            f'wait = "500ms"\ncommit_timeout = "1s"\nattempts = {attempts}\n{more}\n'
            f"[budgets.practice]\n{budget}\n"
        )
        self.config.write_text("\n".join((head, *datasets)), encoding="utf-8")
        if migrate and self.store.is_shared:
            migrated = self.penstock("migrate")
            assert migrated.code == 0, migrated.err

    def poi(
        self,
        *,
        path: str = "/v3/poi/",
        pages: str | None = None,
        shards: str = "",
        source: str = "",
        dataset: str = "",
        fields: str = FIELDS,
        tables: str = "",
        query: str = 'output = "json", compact = true',
        name: str = "poi",
    ) -> str:
        """Write a dataset of charging points; each argument is a piece of TOML."""
        return (
            f'[datasets.{name}]\nkey = "id"\n{dataset}\n\n'
            f"[datasets.{name}.fields]\n{fields}\n"
            f"[datasets.{name}.source]\n"
            f'url = "{self.sandbox.base_url}{path}"\n'
            'headers = { X-API-Key = "${PRACTICE_KEY}" }\n'
            f"query = {{ {query} }}\n"
            f'budget = "practice"\ntimeout = "1s"\n{source}\n\n'
            f"[datasets.{name}.source.pages]\n{pages or keyset(100)}\n"
            f"[datasets.{name}.shards]\n{shards}\n{tables}\n"
        )

    def by_country(self, *, size: int = 50, **more: str) -> str:
        countries = countries_of(self.sandbox)
        return self.poi(pages=keyset(size), shards=COUNTRIES % countries, **more)

    def penstock(
        self,
        *arguments: str,
        timeout: float = 60,
        through: Sequence[str] = (),
        **environ: str | None,
    ) -> Ran:
        """Run a command to its end; a traceback or a secret fails the test.

        `through` is another command that starts it.
        """
        done = subprocess.run(
            [*through, *PENSTOCK, *arguments],
            cwd=self.folder,
            env=self._environ(environ),
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        ran = Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert not any(word in ran.err for word in BUGS), ran.err
        assert not self._leaks(ran.out + ran.err)
        return ran

    def start(self, *arguments: str, **environ: str | None) -> Process:
        """Start a command and let it run; its output goes to files of its own."""
        return self._start([*PENSTOCK, *arguments], environ)

    def celery(self, *arguments: str, **environ: str | None) -> Process:
        """Start Celery, in a process group of its own: killing one ends all of it."""
        command = [sys.executable, "-m", "celery", "-A", "penstock.tasks", *arguments]
        environ = {"PENSTOCK_CONFIG": str(self.config), **environ}
        return self._start(command, environ, start_new_session=True)

    def _start(
        self,
        command: Sequence[str],
        environ: dict[str, str | None],
        *,
        start_new_session: bool = False,
    ) -> Process:
        number = len(self._processes)
        with (
            (self.folder / f"{number}.out").open("wb") as out,
            (self.folder / f"{number}.err").open("wb") as err,
        ):
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environ(environ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=start_new_session,
            )
        if start_new_session:
            self._groups.append(process.pid)
        self._processes.append(process)
        return process

    def worker(self, *more: str, threads: int = 2, **environ: str) -> Process:
        return self.start("worker", "--threads", str(threads), *more, **environ)

    def output_of(self, process: Process) -> Ran:
        """Wait for a started command and read what it left behind."""
        code = process.wait(60)
        number = self._processes.index(process)
        out = (self.folder / f"{number}.out").read_text("utf-8")
        return Ran(code, out, (self.folder / f"{number}.err").read_text("utf-8"))

    def log_of(self, process: Process) -> list[dict[str, Any]]:
        number = self._processes.index(process)
        text = (self.folder / f"{number}.err").read_text("utf-8")
        # a killed process may have been cut off in the middle of a line
        lines = [line for line in text.splitlines() if line.endswith("}")]
        return [json.loads(line) for line in lines]

    def clean(self) -> None:
        """End what still runs; then nothing may hold a traceback or a secret."""
        for process in self._processes:
            if process.poll() is None:
                # a stopped process would never see the signal
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for log in self.folder.glob("*.err"):
            text = log.read_text("utf-8", "replace")
            assert not any(word in text for word in BUGS), text
        for path in self.folder.rglob("*"):
            if path.is_file():
                assert not self._leaks(path.read_text("utf-8", "replace")), path
        assert not any(map(self._leaks, self.store.contents()))

    def ask(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """Read the database as it is, past Penstock."""
        return self.store.ask(statement, *values)

    def tamper(self, statement: str, *values: object) -> None:
        """Change the database past Penstock."""
        self.store.tamper(statement, *values)

    def rows(self, dataset: str = "poi") -> dict[int, dict[str, Any]]:
        live = self.ask(
            f"select {', '.join(COLUMNS)} from {dataset} where _deleted_at is null"
        )
        return {
            row["id"]: row | {"updated_at": self.store.instant(row["updated_at"])}
            for row in live
        }

    def seconds(self, stored: Any) -> float:
        """Return a stored time in seconds since the epoch."""
        instant = self.store.instant(stored)
        assert instant is not None
        return instant.timestamp()

    def pages(self) -> int:
        if not self.store.has("penstock_page"):
            return 0
        return int(self.ask("select count(*) as n from penstock_page")[0]["n"])

    def status(self, import_id: int = 1) -> str:
        found = self.ask("select status from penstock_import where id = ?", import_id)
        return str(found[0]["status"])

    def is_finished(self) -> bool:
        return self.status() not in {"planning", "running"}

    def _leaks(self, result: str) -> bool:
        return any(secret in result for secret in self.secrets)

    def _environ(self, changes: dict[str, str | None]) -> dict[str, str]:
        wanted = {**self.environ, **changes}
        return {name: value for name, value in wanted.items() if value is not None}


def happens(condition: Callable[[], object], *, within: float) -> bool:
    """Look again and again until something is so, or the time is over."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def wait_until(condition: Callable[[], object], *, within: float = 120) -> None:
    assert happens(condition, within=within), "it did not happen in time"
