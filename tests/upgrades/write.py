"""Write a database as this version leaves it: `python -m tests.upgrades.write NAME`.

Each version that changes what is stored adds three files: NAME.db.gz, which is a SQLite
file, NAME.sql.gz, which is a dump of PostgreSQL, and NAME.json, which is what the API
had given out to clients. None of them is ever written again.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from penstock.domain.events import Event, PageCommitted
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Mode
from penstock.entrypoints.cli.common import session
from penstock.entrypoints.worker.pool import ThreadWorkerPool
from penstock.sandbox import Sandbox
from tests.services.find import provide_postgres
from tests.services.private import PrivatePostgres, free_port
from tests.upgrades.world import (
    CONFIG,
    FOLDER,
    SECOND_EDITION,
    environment,
    provider,
    write_shops,
)

PENSTOCK = (sys.executable, "-m", "penstock")
NEVER = 1_000_000


def main(name: str) -> None:
    with provider() as sandbox:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "penstock.db"
            given = fill(Path(folder), sandbox, f"sqlite:///{path}")
            checkpoint(path)
            write_packed(FOLDER / f"{name}.db.gz", path.read_bytes())
        with PrivatePostgres() as server, tempfile.TemporaryDirectory() as folder:
            given_too = fill(Path(folder), sandbox, server.url)
            write_packed(FOLDER / f"{name}.sql.gz", dump(server.url))
    text = json.dumps({"sqlite": given, "postgres": given_too}, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def fill(folder: Path, sandbox: Sandbox, database: str) -> dict[str, Any]:
    """Leave imports in every state, bad rows and changes; return what was given out."""
    environ = environment(sandbox, database, moved=True)
    os.environ.update(environ)
    (folder / "penstock.toml").write_bytes(CONFIG.read_bytes())
    write_shops(folder, edition=1)
    penstock(folder, "migrate")
    penstock(folder, "run", "poi")
    penstock(folder, "run", "shops")
    penstock(folder, "run", "failed", code=1)
    given = change_records(folder)
    write_shops(folder, SECOND_EDITION)
    in_child(folder, die_after, "poi", 7)
    in_child(folder, die_after, "shops", 1)
    in_child(folder, begin_only, "planning", 0)
    return given


def change_records(folder: Path) -> dict[str, Any]:
    """Change records as clients do; return the cursor, validators and numbers given."""
    port = free_port()
    server = subprocess.Popen(
        [*PENSTOCK, "serve", "--port", str(port)], cwd=folder, stderr=subprocess.DEVNULL
    )
    try:
        base = f"http://127.0.0.1:{port}/api/v1/datasets/poi"
        wait_for(f"http://127.0.0.1:{port}/api/ready")
        _, rows = request(f"{base}/records?limit=10&sort=-points")
        first, second, third = (row["id"] for row in rows["items"][:3])
        patch = "application/merge-patch+json"
        request(f"{base}/records/{first}", "PATCH", {"note": "seen"}, patch)
        request(f"{base}/records/{second}", "DELETE")
        changed, _ = request(
            f"{base}/records/{third}", "PATCH", {"title": "changed here"}, patch
        )
        headers, listed = request(f"{base}/records?limit=10&sort=id")
        record_headers, _ = request(f"{base}/records/{first}")
        _, changes = request(f"{base}/changes?after=0&limit=50")
        return {
            "noted": first,
            "list": [row["id"] for row in listed["items"]],
            "cursor": listed["page"]["next"],
            "list_etag": headers["ETag"],
            "record_etag": record_headers["ETag"],
            "token": changed["X-Consistency-Token"],
            "changes_next": changes["after"],
        }
    finally:
        server.terminate()
        server.wait()


def request(
    url: str, method: str = "GET", body: object = None, media: str = "application/json"
) -> tuple[Mapping[str, str], Any]:
    data = None if body is None else json.dumps(body).encode()
    asking = urllib.request.Request(url, data=data, method=method)
    if data is not None:
        asking.add_header("Content-Type", media)
    with closing(urllib.request.urlopen(asking, timeout=30)) as response:
        content = response.read()
        return response.headers, json.loads(content) if content else None


def wait_for(url: str) -> None:
    for _ in range(600):
        try:
            request(url)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(url)


def die_after(config: Path, dataset: str, pages: int) -> None:
    """Work an import with one thread, and end without a word after so many pages."""
    committed = iter(range(1, NEVER))

    def listen(event: Event) -> None:
        if isinstance(event, PageCommitted) and next(committed) >= pages:
            os._exit(0)

    with session(config, lambda _: listen) as penstock:
        declared = penstock.settings.dataset(dataset)
        declaration = penstock.declaration(declared)
        penstock.plan(declared, ImportScope(mode=Mode.FULL), declaration=declaration)
        ThreadWorkerPool(penstock, declared, threads=1).start()
        threading.Event().wait(60)


def begin_only(config: Path, dataset: str, _: int) -> None:
    """Begin an import as one does that is killed before its first shard is stored."""
    with session(config) as penstock:
        declared = penstock.settings.dataset(dataset)
        penstock.stores.imports.begin(
            declared,
            ImportScope(mode=Mode.FULL),
            declaration=penstock.declaration(declared),
        )


def in_child(
    folder: Path, act: Callable[[Path, str, int], None], dataset: str, pages: int
) -> None:
    child = get_context("fork").Process(
        target=act, args=(folder / "penstock.toml", dataset, pages)
    )
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{act.__name__} of {dataset} failed")


def penstock(folder: Path, *arguments: str, code: int = 0) -> None:
    done = subprocess.run([*PENSTOCK, *arguments], cwd=folder, check=False)
    if done.returncode != code:
        raise RuntimeError(f"penstock {' '.join(arguments)} ended with {done}")


def checkpoint(path: Path) -> None:
    import sqlite3

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.execute("vacuum")


def dump(url: str) -> bytes:
    """Dump the schema as statements that any client can execute."""
    done = subprocess.run(
        [
            *(provide_postgres() / "pg_dump", "--inserts", "--rows-per-insert=100"),
            *("--no-owner", "--no-privileges", "--schema=penstock", url),
        ],
        capture_output=True,
        check=True,
    )
    # what only psql understands
    lines = done.stdout.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"\\"))


def write_packed(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
