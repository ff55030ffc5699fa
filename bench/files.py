"""How near an import of a CSV file comes to psql's own copy and the same merge.

Both sides begin with an empty table and end when all rows are in it, with the same
indexes; then the same file comes again. The limit is psql on the very table that an
import writes to; beside it stands psql on a table without our own columns, whose
indexes are smaller, and what dlt and pgloader make of the same file.
"""

import contextlib
import json
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.memory import resident
from bench.scripts import (
    BARE,
    SAME,
    create,
    has_pgloader,
    run_pgloader,
    run_psql,
    seconds,
)
from bench.server import server
from bench.stage import PENSTOCK, RIVALS, verdict

LEAST_OF_PSQL = {1: 0.7, 2: 1.0}
LEAST_AGAIN = 5.0
MOST_MEGABYTES = 200
# so long that a huge file has no more rows than can be imported in two minutes
LONG_TEXT = "lorem ipsum dolor sit amet " * 60


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many rows files have, and how many bytes a huge one."""

    rows: int
    rival_rows: int
    huge: int
    workers: tuple[int, ...]


FULL = Sizes(
    rows=1_000_000, rival_rows=200_000, huge=5 * 1024**3, workers=tuple(LEAST_OF_PSQL)
)
SMALL = Sizes(rows=1_000, rival_rows=1_000, huge=1024**2, workers=(2,))

CONFIG = """\
[penstock]
database = "{database}"

[datasets.retailers]
key = "uid"
filter = ["region", "points"]

[datasets.retailers.source]
type = "csv"
files = "retailers.csv"
shard = "{shard}"
delimiter = ","
encoding = "utf-8"

[datasets.retailers.fields]
uid = {{ required = true, max_length = 20 }}
name = {{ required = true }}
phone = {{ pattern = "^[+]?[0-9 ()-]{{6,20}}$" }}
region = {{ required = true }}
points = {{ type = "int", min = 0 }}
"""


def write_file(path, *, rows=None, size=None, text=""):
    """Write so many rows, or as many as make a file of that size."""
    written = number = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        written += file.write("uid,name,phone,region,points\r\n")
        while number != rows and (size is None or written < size):
            shuffled = number * 7919 % 10_000_019
            written += file.write(
                f'R{shuffled:08d},"Shop ""{number}"", Ltd{text}",'
                f"+49 {number % 10_000_000:07d},region-{number % 16},{number % 500}\r\n"
            )
            number += 1
    return number


@contextlib.contextmanager
def declared(database, *, shard="4MiB"):
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        text = CONFIG.format(database=database, shard=shard)
        Path(name, "penstock.toml").write_text(text, encoding="utf-8")
        yield Path(name)


def run_penstock(folder, *, workers):
    began = time.monotonic()
    command = [*PENSTOCK, "run", "retailers", "--json", "--workers", str(workers)]
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    body = json.loads(done.stdout)
    assert body["proven"], body
    return time.monotonic() - began, body["records"]


def time_psql(postgres, target, path):
    with postgres.database() as database, declared(database) as folder:
        create(target, database, folder)
        return run_psql(target, database, path)


def compare(postgres, rows, workers):
    """Measure psql before and after, so that a noisy moment shows."""
    with postgres.database() as database, declared(database) as folder:
        path = folder / "retailers.csv"
        write_file(path, rows=rows)
        before = time_psql(postgres, SAME, path)
        subprocess.run([*PENSTOCK, "migrate"], cwd=folder, check=True)
        first, records = run_penstock(folder, workers=workers)
        assert records["inserted"] == rows, records
        again, records = run_penstock(folder, workers=workers)
        assert records["unchanged"] == rows, records
        after = time_psql(postgres, SAME, path)
        bare = time_psql(postgres, BARE, path)
    psql = (before + after) / 2
    return verdict(
        f"CSV into PostgreSQL, {workers} x 2 threads",
        holds=psql / first >= LEAST_OF_PSQL[workers] and first / again >= LEAST_AGAIN,
        message=f"{rows / first:,.0f} rows/s, {psql / first:.2f} of psql's copy and "
        f"merge ({rows / before:,.0f} and {rows / after:,.0f}/s), {bare / first:.2f} "
        f"of the same into a bare table ({rows / bare:,.0f}/s); unchanged again "
        f"{first / again:.1f} times as fast",
    )


def compare_rivals(postgres, rows):
    """Measure what others make of the same file, first and again; no limit."""
    with postgres.database() as database, declared(database) as folder:
        path = folder / "retailers.csv"
        write_file(path, rows=rows)
        subprocess.run([*PENSTOCK, "migrate"], cwd=folder, check=True)
        ours = [run_penstock(folder, workers=1)[0] for _ in range(2)]
        rivals = {"dlt": time_dlt(postgres, path, rows)}
        if has_pgloader():
            rivals["pgloader"] = time_pgloader(postgres, path, rows)
        else:
            print("     pgloader is missing; on Debian: apt-get install pgloader")
    first, again = (rows / each for each in ours)
    results = [
        f"{theirs[0] / ours[0]:.1f} times {name} ({rows / theirs[0]:,.0f}/s), "
        f"again {theirs[1] / ours[1]:.1f} times ({rows / theirs[1]:,.0f}/s)"
        for name, theirs in rivals.items()
    ]
    return verdict(
        "CSV beside others",
        holds=True,
        message=f"{first:,.0f} rows/s, again {again:,.0f}/s: {'; '.join(results)}",
    )


def time_dlt(postgres, path, rows):
    with postgres.database() as database:
        command = [*RIVALS, "bench/rivals/dlt_files.py", path, database]
        found = [seconds(command, stderr=subprocess.DEVNULL) for _ in range(2)]
        check_count(database, "bench.retailers", rows)
    return found


def time_pgloader(postgres, path, rows):
    with postgres.database() as database, declared(database) as folder:
        create(BARE, database, folder)
        found = [run_pgloader(BARE, database, path) for _ in range(2)]
        check_count(database, "retailers", rows)
    return found


def check_count(database, table, rows):
    with psycopg.connect(database) as connection:
        counted = connection.execute(f"select count(*) from {table}").fetchone()
    assert counted == (rows,), counted


def measure_memory(postgres, size):
    """Import a huge file with one worker, and watch its memory."""
    with (
        postgres.database() as database,
        declared(database, shard="64MiB") as folder,
    ):
        path = folder / "retailers.csv"
        rows = write_file(path, size=size, text=LONG_TEXT)
        subprocess.run([*PENSTOCK, "migrate"], cwd=folder, check=True)
        command = [*PENSTOCK, "run", "retailers", "--json"]
        highest = 0.0
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, text=True
        ) as process:
            while process.poll() is None:
                highest = max(highest, resident(process.pid) or 0)
                time.sleep(0.1)
            assert process.stdout is not None
            body = json.loads(process.stdout.read())
    assert body["records"]["inserted"] == rows, body
    return verdict(
        "memory of a huge file",
        holds=highest < MOST_MEGABYTES,
        message=f"{rows:,} rows of {size / 1024**3:.1f} GiB in {body['seconds']} s, "
        f"at most {highest:.0f} MB",
    )


def measure(*, small=False):
    sizes = SMALL if small else FULL
    with server(small=small) as postgres:
        held = [compare(postgres, sizes.rows, workers) for workers in sizes.workers]
        held.append(measure_memory(postgres, sizes.huge))
    return all(held)


def measure_rivals(*, small=False):
    with server(small=small) as postgres:
        return compare_rivals(postgres, (SMALL if small else FULL).rival_rows)
