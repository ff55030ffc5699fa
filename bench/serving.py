"""How fast the API answers, on one core, with tokens, limits and metrics on.

The API has a core of its own, whoever asks has the other, PostgreSQL shares both. Rates
are of a closed loop, delays of an open one, and all that is compared is of one run.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import urllib3
from tests.services.private import free_port

from bench.server import server
from bench.stage import PENSTOCK, RIVALS, verdict

ROWS = int(os.environ.get("ROWS", "1_000_000"))
SECONDS = 8
CONNECTIONS = 32
API_CORE, CLIENT_CORE = "0", "1"
LEAST_CACHED, LEAST_OF_BARE, LEAST_UNCACHED = 3_000, 0.5, 1_200
MOST_DEEP = 1.5

CONFIG = """\
[penstock]
database = "{database}"

[api]
rate = "1000000/s"

[auth]
issuer = "bench"
audience = "penstock"
secret = "${{BENCH_SECRET}}"

[datasets.poi]
key = "id"
filter = ["town", "country_id", "points"]

[datasets.poi.fields]
id = {{ path = "ID", type = "int", required = true }}
title = {{ path = "Title" }}
town = {{ path = "Town" }}
country_id = {{ path = "Country", type = "int" }}
lat = {{ path = "Lat", type = "float" }}
lon = {{ path = "Lon", type = "float" }}
points = {{ path = "Points", type = "int" }}
updated_at = {{ path = "Updated", type = "timestamp" }}

[datasets.poi.source]
type = "http"
url = "http://127.0.0.1:1/"
"""
FILL = """
insert into penstock.poi (id, title, town, country_id, lat, lon, points, updated_at,
    _digest, _import, _created_at, _updated_at)
select i, 'Station ' || i || ' ' || left(md5(i::text), 12), 'Town ' || i % 9973, i % 40,
    50 + (i % 10000) / 1000.0, 8 + (i % 7000) / 1000.0, i % 9,
    '2026-01-01'::timestamptz + i * interval '1 second',
    decode(md5(i::text), 'hex'), 1, now(), now()
