"""How fast the API answers, on one core, with tokens, limits and metrics on.

The API has a core of its own, whoever asks has the other, PostgreSQL shares both. Rates
are of a closed loop, delays of an open one, and all that is compared is of one run.
"""

import sys
import time

import urllib3
from tests.services.private import free_port

from bench.load import delays, get, rate, running
from bench.points import FORGETFUL, ROWS, points
from bench.search import searches
from bench.stage import PENSTOCK, RIVALS, verdict

LEAST_CACHED, LEAST_OF_BARE, LEAST_UNCACHED = 3_000, 0.5, 1_200
MOST_DEEP = 1.5
# questions a second of which the delays are told
STEADY = 300
LIST = "/api/v1/datasets/poi/records?limit=50"


def measure():
    with points() as filled:
        return all([lists(filled), finds(filled)])


def lists(filled):
    """Measure lists; return whether all were fast enough."""
    token, dice = filled.token, filled.dice
    ours, bare, plain = (f"http://127.0.0.1:{free_port()}" for _ in range(3))
    serve = [*PENSTOCK, "serve", "--port", ours.rpartition(":")[2]]
    with running(serve, ours + "/api/health", cwd=filled.folder):
        body = get(ours + LIST, token)
        cached = rate(ours + LIST, token=token)
        script = random_pages(filled, LIST + "&id=gt.")
        # until the table is in memory, it is the disk that is measured
        rate(ours, token=token, script=script)
        uncached = rate(ours, token=token, script=script)
        deep = deep_against_first(ours, token)
        pages = [f"{LIST}&id=gt.{dice.randrange(ROWS)}" for _ in range(5_000)]
        p50, p95, p99 = delays(ours, pages, token=token, per_second=STEADY)
    (filled.folder / "answer.json").write_bytes(body)
    command = [sys.executable, "bench/rivals/bare_answer.py", bare.rpartition(":")[2]]
    with running([*command, filled.folder / "answer.json"], bare):
        least = rate(bare + "/", token=token)
    command = [*RIVALS, "bench/rivals/plain_api.py", plain.rpartition(":")[2]]
    with running([*command, filled.database], plain + "/points"):
        script = random_pages(filled, "/points?after=")
        rival = rate(plain, token=token, script=script)
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
            message=f"{uncached:,.0f} requests/s of 50 of {ROWS:,} rows, "
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
        f"  local after = math.random(1, {int(ROWS * 0.9)})\n"
        f'  return wrk.format("GET", "{path}" .. after)\n'
        "end\n"
    )
    return str(script)


def deep_against_first(base, token):
    """Return what a page at the end costs of one at the beginning, both uncached."""
    pool = urllib3.PoolManager(headers={"Authorization": token})
    spent: dict[str, list[float]] = {"first": [], "deep": []}
    for turn in range(300):
        for name, begin in (("first", 0), ("deep", int(ROWS * 0.95))):
            # as no other question before it
            url = f"{base}/api/v1/datasets/poi/records?limit=49&id=gt.{begin + turn}"
            started = time.perf_counter()
            assert pool.request("GET", url).status == 200
            spent[name].append(time.perf_counter() - started)
    first, deep = (sorted(spent[name])[150] for name in ("first", "deep"))
    return deep / first
