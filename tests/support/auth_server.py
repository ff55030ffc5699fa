"""A folder with a penstock.toml that is served by real processes, and who asks them."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.domain.auth_claims import AccessScope
from penstock.settings import load
from penstock.wiring.auth import signer_of

SECRET = "practice-secret-40c1a7f2-and-so-on-0123456789"
POI = """
[datasets.poi]
key = "id"
filter = ["points"]
search = ["title"]

[datasets.poi.source]
type = "csv"
files = "poi-*.csv"

[datasets.poi.fields]
id = { column = "id", type = "int" }
title = { column = "title" }
points = { column = "points", type = "int" }
"""
AUTH = """
[auth]
issuer = "https://id.example.org/"
audience = "penstock"
secret = "${PENSTOCK_JWT_SECRET}"
"""
RECORDS = "/api/v1/datasets/poi/records"


@dataclass(frozen=True)
class CheckedAccess:
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        return str(self.json["code"])


@dataclass
class Folder:
    """A configuration, and what runs by it."""

    path: Path
    config: str
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.path / "penstock.toml").write_text(self.config, "utf-8")

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "PENSTOCK_JWT_SECRET": SECRET, "COLUMNS": "200"}

    def penstock(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            cwd=self.path,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def token(self, *scopes: AccessScope, subject: str = "ann") -> str:
        signer = signer_of(load(self.path / "penstock.toml", self.environ))
        return signer.sign(subject, scopes, lifetime=timedelta(hours=1)).token

    def start(self, *more: str, **how: Any) -> subprocess.Popen[bytes]:
        with (self.path / f"{len(self.running)}.err").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "serve", "--port", "0", *more],
                cwd=self.path,
                env=self.environ,
                **{"stdout": subprocess.PIPE, "stderr": errors, **how},
            )
        self.running.append(process)
        return process

    @contextmanager
    def serve(self, *more: str, grace: float = 0) -> Iterator["Client"]:
        """Serve until the test is over, which must end well."""
        process = self.start("--json", "--grace", str(grace), *more)
        assert process.stdout is not None
        try:
            result = process.stdout.readline()
            assert result, self.errors
            yield Client(json.loads(result)["url"], process)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                assert process.wait(40) == 0, self.errors
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                process.stdout.close()
        assert "Traceback" not in self.errors

    @property
    def errors(self) -> str:
        return "".join(each.read_text("utf-8") for each in self.path.glob("*.err"))

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.errors.splitlines()]


class Client:
    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.process = process
        split = urlsplit(url)
        self.address = (split.hostname or "", split.port or 0)

    def ask(
        self,
        method: str,
        target: str,
        *,
        token: str | None = None,
        body: bytes | None = None,
        **headers: str,
    ) -> CheckedAccess:
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["authorization"] = f"Bearer {token}"
        if body is not None:
            given.setdefault("content-type", "application/json")
        try:
            connection.request(method, target, body=body, headers=given)
            answer = connection.getresponse()
            result = {name.lower(): value for name, value in answer.getheaders()}
            return CheckedAccess(answer.status, result, answer.read())
        finally:
            connection.close()

    def get(self, target: str, **headers: Any) -> CheckedAccess:
        return self.ask("GET", target, **headers)

    def store(self, *numbers: int, token: str | None = None) -> None:
        rows = [{"id": each, "title": f"title {each}", "points": 1} for each in numbers]
        response = self.ask(
            "POST", RECORDS, token=token, body=json.dumps(rows).encode()
        )
        assert response.status == 200, response.body

    def open(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=30)

    def leave(self, target: str, *, after: float = 0.4) -> None:
        """Ask for something, and go before it is answered."""
        with self.open() as line:
            line.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            time.sleep(after)

    def metric(self, name: str, **labels: str) -> float:
        """Read one number; what was never counted is nothing."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        found = 0.0
        for line in self.get("/metrics").body.decode().splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(
                each in series for each in wanted
            ):
                found += float(value)
        return found


def received(line: socket.socket) -> bytes:
    """Return all that comes until the other side closes."""
    chunks = []
    with suppress(ConnectionResetError):
        while chunk := line.recv(65_536):
            chunks.append(chunk)
    return b"".join(chunks)
