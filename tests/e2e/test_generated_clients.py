"""Clients that others generate from the OpenAPI document, in two languages.

`make soak` installs their generators: in Python with what is measured against, in
TypeScript from `tests/clients/typescript/package-lock.json`.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_client import POI, SHOPS, Client, open_workshop, serving
from tests.support.stores import SqliteStore

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".venv-bench/bin"
CALLS = ROOT / "tests/clients"
# fields whose types and names are hard on generators; none is imported
ODDITIES = """\
[datasets.import]
key = ["class", "price"]
filter = ["client", "body"]
search = ["body"]
archive = { after = "365d" }

[datasets.import.source]
type = "csv"
files = "import-*.csv"

[datasets.import.fields]
class = { column = "class" }
price = { column = "price", type = "decimal", choices = [1.5, 2] }
client = { column = "client", type = "timestamp" }
body = { column = "body", default = "none" }
self = { column = "self", type = "decimal" }
response = { column = "response", choices = ["a", "b c", "1", "None", "ü"] }
share = { column = "share", type = "float", choices = [0.5], default = 0.5 }
kind = { column = "kind", type = "int", choices = [1, -1] }
is_new = { column = "is_new", type = "bool", choices = [true], default = true }
day = { column = "day", type = "date", choices = [2026-01-01], default = 2026-01-01 }
at = { column = "at", type = "timestamp", default = 2026-01-01T00:00:00Z }

[datasets.rows]
key = "*"
source = { type = "csv", files = "rows-*.csv" }
fields = { extra = { column = "extra", type = "json" }, name = { column = "name" } }
"""
POINTS = [
    {
        "id": n,
        "title": f"Harbour {n}",
        "town": "Bonn" if n % 2 else "Ulm",
        "points": n,
        "lat": 50 + n / 100,
        "lon": 7.0,
        "is_open": "true" if n % 2 else "false",
        "day": f"2026-01-{n:02}",
        "seen": f"2026-01-{n:02}T12:00:00Z",
        "extra": json.dumps({"tags": ["a", n, None], "deep": {"is": True}}),
        "kind": "fast" if n % 2 else "slow",
        "phone": f"+49 228 {n}",
        "limit": n,
    }
    for n in range(1, 13)
]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Client]:
    """Serve twelve imported points, with a worker."""
    folder = tmp_path / "served"
    folder.mkdir()
    workshop = open_workshop(folder, SqliteStore(folder), POI, SHOPS, ODDITIES)
    with (folder / "poi-1.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, POINTS[0].keys())
        writer.writeheader()
        writer.writerows(POINTS)
    imported = workshop.penstock("run", "poi")
    assert imported.code == 0, imported.err
    with serving(workshop, "--with-worker") as client:
        yield client
    workshop.clean()


@pytest.fixture
def document(api: Client, tmp_path: Path) -> Path:
    path = tmp_path / "openapi.json"
    path.write_bytes(api.get("/openapi.json").body)
    return path


def run(folder: Path, *command: str | Path) -> str:
    """Run a tool to its end, and return what it said."""
    done = subprocess.run(
        command,
        cwd=folder,
        # generators look for formatters and Node beside themselves
        env={**os.environ, "PATH": f"{TOOLS}:{os.environ['PATH']}", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-10_000:]
    return text


def test_a_client_in_python_is_typed_and_works(
    api: Client, document: Path, tmp_path: Path
):
    shutil.copy(CALLS / "python/calls.py", tmp_path)
    text = run(
        tmp_path,
        *(TOOLS / "openapi-python-client", "generate", "--fail-on-warning"),
        *("--path", document, "--meta", "none", "--output-path", "penstock_client"),
    )
    assert "warning" not in text.lower(), text

    schemas = json.loads(document.read_bytes())["components"]["schemas"]
    modules = {path.stem for path in (tmp_path / "penstock_client/models").iterdir()}
    names = {each.replace("_", "") for each in modules}
    assert {name for name in schemas if has_model(schemas[name])} == {
        name for name in schemas if name.replace("_", "").lower() in names
    }

    run(
        tmp_path,
        *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"),
        *("--python-executable", TOOLS / "python", "--config-file", "", "calls.py"),
    )
    run(tmp_path, TOOLS / "python", "calls.py", api.url)


def has_model(schema: Any) -> bool:
    """Return whether a schema is a class; a condition of a filter is a string."""
    return bool(schema.get("type") == "object")


def test_a_client_in_typescript_is_typed_and_works(
    api: Client, document: Path, tmp_path: Path
):
    for name in ("calls.ts", "package.json", "tsconfig.json"):
        shutil.copy(CALLS / "typescript" / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(CALLS / "typescript/node_modules")
    node, tools = TOOLS / "node", Path("node_modules/.bin")
    text = run(
        tmp_path, node, tools / "openapi-ts", "--input", document, "--output", "client"
    )
    assert "warn" not in text.lower(), text
    # a value of any type is only where any JSON is allowed
    types = (tmp_path / "client/types.gen.ts").read_text("utf-8").splitlines()
    unknown = {line.strip() for line in types if "unknown" in line}
    assert unknown == {"extra?: unknown;", "[key: string]: unknown;"}

    run(tmp_path, node, tools / "tsc", "--project", ".")
    run(tmp_path, node, "built/calls.js", api.url)
