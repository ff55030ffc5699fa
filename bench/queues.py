"""How many empty jobs a second the ledger hands out and settles, beside job queues.

Penstock settles each job in a transaction of its own, which also keeps the page and its
counts. Procrastinate settles each in a transaction of its own too; PgQueuer settles
many at once.
"""

import contextlib
import subprocess
import sys
import time

from bench.imports import Setup, declared, timed
from bench.server import server
from bench.stage import PENSTOCK, RIVALS, verdict

FULL, SMALL = 5_000, 100
PROCESSES, CONCURRENCY = 2, 4


def drain(jobs, command, **options):
    """Return the jobs a second of processes that begin together."""
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
                )
            )
            for _ in range(PROCESSES)
        ]
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        began = time.monotonic()
        for process in running:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
        for process in running:
            assert process.wait() == 0
        return jobs / (time.monotonic() - began)


def run_penstock(jobs, server):
    # nobody is asked: the import is only planned
    setup = Setup(url="http://127.0.0.1:1/points", records=jobs, step=1)
    with server.database() as database, declared(setup, database) as folder:
        timed([*PENSTOCK, "migrate"], cwd=folder)
        timed([*PENSTOCK, "plan", "points"], cwd=folder)
        work = [sys.executable, "-m", "bench.jobs", folder / "penstock.toml"]
        return drain(jobs, [*work, str(CONCURRENCY)])


def run_rival(script, jobs, server):
    with server.database() as database:
        subprocess.run([*RIVALS, script, "prepare", database, str(jobs)], check=True)
        work = [*RIVALS, script, "work", database, str(CONCURRENCY)]
        return drain(jobs, work, stderr=subprocess.DEVNULL)


RIVAL_SCRIPTS = {
    "Procrastinate": "bench/rivals/procrastinate_jobs.py",
    "PgQueuer": "bench/rivals/pgqueuer_jobs.py",
}


def measure_alone(*, small=False):
    jobs = SMALL if small else FULL
    with server(small=small) as postgres:
        rate = run_penstock(jobs, postgres)
    return verdict(
        f"empty jobs alone, {PROCESSES} x {CONCURRENCY}",
        holds=True,
        message=f"{rate:,.0f} jobs/s",
    )


def measure(*, small=False):
    jobs = SMALL if small else FULL
    with server(small=small) as postgres:
        ours = run_penstock(jobs, postgres)
        theirs = {
            name: run_rival(script, jobs, postgres)
            for name, script in RIVAL_SCRIPTS.items()
        }
        again = run_penstock(jobs, postgres)
    mean = (ours + again) / 2
    text = ", ".join(
        f"{mean / rate:.2f} of {name} ({rate:,.0f}/s)" for name, rate in theirs.items()
    )
    return verdict(
        f"empty jobs, {PROCESSES} x {CONCURRENCY}",
        holds=True,
        message=f"{ours:,.0f} and {again:,.0f} jobs/s, {text}",
    )
