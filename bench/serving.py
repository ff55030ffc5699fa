"""How fast the API answers, on one core, with tokens, limits and metrics on.

The API has a core of its own, whoever asks has the other, PostgreSQL shares both. Rates
are of a closed loop, delays of an open one, and all that is compared is of one run.
"""

import sys
import time
from statistics import median

import urllib3
from tests.services.find import provide_wrk
from tests.services.private import free_port

from bench.load import delays, get, rate, running
from bench.points import FORGETFUL, FULL, SMALL, points
from bench.search import searches
from bench.stage import PENSTOCK, RIVALS, verdict

LEAST_CACHED, LEAST_OF_BARE, LEAST_UNCACHED = 3_000, 0.5, 1_200
MOST_DEEP = 1.5
# questions a second of which the delays are told
STEADY = 300
LIST = "/api/v1/datasets/poi/records?limit=50"


def measure(*, small=False):
    provide_wrk()
    with points(SMALL if small else FULL) as filled:
        return all([lists(filled), finds(filled)])


def lists(filled):
    """Measure lists; return whether all were fast enough."""
    token, rows = filled.token, filled.sizes.rows
    ours, bare, plain = (f"http://127.0.0.1:{free_port()}" for _ in range(3))
    serve = [*PENSTOCK, "serve", "--port", ours.rpartition(":")[2]]
    with running(serve, ours + "/api/health", cwd=filled.folder):
        body = get(ours + LIST, token)
        cached = rate(filled, ours + LIST)
        script = random_pages(filled, LIST + "&id=gt.")
        # until the table is in memory, it is the disk that is measured
        rate(filled, ours, script=script)
        uncached = rate(filled, ours, script=script)
        deep = deep_against_first(filled, ours)
        pages = [f"{LIST}&id=gt.{filled.dice.randrange(rows)}" for _ in range(5_000)]
        p50, p95, p99 = delays(filled, ours, pages, per_second=STEADY)
    (filled.folder / "answer.json").write_bytes(body)
    command = [sys.executable, "bench/rivals/bare_answer.py", bare.rpartition(":")[2]]
    with running([*command, filled.folder / "answer.json"], bare):
        least = rate(filled, bare + "/")
    command = [*RIVALS, "bench/rivals/plain_api.py", plain.rpartition(":")[2]]
    with running([*command, filled.database], plain + "/points"):
        script = random_pages(filled, "/points?after=")
        rival = rate(filled, plain, script=script)
    held = [
        verdict(
            "cached list",
            holds=cached >= max(LEAST_CACHED, LEAST_OF_BARE * least),
            message=f"{cached:,.0f} requests/s, {cached / least:.2f} of a bare "
            f"Starlette ({least:,.0f}/s); {len(body):,} bytes, all from the cache",
        ),
        verdict(
            "uncached page",
            holds=uncached >= LEAST_UNCACHED,
            message=f"{uncached:,.0f} requests/s of 50 of {rows:,} rows, "
            f"{uncached / rival:.1f} times FastAPI with SQLAlchemy ({rival:,.0f}/s); "
            f"at {STEADY}/s p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms",
        ),
        verdict(
            "deep page",
            holds=deep <= MOST_DEEP,
            message=f"{deep:.2f} of the first page's time",
        ),
    ]
    return all(held)


def finds(filled):
    """Measure searches of an API that keeps no answers."""
    base = f"http://127.0.0.1:{free_port()}"
    serve = [*PENSTOCK, "serve", "--port", base.rpartition(":")[2]]
    with running(
        [*serve, "--config", FORGETFUL], base + "/api/health", cwd=filled.folder
    ):
        return searches(base, filled)


def random_pages(filled, path):
    script = filled.folder / f"{len(path)}.lua"
    script.write_text(
        "request = function()\n"
        f"  local after = math.random(1, {int(filled.sizes.rows * 0.9)})\n"
        f'  return wrk.format("GET", "{path}" .. after)\n'
        "end\n"
    )
    return str(script)


def deep_against_first(filled, base):
    """Return what a page at the end costs of one at the beginning, both uncached."""
    pool = urllib3.PoolManager(headers={"Authorization": filled.token})
    spent: dict[str, list[float]] = {"first": [], "deep": []}
    for turn in range(filled.sizes.turns):
        for name, begin in (("first", 0), ("deep", int(filled.sizes.rows * 0.95))):
            # as no other question before it
            url = f"{base}/api/v1/datasets/poi/records?limit=49&id=gt.{begin + turn}"
            started = time.perf_counter()
            assert pool.request("GET", url).status == 200
            spent[name].append(time.perf_counter() - started)
    return median(spent["deep"]) / median(spent["first"])
