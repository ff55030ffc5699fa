"""What the benchmarks share: a provider in its own process, a folder, a dataset."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PENSTOCK = [sys.executable, "-m", "penstock"]
# what is not ours lives apart
RIVALS = [".venv-bench/bin/python"]
PAGE = 1000

CONFIG = """\
[penstock]
database = "sqlite:///bench.db"

{budgets}

[datasets.poi]
key = "id"

[datasets.poi.fields]
id = {{ path = "ID", type = "int" }}
title = {{ path = "AddressInfo.Title", required = true }}
town = "AddressInfo.Town"
country_id = {{ path = "AddressInfo.CountryID", type = "int" }}
lat = {{ path = "AddressInfo.Latitude", type = "float", min = -90, max = 90 }}
lon = {{ path = "AddressInfo.Longitude", type = "float", min = -180, max = 180 }}
points = {{ path = "NumberOfPoints", type = "int" }}

[datasets.poi.source]
type = "http"
url = "{url}"
query = {{ output = "json", compact = "true" }}
{source}

[datasets.poi.source.pages]
by = "keyset"
send = "greaterthanid"
field = "ID"
order = {{ sortby = "id_asc" }}
size = {{ send = "maxresults", value = {page} }}

[datasets.poi.shards]
ids = {{ kind = "range", from = 0, until = {until}, step = {step} }}
"""


@contextlib.contextmanager
def provider(*options: str) -> Iterator[str]:
    """Serve the practice provider from a process of its own."""
    with served("penstock", "sandbox", "--port", "0", "--json", *options) as url:
        yield url


@contextlib.contextmanager
def served(module: str, *options: str) -> Iterator[str]:
    """Run a module that prints its address and serves until it is ended."""
    command = [sys.executable, "-m", module, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            process.wait(10)


@contextlib.contextmanager
def folder(
    url: str,
    *,
    budgets: str = "",
    source: str = "",
    until: int,
    step: int,
    page: int = PAGE,
) -> Iterator[Path]:
    """Write a configuration into a folder that goes away again."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        path = Path(name)
        text = CONFIG.format(
            url=url, budgets=budgets, source=source, until=until, step=step, page=page
        )
        (path / "penstock.toml").write_text(text, encoding="utf-8")
        yield path


def run(path: Path, *options: str) -> dict[str, Any]:
    """Import, and return what `run --json` prints."""
    done = subprocess.run(
        [*PENSTOCK, "run", "poi", "--json", *options],
        cwd=path,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def verdict(name: str, *, holds: bool, message: str) -> bool:
    print(f"{'ok  ' if holds else 'FAIL'} {name}: {message}", flush=True)
    return holds