from generate_series(1, {rows}) as i
"""
ENVIRON = {**os.environ, "BENCH_SECRET": "a secret of more than thirty-two bytes"}
LIST = "/api/v1/datasets/poi/records?limit=50"


@contextlib.contextmanager
def prepared():
    with (
        server() as postgres,
        postgres.database() as database,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as name,
    ):
        folder = Path(name)
        (folder / "penstock.toml").write_text(CONFIG.format(database=database))
        penstock(folder, "migrate")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(FILL.format(rows=ROWS).encode())
            penstock(folder, "migrate")
            connection.execute("vacuum analyze penstock.poi")
        yield folder, database


def penstock(folder, *arguments):
    done = subprocess.run(
        [*PENSTOCK, *arguments],
        cwd=folder,
        env=ENVIRON,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@contextlib.contextmanager
def running(command, url, *, cwd=None):
    """Run a server on its core until it is no longer needed."""
    pinned = ["taskset", "-c", API_CORE, *map(str, command)]
    with subprocess.Popen(
        pinned, cwd=cwd, env=ENVIRON, stdout=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(url)
            yield
        finally:
            process.terminate()


def wait_for(url):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            urllib3.request("GET", url, retries=False, timeout=1)
            return
        time.sleep(0.1)
    raise TimeoutError(url)


def rate(url, *, token, script=None):
    """Return the answers a second of a closed loop; none may be an error."""
    extra = [] if script is None else ["-s", script]
    told = subprocess.run(
        [
            *("taskset", "-c", CLIENT_CORE, "wrk", "-t1", f"-c{CONNECTIONS}"),
            *(f"-d{SECONDS}s", "-H", f"Authorization: {token}", *extra, url),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Non-2xx" not in told, told
    found = re.search(r"Requests/sec:\s+([\d.]+)", told)
    assert found is not None, told
    return float(found[1])


def delays(url, *, token, per_second):
    """Return p50, p95 and p99 in milliseconds at a steady rate."""
    with tempfile.NamedTemporaryFile(suffix=".json") as summary:
        subprocess.run(
            [
                *("taskset", "-c", CLIENT_CORE, ".venv-bench/bin/k6", "run", "--quiet"),
                *(f"--summary-export={summary.name}", "bench/open_load.js"),
            ],
            env={
                **os.environ,
                "URL": url,
                "TOKEN": token,
                "RATE": str(per_second),
                "SECONDS": str(SECONDS),
                "ROWS": str(ROWS),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        told = json.load(summary)["metrics"]
    assert not told["checks"]["fails"], told["checks"]
    return [told["http_req_duration"][each] for each in ("p(50)", "p(95)", "p(99)")]


def random_pages(folder, path):
    script = folder / f"{len(path)}.lua"
    script.write_text(
        "request = function()\n"
        f"  local after = math.random(1, {int(ROWS * 0.9)})\n"
        f'  return wrk.format("GET", "{path}" .. after)\n'
        "end\n"
    )
    return str(script)


def deep_against_first(base, token):
    """Return what a page at the end costs of one at the beginning, both uncached."""
    pool = urllib3.PoolManager(headers={"Authorization": token})
    spent = {"first": [], "deep": []}
    for turn in range(300):
        for name, begin in (("first", 0), ("deep", int(ROWS * 0.95))):
            url = f"{base}/api/v1/datasets/poi/records?limit=50&id=gt.{begin + turn}"
            started = time.perf_counter()
            assert pool.request("GET", url).status == 200
            spent[name].append(time.perf_counter() - started)
    first, deep = (sorted(spent[name])[150] for name in ("first", "deep"))
    return deep / first


def measure():
    held = []
    with prepared() as (folder, database):
        token = "Bearer " + penstock(folder, "token", "--scope", "read")
        ours, bare, plain = (f"http://127.0.0.1:{free_port()}" for _ in range(3))
        serve = [*PENSTOCK, "serve", "--port", ours.rpartition(":")[2]]
        with running(serve, ours + "/api/health", cwd=folder):
            body = urllib3.request(
                "GET", ours + LIST, headers={"Authorization": token}
            ).data
            cached = rate(ours + LIST, token=token)
            uncached = rate(
                ours, token=token, script=random_pages(folder, LIST + "&id=gt.")
            )
            deep = deep_against_first(ours, token)
            p50, p95, p99 = delays(
                ours + LIST + "&id=gt.AFTER", token=token, per_second=600
            )
        (folder / "answer.json").write_bytes(body)
        command = [sys.executable, "bench/rivals/bare_answer.py"]
        with running([*command, bare.rpartition(":")[2], folder / "answer.json"], bare):
            least = rate(bare + "/", token=token)
        command = [*RIVALS, "bench/rivals/plain_api.py"]
        with running([*command, plain.rpartition(":")[2], database], plain + "/points"):
            rival = rate(
                plain, token=token, script=random_pages(folder, "/points?after=")
            )
    held.append(
        verdict(
            "cached list",
            holds=cached >= max(LEAST_CACHED, LEAST_OF_BARE * least),
            told=f"{cached:,.0f} requests/s, {cached / least:.2f} of a bare Starlette "
            f"({least:,.0f}/s); {len(body):,} bytes, all from the cache",
        )
    )
    held.append(
        verdict(
            "uncached page",
            holds=uncached >= LEAST_UNCACHED,
            told=f"{uncached:,.0f} requests/s of 50 of {ROWS:,} rows, "
            f"{uncached / rival:.1f} times FastAPI with SQLAlchemy ({rival:,.0f}/s); "
            f"at 600/s p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms",
        )
    )
    held.append(
        verdict(
            "deep page",
            holds=deep <= MOST_DEEP,
            told=f"{deep:.2f} of the first page's time",
        )
    )
    return all(held)
