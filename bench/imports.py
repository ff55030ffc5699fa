"""How near an import into PostgreSQL comes to a bare script that only copies.

Everything counts from starting a command until it has ended, indexes included: both
sides build those of the filters, and of the fields that are searched in, when the rows
are there. The limits are for `penstock run` as it is typed, against the script as
anybody would write it; beside it stands the script with as many processes and threads.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg

from bench.pages import PAGE
from bench.server import server
from bench.stage import PENSTOCK, served, verdict
from penstock.entrypoints.worker.pool import API_JOBS, cores, spread

LEAST_OF_BARE = 0.7
LEAST_AGAIN = 4.0
FILTER = ("country", "points")
SEARCH = ("name", "town")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many records are imported, how often, and by how many at once."""

    records: int
    # how often data is imported that has not changed: noise is much of two seconds
    again: int
    # processes and threads; without any, `penstock run` decides, and is judged
    pools: tuple[tuple[int, int] | None, ...]
    # a server that was just made gets its memory and its files for the first time
    warm_ups: int


FULL = Sizes(
    records=1_000_000, again=3, pools=(None, (1, 4), (1, 1), (2, 1)), warm_ups=1
)
SMALL = Sizes(records=2 * PAGE, again=1, pools=(), warm_ups=0)

CONFIG = """\
[penstock]
database = "{database}"

[datasets.points]
key = "id"
filter = {filter}
{search}

[datasets.points.fields]
id = {{ type = "int" }}
name = {{ required = true, max_length = 200 }}
town = "town"
country = "country"
lat = {{ type = "float", min = -90, max = 90 }}
lon = {{ type = "float", min = -180, max = 180 }}
points = {{ type = "int" }}
updated_at = {{ type = "timestamp" }}

[datasets.points.source]
type = "http"
url = "{url}"

[datasets.points.source.pages]
by = "keyset"
send = "after"
field = "id"
size = {{ send = "limit", value = {page} }}

[datasets.points.shards]
ids = {{ kind = "range", from = 0, until = {records}, step = {step} }}
"""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is the same for all that import."""

    url: str
    records: int
    # ids a shard
    step: int
    pool: tuple[int, int] | None = None
    search: tuple[str, ...] = ()


def shard_step(records):
    """Return the ids of a shard, of which there are twenty: whole pages."""
    return max(records // 20, PAGE)


@contextlib.contextmanager
def declared(setup, database):
    """Write the declaration into a folder that goes away again."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        text = CONFIG.format(
            database=database,
            url=setup.url,
            filter=json.dumps(FILTER),
            search=f"search = {json.dumps(setup.search)}" if setup.search else "",
            page=PAGE,
            records=setup.records,
            step=setup.step,
        )
        Path(name, "penstock.toml").write_text(text, encoding="utf-8")
        yield Path(name)


def timed(command, **options):
    """Return how long a command took, and what it printed."""
    began = time.monotonic()
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, **options
    )
    return time.monotonic() - began, done.stdout


def run_bare(setup, server):
    """Return the records a second of the bare script."""
    indexes = [f"({name})" for name in FILTER]
    with server.database() as database:
        if setup.search:
            columns = ", ".join(f"{name} gin_trgm_ops" for name in setup.search)
            indexes.append(f"using gin ({columns})")
            with psycopg.connect(database) as connection:
                connection.execute("create extension pg_trgm")
        processes, threads = setup.pool or spread(API_JOBS, cores=cores())
        numbers = map(str, (setup.records, processes, threads))
        bare = [sys.executable, "-m", "bench.bare"]
        seconds, _ = timed([*bare, setup.url, database, *numbers, *indexes])
        with psycopg.connect(database) as connection:
            counted = connection.execute("select count(*) from points").fetchone()
    assert counted == (setup.records,), counted
    return setup.records / seconds


def run_penstock(setup, server, *, times=1):
    """Return the records a second of the same import, done several times."""
    command = [*PENSTOCK, "run", "points", "--json"]
    if setup.pool is not None:
        workers, threads = map(str, setup.pool)
        command += ["--workers", workers, "--threads", threads]
    rates = []
    with server.database() as database, declared(setup, database) as folder:
        timed([*PENSTOCK, "migrate"], cwd=folder)
        for _ in range(times):
            seconds, printed = timed(command, cwd=folder)
            body = json.loads(printed)
            assert body["proven"], body
            assert body["records"]["seen"] == setup.records, body
            rates.append(setup.records / seconds)
    return rates


def compare(setup, server, *, times):
    """Measure the bare script before and after, so that a noisy moment shows."""
    alone = replace(setup, pool=(1, 1))
    before = run_bare(alone, server)
    first, *repeated = run_penstock(setup, server, times=1 + times)
    again = statistics.median(repeated)
    after = run_bare(alone, server)
    alike = run_bare(setup, server)
    bare = (before + after) / 2
    pool = "as typed" if setup.pool is None else "{} x {} threads".format(*setup.pool)
    pool += " with search" if setup.search else ""
    is_judged = setup.pool is None
    holds = first >= LEAST_OF_BARE * bare and again >= LEAST_AGAIN * first
    return verdict(
        f"import into PostgreSQL, {pool}",
        holds=holds or not is_judged,
        message=f"{first:,.0f} records/s, {first / bare:.2f} of a bare script "
        f"({before:,.0f} and {after:,.0f}/s), {first / alike:.2f} of as many "
        f"({alike:,.0f}/s); unchanged again {again:,.0f}/s, "
        f"{again / first:.1f} times the first",
    )


@dataclass(frozen=True)
class SqliteFiles:
    """Files in the folder of a project, where servers have databases."""

    @contextlib.contextmanager
    def database(self):
        yield "sqlite:///points.db"


def compare_sqlite(setup):
    """Measure an import into SQLite without a search index, and with one."""
    (plain,) = run_penstock(setup, SqliteFiles())
    (searched,) = run_penstock(replace(setup, search=SEARCH), SqliteFiles())
    return verdict(
        "import into SQLite with search",
        holds=True,
        message=f"{searched:,.0f} records/s, {searched / plain:.2f} of one without "
        f"({plain:,.0f}/s)",
    )


def measure(*, small=False):
    sizes = SMALL if small else FULL
    records = sizes.records
    with served("bench.pages", str(records)) as url, server(small=small) as postgres:
        plain = Setup(url=url, records=records, step=shard_step(records))
        for _ in range(sizes.warm_ups):
            run_bare(plain, postgres)
            run_penstock(plain, postgres)
        setups = [replace(plain, pool=pool) for pool in sizes.pools]
        setups.append(replace(plain, search=SEARCH))
        held = [compare(setup, postgres, times=sizes.again) for setup in setups]
        held.append(compare_sqlite(plain))
    return all(held)
